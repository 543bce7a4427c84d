-- How far handlers are with their messages, as they say. A row belongs to a claim: with the claim it is over, whatever ends that.

create table jmsql_internal.reported_progress (
    queue_id         integer not null,
    inverse_priority smallint not null,
    sequence         bigint not null,
    claim_id         bigint not null,
    fraction         float8 check (fraction between 0 and 1),
    note             text not null,
    reported_at      timestamptz not null,
    primary key (queue_id, inverse_priority, sequence)
) with (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0
);
comment on table jmsql_internal.reported_progress is
    'The progress of messages, as their handlers report it, once a second at most. It counts while the claim of that number holds; '
    'maintenance removes the rows of others.';

create policy may_delete on jmsql_internal.reported_progress for delete
    using ((select jmsql_internal.has_access_to_all('administer', current_user)));
create policy may_select on jmsql_internal.reported_progress for select
    using (queue_id = any ((select jmsql_internal.accessible_queues('browse', current_user))::integer[])
           or (select jmsql_internal.has_access_to_all('browse', current_user)));
create policy may_insert on jmsql_internal.reported_progress for insert
    with check ((queue_id = any ((select jmsql_internal.accessible_queues('receive', current_user))::integer[])
                 or (select jmsql_internal.has_access_to_all('receive', current_user)))
                and reported_at between '0001-01-02 00:00+00' and '9999-12-31 00:00+00');
create policy may_update on jmsql_internal.reported_progress for update
    using (queue_id = any ((select jmsql_internal.accessible_queues('receive', current_user))::integer[])
           or (select jmsql_internal.has_access_to_all('receive', current_user)))
    with check ((queue_id = any ((select jmsql_internal.accessible_queues('receive', current_user))::integer[])
                 or (select jmsql_internal.has_access_to_all('receive', current_user)))
                and reported_at between '0001-01-02 00:00+00' and '9999-12-31 00:00+00');
alter table jmsql_internal.reported_progress enable row level security;

create view jmsql.progress with (security_invoker) as
select coalesce(q.name, t.name) as destination,
       s.name as subscription,
       'ID:' || m.jms_message_id as message_id,
       p.fraction as progress,
       p.note,
       p.reported_at,
       d.claimed_at,
       d.connection_id as claimed_by
from jmsql_internal.reported_progress p
cross join lateral (
    select d.claimed_at, d.connection_id from jmsql_internal.delivery d
    where (d.queue_id, d.inverse_priority, d.sequence) = (p.queue_id, p.inverse_priority, p.sequence)
      and d.claim_id = p.claim_id
    offset 0) d
cross join lateral (
    select m.jms_message_id from jmsql_internal.message m
    where (m.queue_id, m.inverse_priority, m.sequence) = (p.queue_id, p.inverse_priority, p.sequence)
    offset 0) m
join jmsql_internal.queue q on q.queue_id = p.queue_id
left join jmsql_internal.subscription s on s.queue_id = p.queue_id
left join jmsql_internal.topic t on t.topic_id = s.topic_id;
comment on view jmsql.progress is
    'The messages that are being handled now and whose handlers have reported their progress: one row a message.';
comment on column jmsql.progress.destination is 'The queue, or the topic of the subscription.';
comment on column jmsql.progress.subscription is 'The subscription; null: it is a queue''s message.';
comment on column jmsql.progress.message_id is 'The message''s JMSMessageID.';
comment on column jmsql.progress.progress is 'The part that is done, from 0 to 1; null: the handler does not say.';
comment on column jmsql.progress.note is 'What the handler says besides.';
comment on column jmsql.progress.reported_at is 'When the last report was written; at most one is in a second.';
comment on column jmsql.progress.claimed_at is 'Since when the message is claimed.';
comment on column jmsql.progress.claimed_by is 'The client that handles it, as in jmsql.clients.';
