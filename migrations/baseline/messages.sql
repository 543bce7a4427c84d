-- Messages, and the bodies that several share.

create type jmsql_internal.message_type as enum
    ('Message', 'TextMessage', 'BytesMessage', 'MapMessage', 'StreamMessage', 'ObjectMessage');

create sequence jmsql_internal.message_sequence;

-- Times go up to the year 9999, which is as far as PostgreSQL, Python and Java all go, less a day for time zones.
create table jmsql_internal.message (
    sequence           bigint not null default nextval('jmsql_internal.message_sequence'::regclass),
    transaction_id     xid8 not null default pg_current_xact_id(),
    jms_timestamp      bigint,
    jms_expiration     bigint,
    jms_message_id     uuid,
    queue_id           integer not null,
    message_type       jmsql_internal.message_type not null,
    inverse_priority   smallint not null check (inverse_priority between 0 and 9),
    jms_delivery_mode  smallint not null check (jms_delivery_mode in (1, 2)),
    jms_correlation_id text,
    jms_reply_to       text,
    jms_type           text,
    properties         jsonb,
    property_types     jsonb,
    text_body          text,
    json_body          jsonb,
    body_types         jsonb,
    bytes_body         bytea,
    body_id            bigint,
    jms_delivery_time  bigint,
    primary key (queue_id, inverse_priority, sequence),
    constraint times_can_be_shown check (
        jms_timestamp between 0 and 253402214399999 and jms_expiration between 0 and 253402214399999
        and jms_delivery_time between 0 and 253402214399999),
    constraint properties_are_objects check (
        jsonb_typeof(properties) = 'object' and jsonb_typeof(property_types) = 'object')
) with (
    vacuum_truncate = off,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_insert_scale_factor = 1,
    autovacuum_vacuum_cost_delay = 0,
    toast.autovacuum_vacuum_scale_factor = 0.02,
    toast.autovacuum_vacuum_cost_delay = 0
);
alter sequence jmsql_internal.message_sequence owned by jmsql_internal.message.sequence;
comment on table jmsql_internal.message is
    'A message in a queue. Rows are inserted once and deleted once, never updated. The key is the order of delivery.';
comment on column jmsql_internal.message.inverse_priority is '9 minus JMSPriority, so that the most urgent come first.';
comment on column jmsql_internal.message.jms_timestamp is
    'JMSTimestamp, milliseconds since the epoch; null if disabled.';
comment on column jmsql_internal.message.jms_expiration is 'JMSExpiration, milliseconds since the epoch; null: never.';
comment on column jmsql_internal.message.jms_delivery_mode is '1 NON_PERSISTENT, 2 PERSISTENT.';
comment on column jmsql_internal.message.property_types is 'The types of properties that JSON does not tell.';
comment on column jmsql_internal.message.body_id is 'Where the body is, if it is shared with other subscriptions.';
comment on column jmsql_internal.message.jms_delivery_time is
    'JMSDeliveryTime, milliseconds since the epoch; null: it was not delayed.';
-- Only messages that can expire are in this index: all others never touch it.
create index message_expiration on jmsql_internal.message (jms_expiration) where jms_expiration is not null;
-- Only messages with a shared body are in this one.
create index message_body on jmsql_internal.message (body_id) where body_id is not null;

create table jmsql_internal.delayed_message (
    like jmsql_internal.message including defaults including constraints including comments,
    due bigint not null generated always as (least(jms_delivery_time, jms_expiration)) stored,
    check (jms_delivery_time is not null),
    primary key (due, sequence)
) with (
    vacuum_truncate = off,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_insert_scale_factor = 1,
    autovacuum_vacuum_cost_delay = 0,
    toast.autovacuum_vacuum_scale_factor = 0.02,
    toast.autovacuum_vacuum_cost_delay = 0
);
alter table jmsql_internal.delayed_message alter column jms_delivery_time set not null;
comment on table jmsql_internal.delayed_message is
    'A message that waits for its delivery time. When it is due, it moves to the table message.';
comment on column jmsql_internal.delayed_message.due is
    'When it moves, milliseconds since the epoch: at its delivery time, or when it expires before that.';
create index delayed_message_body on jmsql_internal.delayed_message (body_id) where body_id is not null;
create unique index delayed_message_queue on jmsql_internal.delayed_message (queue_id, jms_delivery_time, sequence);
-- Where a publication has a table, PostgreSQL refuses to update or delete its rows unless they can be told apart: by a
-- unique key of plain columns, or by all columns. The primary key has a computed column, which PostgreSQL 18 publishes
-- only on request.
alter table jmsql_internal.delayed_message replica identity using index delayed_message_queue;

create table jmsql_internal.body (
    body_id        bigint generated always as identity primary key,
    text_body      text,
    json_body      jsonb,
    body_types     jsonb,
    bytes_body     bytea,
    transaction_id xid8 default pg_current_xact_id(),
    position       bigint
);
comment on table jmsql_internal.body is 'A large body, stored once for all subscriptions that get the message.';
comment on column jmsql_internal.body.transaction_id is
    'Whose messages may refer to it: those of the same transaction.';
comment on column jmsql_internal.body.position is 'Which message it is of, among those that were published with it.';

create table jmsql_internal.pending_transaction (
    transaction_id xid8 primary key default pg_current_xact_id(),
    write_id       text not null,
    queue_ids      integer[] not null,
    first_sequence bigint not null,
    last_sequence  bigint not null,
    abandoned      boolean not null default false,
    committed_at   timestamptz not null default now()
);
comment on table jmsql_internal.pending_transaction is
    'Transactions that have committed messages which are not sent yet. They are sent, those of several transactions at '
    'once, when the rows here are deleted. Until then nobody sees them.';
comment on column jmsql_internal.pending_transaction.write_id is 'The write that they are of.';
comment on column jmsql_internal.pending_transaction.queue_ids is
    'Where their messages are: in these queues, with sequences from the first to the last.';
comment on column jmsql_internal.pending_transaction.abandoned is
    'Whether the messages are never sent. Maintenance deletes them, and then the row.';
create index pending_transaction_write on jmsql_internal.pending_transaction (write_id);

create function jmsql_internal.remove_messages() returns trigger
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
begin
    perform jmsql_internal.note_ending('cancelled');
    delete from jmsql_internal.message m using removed q where m.queue_id = q.queue_id;
    delete from jmsql_internal.delivery d using removed q where d.queue_id = q.queue_id;
    delete from jmsql_internal.delayed_message d using removed q where d.queue_id = q.queue_id;
    perform jmsql_internal.note_ending('');
    return null;
end
$$;
comment on function jmsql_internal.remove_messages() is
    'Does, for queues that are removed, what a foreign key would do, which would cost something with every message.';
create trigger messages_go_with_their_queue after delete on jmsql_internal.queue
    referencing old table as removed for each statement execute function jmsql_internal.remove_messages();
