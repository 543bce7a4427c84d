-- The results of messages, for listeners that ask for them: the values that handlers return, and why messages have failed.

create table jmsql_internal.result_keeping (
    queue_id      integer primary key references jmsql_internal.queue on delete cascade,
    seconds       float8 not null check (seconds between 0 and 3155760000),
    keeps_message boolean not null default false
);
comment on table jmsql_internal.result_keeping is
    'The queues whose listeners keep results: those of dead letters and expired messages are kept there, too.';
comment on column jmsql_internal.result_keeping.seconds is 'For how long.';
comment on column jmsql_internal.result_keeping.keeps_message is
    'Whether type, properties and text of the message are kept beside its result.';

create table jmsql_internal.result (
    message_id  uuid not null,
    queue_id    integer not null,
    deliveries  integer not null,
    sent_at     timestamptz,
    started_at  timestamptz,
    finished_at timestamptz not null,
    kept_until  timestamptz not null,
    state       text not null check (state in ('done', 'failed', 'expired', 'cancelled')),
    value       json,
    error       text,
    jms_type    text,
    properties  jsonb,
    text_body   text,
    primary key (message_id, queue_id)
) with (
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0
);
comment on table jmsql_internal.result is
    'How messages have ended, by their identifiers. A row is of one queue: a dead letter that another queue has handled has two, '
    'and the later one counts.';
comment on column jmsql_internal.result.kept_until is 'When maintenance removes it.';
comment on column jmsql_internal.result.value is 'The value that the handler has returned: json keeps it as it was written.';
comment on column jmsql_internal.result.text_body is
    'The text of the message, like its type and properties only where result_keeping says so.';
create index result_kept_until on jmsql_internal.result (kept_until);
create index result_finished_at on jmsql_internal.result (finished_at, message_id, queue_id);

create policy may_delete on jmsql_internal.result_keeping for delete
    using ((select jmsql_internal.has_access_to_all('administer', current_user)));
create policy may_select on jmsql_internal.result_keeping for select using (true);
create policy may_insert on jmsql_internal.result_keeping for insert
    with check (queue_id = any ((select jmsql_internal.accessible_queues('receive', current_user))::integer[])
                or (select jmsql_internal.has_access_to_all('receive', current_user)));
create policy may_update on jmsql_internal.result_keeping for update
    using (queue_id = any ((select jmsql_internal.accessible_queues('receive', current_user))::integer[])
           or (select jmsql_internal.has_access_to_all('receive', current_user)));
alter table jmsql_internal.result_keeping enable row level security;

create policy may_delete on jmsql_internal.result for delete
    using ((select jmsql_internal.has_access_to_all('administer', current_user)));
create policy may_select on jmsql_internal.result for select
    using (queue_id = any ((select jmsql_internal.accessible_queues('browse', current_user))::integer[])
           or (select jmsql_internal.has_access_to_all('browse', current_user)));
-- Times that a client can read.
create policy may_insert on jmsql_internal.result for insert
    with check ((queue_id = any ((select jmsql_internal.accessible_queues('receive', current_user))::integer[])
                 or (select jmsql_internal.has_access_to_all('receive', current_user)))
                and sent_at between '0001-01-02 00:00+00' and '9999-12-31 00:00+00' is not false
                and started_at between '0001-01-02 00:00+00' and '9999-12-31 00:00+00' is not false
                and finished_at between '0001-01-02 00:00+00' and '9999-12-31 00:00+00'
                and kept_until between '0001-01-02 00:00+00' and '9999-12-31 00:00+00');
create policy may_update on jmsql_internal.result for update
    using (queue_id = any ((select jmsql_internal.accessible_queues('receive', current_user))::integer[])
           or (select jmsql_internal.has_access_to_all('receive', current_user)))
    with check ((queue_id = any ((select jmsql_internal.accessible_queues('receive', current_user))::integer[])
                 or (select jmsql_internal.has_access_to_all('receive', current_user)))
                and sent_at between '0001-01-02 00:00+00' and '9999-12-31 00:00+00' is not false
                and started_at between '0001-01-02 00:00+00' and '9999-12-31 00:00+00' is not false
                and finished_at between '0001-01-02 00:00+00' and '9999-12-31 00:00+00'
                and kept_until between '0001-01-02 00:00+00' and '9999-12-31 00:00+00');
alter table jmsql_internal.result enable row level security;

create function jmsql_internal.result_channel(message uuid) returns integer
    language sql immutable strict
    return 1073741824 + ('x' || right(message::text, 3))::bit(12)::integer;
comment on function jmsql_internal.result_channel(uuid) is
    'What stands, in a notification, for the result of a message; queues and topics do not come to have such numbers.';

create view jmsql.results with (security_invoker) as
select 'ID:' || r.message_id as message_id,
       coalesce(q.name, t.name) as destination,
       r.state, r.value, r.error, r.deliveries, r.sent_at, r.started_at, r.finished_at, r.kept_until
from jmsql_internal.result r
left join jmsql_internal.queue q using (queue_id)
left join jmsql_internal.subscription s using (queue_id)
left join jmsql_internal.topic t on t.topic_id = s.topic_id;
comment on view jmsql.results is 'How messages have ended whose listeners keep results: one row a message. Order by finished_at.';
comment on column jmsql.results.message_id is 'JMSMessageID';
comment on column jmsql.results.destination is 'the queue in which it ended; null: it is gone';
comment on column jmsql.results.state is 'done, failed, expired or cancelled';
comment on column jmsql.results.value is 'the value that the handler has returned, as JSON';
comment on column jmsql.results.error is 'the error of a message that has failed, with its traceback';
comment on column jmsql.results.deliveries is 'how often it was delivered, the last time included';
comment on column jmsql.results.sent_at is 'when it was sent';
comment on column jmsql.results.started_at is 'when the handler was called that has returned';
comment on column jmsql.results.finished_at is 'when it ended';
comment on column jmsql.results.kept_until is 'when the row is removed';
