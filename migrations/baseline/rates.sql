-- What went through destinations, minute by minute, for charts.
--
-- Maintenance compares the counters with those that it noted last, and keeps the differences: of the thousand busiest
-- destinations of the minute, and of all together. Those of the others stay until they are among the thousand. After an
-- hour, ten minutes become one row. So the table is bounded in days and in rows, however many destinations there are.

alter table jmsql_internal.configuration
    add column rates_days integer not null default 7 check (rates_days between 0 and 366);
comment on column jmsql_internal.configuration.rates_days is
    'For how many days maintenance keeps the rates of destinations; 0: it notes none.';

create table jmsql_internal.rate (
    destination_id integer not null,
    minute         timestamptz not null,
    sent           bigint not null,
    acknowledged   bigint not null,
    rolled_back    bigint not null,
    redelivered    bigint not null,
    waited         double precision not null,
    calls          bigint not null,
    handled        double precision not null,
    primary key (destination_id, minute)
);
comment on table jmsql_internal.rate is
    'What went through a queue, or a topic (minus its number), or all destinations (0), from a minute on: the differences of the '
    'counters. Rows of the last hour stand for a minute, older ones for ten.';
create index rate_minute on jmsql_internal.rate (minute);
-- What is to be folded, however long no client was there to do it.
create index rate_single_minute on jmsql_internal.rate (minute)
    where minute <> date_bin('10 minutes', minute, 'epoch'::timestamptz);

create table jmsql_internal.noted_counters (
    destination_id integer primary key,
    sent           bigint not null,
    acknowledged   bigint not null,
    rolled_back    bigint not null,
    redelivered    bigint not null,
    waited         double precision not null,
    calls          bigint not null,
    handled        double precision not null
) with (fillfactor = 50);
comment on table jmsql_internal.noted_counters is 'The counters of destinations when their rates were noted last.';

create policy may_select on jmsql_internal.rate for select using (true);
alter table jmsql_internal.rate enable row level security;

create function jmsql_internal.note_rates() returns integer
    language plpgsql volatile security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    days constant integer := (select c.rates_days from jmsql_internal.configuration c);
    this_minute constant timestamptz := date_trunc('minute', statement_timestamp(), 'UTC');
    an_hour_ago constant timestamptz := date_bin('10 minutes', this_minute - interval '1 hour', 'epoch'::timestamptz);
    surplus constant integer := 5000;
    most constant bigint := 1000000;
    most_messages constant bigint := 1000000000000;
    noted integer := 0;
begin
    -- One client at a time: else two that see the same counters would note the same differences twice.
    -- By a row that administrators alone can lock: every role can take any advisory lock.
    perform from jmsql_internal.configuration for no key update skip locked;
    if not found then
        return 0;
    end if;
    if days = 0 then
        delete from jmsql_internal.noted_counters;
        delete from jmsql_internal.rate where ctid = any(array(select r.ctid from jmsql_internal.rate r limit surplus));
        return 0;
    end if;
    if not exists (select from jmsql_internal.noted_counters) then
        -- Nothing is known of when the counters came to this.
        insert into jmsql_internal.noted_counters
        select t.destination_id, t.sent, t.acknowledged, t.rolled_back, t.redelivered, t.waited, t.calls, t.handled
        from jmsql_internal.destination_counters t;
        insert into jmsql_internal.noted_counters values (0, 0, 0, 0, 0, 0, 0, 0) on conflict do nothing;
        return 0;
    end if;
    delete from jmsql_internal.noted_counters n
    where n.destination_id <> 0
      and not exists (
        select from jmsql_internal.destination_counters t where t.destination_id = n.destination_id);
    with difference as materialized (
        -- A destination that was deleted and made again begins at 0. Roles write their own counters: no more than a million
        -- million messages count for a destination at a time, of which the sums in rows for ten minutes stay numbers. And each
        -- message counts for at most 3,000 years: a mean must remain an interval.
        select t.destination_id,
               least(greatest(t.sent - coalesce(n.sent, 0), 0), most_messages) as sent,
               least(greatest(t.acknowledged - coalesce(n.acknowledged, 0), 0), most_messages) as acknowledged,
               least(greatest(t.rolled_back - coalesce(n.rolled_back, 0), 0), most_messages) as rolled_back,
               least(greatest(t.redelivered - coalesce(n.redelivered, 0), 0), most_messages) as redelivered,
               least(greatest(t.waited - coalesce(n.waited, 0), 0),
                     1e17 * least(greatest(t.acknowledged - coalesce(n.acknowledged, 0), 0), most_messages)) as waited,
               least(greatest(t.calls - coalesce(n.calls, 0), 0), most_messages) as calls,
               least(greatest(t.handled - coalesce(n.handled, 0), 0),
                     1e17 * least(greatest(t.calls - coalesce(n.calls, 0), 0), most_messages)) as handled
        from jmsql_internal.destination_counters t
        left join jmsql_internal.noted_counters n using (destination_id)
        where (t.sent, t.acknowledged, t.rolled_back, t.calls)
              is distinct from (n.sent, n.acknowledged, n.rolled_back, n.calls)
        order by t.sent - coalesce(n.sent, 0) + t.acknowledged - coalesce(n.acknowledged, 0) desc
        limit 1000),
    kept as (
        insert into jmsql_internal.rate as r
            (destination_id, minute, sent, acknowledged, rolled_back, redelivered, waited, calls, handled)
        select d.destination_id, this_minute, d.sent, d.acknowledged, d.rolled_back, d.redelivered, d.waited, d.calls, d.handled
        from difference d
        union all
        select 0, this_minute, sum(d.sent), sum(d.acknowledged), sum(d.rolled_back), sum(d.redelivered), sum(d.waited),
               sum(d.calls), sum(d.handled)
        from difference d
        having count(*) > 0
        on conflict (destination_id, minute) do update
        set sent = r.sent + excluded.sent, acknowledged = r.acknowledged + excluded.acknowledged,
            rolled_back = r.rolled_back + excluded.rolled_back, redelivered = r.redelivered + excluded.redelivered,
            waited = r.waited + excluded.waited, calls = r.calls + excluded.calls, handled = r.handled + excluded.handled
        returning destination_id),
    remembered as (
        insert into jmsql_internal.noted_counters as n
        select t.destination_id, t.sent, t.acknowledged, t.rolled_back, t.redelivered, t.waited, t.calls, t.handled
        from jmsql_internal.destination_counters t
        join difference d using (destination_id)
        on conflict (destination_id) do update
        set sent = excluded.sent, acknowledged = excluded.acknowledged, rolled_back = excluded.rolled_back,
            redelivered = excluded.redelivered, waited = excluded.waited, calls = excluded.calls,
            handled = excluded.handled
        returning destination_id)
    select count(*) into noted from remembered;
    -- The minutes of an hour ago become one row for ten of them.
    with old as (
        delete from jmsql_internal.rate r
        where r.minute < an_hour_ago and r.minute <> date_bin('10 minutes', r.minute, 'epoch'::timestamptz)
        returning r.*)
    insert into jmsql_internal.rate as r
        (destination_id, minute, sent, acknowledged, rolled_back, redelivered, waited, calls, handled)
    select o.destination_id, date_bin('10 minutes', o.minute, 'epoch'::timestamptz), sum(o.sent), sum(o.acknowledged),
           sum(o.rolled_back), sum(o.redelivered), sum(o.waited), sum(o.calls), sum(o.handled)
    from old o
    group by 1, 2
    on conflict (destination_id, minute) do update
    set sent = r.sent + excluded.sent, acknowledged = r.acknowledged + excluded.acknowledged,
        rolled_back = r.rolled_back + excluded.rolled_back, redelivered = r.redelivered + excluded.redelivered,
        waited = r.waited + excluded.waited, calls = r.calls + excluded.calls, handled = r.handled + excluded.handled;
    delete from jmsql_internal.rate where ctid = any(array(
        select r.ctid from jmsql_internal.rate r
        where r.minute < this_minute - days * interval '1 day'
           or (select c.reltuples from pg_class c where c.oid = 'jmsql_internal.rate'::regclass) > most
        order by r.minute limit surplus));
    return noted;
