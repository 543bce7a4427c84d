-- The ledger of Spark's writes tells apart the queries that write under one name.

alter table jmsql_internal.spark_write add column query_id text;
comment on column jmsql_internal.spark_write.query_id is
    'The streaming query that has written the batch, as its checkpoint names it; null: a batch write, or the release '
    'before wrote it.';
