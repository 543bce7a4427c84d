"""Writes of Spark whose tasks prepare transactions: which of them the driver has decided to commit."""

from __future__ import annotations

from alembic import op

from jmsql.store.migration import target_schema

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

TABLE = """
create table {schema}.spark_prepared (
    attempt_id bigint primary key,
    write_id   text not null,
    batch_id   bigint not null,
    decided_at timestamptz not null default now()
);
comment on table {schema}.spark_prepared is
    'Attempts of Spark''s tasks whose prepared transactions are to be committed, since the driver has decided so. The '
    'rows stay until the transactions are over.';

alter table {schema}.spark_attempt add column write_id text;
comment on column {schema}.spark_attempt.write_id is
    'The write that the attempt is of, if it prepares a transaction, which is rolled back if it loses this row.';
"""


def upgrade() -> None:
    schema = target_schema()
    op.execute(TABLE.format(schema=schema))
    op.execute(f"select {schema}.renew_privileges()")


def downgrade() -> None:
    schema = target_schema()
    op.execute(f"alter table {schema}.spark_attempt drop column write_id")
    op.execute(f"drop table {schema}.spark_prepared")