end
$$;
comment on function jmsql_internal.note_rates() is
    'Notes what went through destinations since it was called before, and forgets what is too old. Returns of how many.';

create function jmsql_internal.forget_rates() returns trigger
    language plpgsql security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    delete from jmsql_internal.rate r using removed t where r.destination_id = t.destination_id;
    return null;
end
$$;
create trigger rates_go_with_their_counters after delete on jmsql_internal.destination_counters
    referencing old table as removed for each statement execute function jmsql_internal.forget_rates();

create function jmsql.keep_rates(days integer) returns void
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
begin
    if days between 0 and 366 is not true then
        raise exception 'Expected a number of days from 0 to 366, got %.', coalesce(days::text, 'null')
            using errcode = 'JMS03';
    end if;
    update jmsql_internal.configuration set rates_days = days;
end
$$;
comment on function jmsql.keep_rates(integer) is
    'Sets for how many days maintenance keeps the rates of destinations: 7 by default. 0 keeps none, and removes those there are.';

create view jmsql.rates with (security_invoker) as
select case when r.destination_id = 0 then 'all' when q.name is not null then 'queue'
            when s.queue_id is not null then 'subscription' else 'topic' end as kind,
       coalesce(q.name, o.name) as destination,
       s.name as subscription,
       s.client_id,
       r.minute,
       r.sent,
       r.acknowledged,
       r.rolled_back,
       r.redelivered,
       r.calls,
       make_interval(secs => r.waited / nullif(r.acknowledged, 0)::float8 / 1000000) as time_in_queue,
       make_interval(secs => r.handled / nullif(r.calls, 0)::float8 / 1000000) as handling_time
from jmsql_internal.rate r
left join jmsql_internal.queue q on q.queue_id = r.destination_id
left join jmsql_internal.subscription s on s.queue_id = r.destination_id
left join jmsql_internal.topic o on o.topic_id = coalesce(s.topic_id, -r.destination_id)
where q.deleted_at is null;
comment on view jmsql.rates is
    'What went through each destination, and all together, minute by minute: rows of the last hour stand for a minute, older ones for ten.';
comment on column jmsql.rates.kind is 'queue, topic or subscription; all: all destinations together';
comment on column jmsql.rates.destination is 'The name of the queue or topic; null: all';
comment on column jmsql.rates.subscription is 'The name of the subscription; null: it is a queue or topic, or has no name';
comment on column jmsql.rates.client_id is 'The client identifier of the subscription; null: none';
comment on column jmsql.rates.minute is 'The beginning of the minute or of the ten minutes';
comment on column jmsql.rates.sent is 'Messages that clients have sent to the queue, or published on the topic';
comment on column jmsql.rates.acknowledged is 'Deliveries that ended with the message gone';
comment on column jmsql.rates.rolled_back is 'Deliveries that failed or were released';
comment on column jmsql.rates.redelivered is 'How many of these deliveries were not the first of their message';
comment on column jmsql.rates.calls is 'Calls of handlers that ended';
comment on column jmsql.rates.time_in_queue is
    'Mean time of the acknowledged messages from their sending, or their delivery time, to their acknowledgement';
comment on column jmsql.rates.handling_time is 'Mean duration of the calls of handlers, with their commits';
