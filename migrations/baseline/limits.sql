-- Limits of listeners over all workers: how many messages start in a time, and how many are handled at a time.
--
-- A claim takes what a limit allows in its own statement: `enter_limit` locks the limit, and tells what is free;
-- `note_started` writes down what was claimed. Slots need no release: one is held while its claim holds,
-- and after a client's control connection is gone until its presence in `limit_holder` expires.

create table jmsql_internal.listener_limit (
    limit_id    bigint generated always as identity primary key,
    queue_id    integer not null references jmsql_internal.queue on delete cascade,
    selector    text not null,
    rate        integer check (rate > 0),
    per         float8 check (per between 0.001 and 31622400),
    rate_by     text,
    at_most     integer check (at_most > 0),
    at_most_by  text,
    declared_at timestamptz not null default clock_timestamp(),
    check ((rate is null) = (per is null))
);
create unique index listener_limit_key on jmsql_internal.listener_limit (queue_id, md5(selector));
comment on table jmsql_internal.listener_limit is
    'The limits of listeners, by their queue and selector, as the worker declared them that started last.';
comment on column jmsql_internal.listener_limit.selector is 'The text of the selector; empty: there is none.';
comment on column jmsql_internal.listener_limit.rate is 'The most messages that start within `per` seconds.';
comment on column jmsql_internal.listener_limit.rate_by is
    'The property or header whose values have the rate each; null: it is one for all.';
comment on column jmsql_internal.listener_limit.at_most is 'The most messages that are handled at a time.';

create table jmsql_internal.limit_usage (
    limit_id           bigint not null references jmsql_internal.listener_limit on delete cascade,
    queue_id           integer not null,
    is_rate            boolean not null,
    value              text not null,
    started            timestamptz[] not null default '{}',
    numbers            integer[] not null default '{}',
    holder_ids         bigint[] not null default '{}',
    connection_ids     bigint[] not null default '{}',
    claim_ids          bigint[] not null default '{}',
    inverse_priorities smallint[] not null default '{}',
    sequences          bigint[] not null default '{}',
    used_at            timestamptz not null,
    primary key (limit_id, is_rate, value)
) with (
    fillfactor = 50,
    vacuum_truncate = off,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_cost_delay = 0
);
comment on table jmsql_internal.limit_usage is
    'What is used of each limit, for each value of its property: the starts of a rate, or the slots of handlers.';
comment on column jmsql_internal.limit_usage.started is 'When messages started within the last `per` seconds.';
comment on column jmsql_internal.limit_usage.numbers is 'How many of them at each of these times.';
comment on column jmsql_internal.limit_usage.holder_ids is
    'The slots, one in each element of this column and the next four: the process that holds it. Claims tell which ended.';

create table jmsql_internal.limit_holder (
    holder_id     bigint primary key,
    connection_id bigint not null,
    running       bigint[] not null,
    expires_at    timestamptz not null check (expires_at <= clock_timestamp() + interval '1 minute'),
    role          name not null default current_user
);
comment on table jmsql_internal.limit_holder is
    'The clients whose handlers hold slots. One that is silent until it expires has lost its slots.';
comment on column jmsql_internal.limit_holder.running is
    'The sequences of the messages that it handles: their slots outlast a lost control connection, and with it the claims.';

create policy administrators on jmsql_internal.listener_limit
    using ((select jmsql_internal.has_access_to_all('administer', current_user)))
    with check ((select jmsql_internal.has_access_to_all('administer', current_user)));
create policy may_select on jmsql_internal.listener_limit for select
    using (queue_id = any ((select jmsql_internal.accessible_queues('browse', current_user))::integer[])
           or (select jmsql_internal.has_access_to_all('browse', current_user)));
create policy may_insert on jmsql_internal.listener_limit for insert
    with check (queue_id = any ((select jmsql_internal.accessible_queues('receive', current_user))::integer[])
                or (select jmsql_internal.has_access_to_all('receive', current_user)));
create policy may_update on jmsql_internal.listener_limit for update
    using (queue_id = any ((select jmsql_internal.accessible_queues('receive', current_user))::integer[])
           or (select jmsql_internal.has_access_to_all('receive', current_user)));
alter table jmsql_internal.listener_limit enable row level security;

create policy administrators on jmsql_internal.limit_usage
    using ((select jmsql_internal.has_access_to_all('administer', current_user)))
    with check ((select jmsql_internal.has_access_to_all('administer', current_user)));
create policy may_select on jmsql_internal.limit_usage for select
    using (queue_id = any ((select jmsql_internal.accessible_queues('browse', current_user))::integer[])
           or (select jmsql_internal.has_access_to_all('browse', current_user)));
create policy may_insert on jmsql_internal.limit_usage for insert
    with check ((queue_id = any ((select jmsql_internal.accessible_queues('receive', current_user))::integer[])
                 or (select jmsql_internal.has_access_to_all('receive', current_user)))
                and queue_id = (select l.queue_id from jmsql_internal.listener_limit l
                                where l.limit_id = limit_usage.limit_id));
create policy may_update on jmsql_internal.limit_usage for update
    using (queue_id = any ((select jmsql_internal.accessible_queues('receive', current_user))::integer[])
           or (select jmsql_internal.has_access_to_all('receive', current_user)));
alter table jmsql_internal.limit_usage enable row level security;

create policy administrators on jmsql_internal.limit_holder
    using ((select jmsql_internal.has_access_to_all('administer', current_user)))
    with check ((select jmsql_internal.has_access_to_all('administer', current_user)));
create policy may_select on jmsql_internal.limit_holder for select using (true);
create policy may_insert on jmsql_internal.limit_holder for insert with check (role = current_user);
create policy may_update on jmsql_internal.limit_holder for update
    using (role = current_user) with check (role = current_user);
alter table jmsql_internal.limit_holder enable row level security;

-- A handler that has ended has no claim, and a client that is gone has no row: the claims that maintenance took from it
-- say nothing of its handlers, which run on where it has lost its control connection alone.
create function jmsql_internal.held_slots(usage jmsql_internal.limit_usage)
    returns table (holder_id bigint, connection_id bigint, claim_id bigint, inverse_priority smallint, sequence bigint)
    language sql stable rows 10
    set search_path = pg_catalog, pg_temp
begin atomic
    select s.holder_id, s.connection_id, s.claim_id, s.inverse_priority, s.sequence
    from unnest(usage.holder_ids, usage.connection_ids, usage.claim_ids, usage.inverse_priorities, usage.sequences)
        as s (holder_id, connection_id, claim_id, inverse_priority, sequence)
    join jmsql_internal.limit_holder h
      on h.holder_id = s.holder_id and h.expires_at > clock_timestamp() - interval '1 second'
    where exists (
            select from jmsql_internal.delivery d
            where (d.queue_id, d.inverse_priority, d.sequence)
                = (usage.queue_id, s.inverse_priority, s.sequence)
              and d.claim_id = s.claim_id
            offset 0)
       or (h.connection_id = s.connection_id or s.sequence = any(h.running))
          and not exists (select from jmsql_internal.connection c where c.connection_id = s.connection_id);
end;
comment on function jmsql_internal.held_slots(jmsql_internal.limit_usage) is
    'The slots that are held still: the handler runs, as far as can be known, and its process is not silent.';

create function jmsql_internal.enter_limit(
        queue integer, chosen text, holder bigint, most bigint, counts_values boolean)
    returns table (limit_id bigint, granted bigint, rate_by text, at_most_by text, shut_rates text[], shut_slots text[],
                   few_rates text[], few_slots text[], rate_share bigint, slot_share bigint, starts_left bigint,
                   slots_left bigint, pause float8)
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
    -- Planned for each call, the statements would take longer to plan than to run.
    set plan_cache_mode = force_generic_plan
as $$
declare
    l jmsql_internal.listener_limit;
    u jmsql_internal.limit_usage;
    per interval;
    free_at timestamptz;
    held bigint;
    reserve integer;
begin
    select x.* into l from jmsql_internal.listener_limit x
    where x.queue_id = queue and md5(x.selector) = md5(chosen)
    for update;
    limit_id := l.limit_id;
    -- The slots of a client that was silent for too long would not count.
    granted := case when found and (l.at_most is null or exists (
            select from jmsql_internal.limit_holder h
            where h.holder_id = holder and h.expires_at > clock_timestamp())) then most else 0 end;
    if not counts_values and (l.rate_by is not null or l.at_most_by is not null) then
        granted := 0;
    end if;
    rate_by := l.rate_by;
    at_most_by := l.at_most_by;
    shut_rates := '{}';
    shut_slots := '{}';
    few_rates := '{}';
    few_slots := '{}';
    rate_share := most;
    slot_share := most;
    if l.rate is not null then
        per := l.per * interval '1 second';
        -- No more at once than a twentieth: what is claimed ahead starts a little later than it is counted.
        rate_share := greatest(1, l.rate / 20);
        if l.rate_by is null then
            for turn in 1..2 loop
                select l.rate - coalesce(sum(w.number), 0), min(w.start) + per into starts_left, free_at
                from jmsql_internal.limit_usage x
                cross join lateral unnest(x.started, x.numbers) as w (start, number)
                where x.limit_id = l.limit_id and x.is_rate and x.value = ''
                  and w.start > clock_timestamp() - per and w.start <= clock_timestamp();  -- it may have been set back
                exit when starts_left > 0 or free_at > clock_timestamp() + interval '50 milliseconds';
                -- Consumers come a little early, so that the time that they take to wake costs nothing of the rate.
                perform pg_sleep(greatest(0, extract(epoch from free_at - clock_timestamp())) + 0.0002);
            end loop;
            granted := least(granted, rate_share, greatest(starts_left, 0));
            pause := extract(epoch from coalesce(free_at - clock_timestamp(), per));
        else
            select coalesce(array_agg(x.value) filter (where x.remaining <= 0), '{}'),
                   coalesce(array_agg(x.value) filter (where x.remaining between 1 and rate_share - 1), '{}'),
                   extract(epoch from min(x.free_at) filter (where x.remaining <= 0) - clock_timestamp())
            into shut_rates, few_rates, pause
            from (
                select x.value, l.rate - sum(w.number) as remaining, min(w.start) + per as free_at
                from jmsql_internal.limit_usage x
                cross join lateral unnest(x.started, x.numbers) as w (start, number)
                where x.limit_id = l.limit_id and x.is_rate and x.used_at > clock_timestamp() - per
                  and w.start > clock_timestamp() - per and w.start <= clock_timestamp()
                group by x.value) x;
        end if;
    end if;
    if l.at_most is not null then
        -- What is claimed ahead leaves half of the slots to others, and none is claimed ahead where they are few.
        reserve := l.at_most / 2;
        if l.at_most >= 20 and not exists (
                select from jmsql_internal.limit_holder h
                where h.holder_id <> holder and h.expires_at > clock_timestamp()) then
            reserve := l.at_most / 10;  -- there are no others yet
        end if;
        slot_share := greatest(1, l.at_most - reserve);
        if l.at_most_by is null then
            select * into u from jmsql_internal.limit_usage x
            where x.limit_id = l.limit_id and not x.is_rate and x.value = '';
            held := coalesce(cardinality(u.sequences), 0);
            if held > slot_share - least(most, slot_share) then
                select count(*) into held from jmsql_internal.held_slots(u);
            end if;
            slots_left := greatest(l.at_most - held, 0);
            granted := least(granted, case when slots_left = 0 then 0
                                           else greatest(1, slots_left - reserve) end);
        else
            for u in
                select x.* from jmsql_internal.limit_usage x
                where x.limit_id = l.limit_id and not x.is_rate and x.sequences <> '{}'
            loop
                held := cardinality(u.sequences);
                if held >= l.at_most then
                    select count(*) into held from jmsql_internal.held_slots(u);
                end if;
                if held >= l.at_most then
                    shut_slots := shut_slots || u.value;
                elsif l.at_most - held < slot_share then
                    few_slots := few_slots || u.value;
                end if;
            end loop;
        end if;
    end if;
    return next;
end
$$;
comment on function jmsql_internal.enter_limit(integer, text, bigint, bigint, boolean) is
    'Locks the limit of a queue and a selector until the transaction ends, and returns how many messages may be claimed, '
    'and of which values none; without a limit_id: it is not declared.';

create function jmsql_internal.note_started(
        entered bigint, holder bigint, connection bigint, rates text[], slots text[], claims bigint[], priorities smallint[],
        messages bigint[]) returns void
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
    -- Planned for each call, the statements would take longer to plan than to run.
    set plan_cache_mode = force_generic_plan
as $$
declare
    l jmsql_internal.listener_limit;
    u jmsql_internal.limit_usage;
    present constant timestamptz := clock_timestamp();
    part float8;
    last integer;
    each record;
begin
    select x.* into l from jmsql_internal.listener_limit x where x.limit_id = entered;
    if l.rate is not null then
        for each in select r.value, count(*)::integer as number from unnest(rates) as r (value) group by r.value loop
            select array_agg(w.start order by w.start), array_agg(w.number order by w.start)
            into u.started, u.numbers
            from jmsql_internal.limit_usage x
            cross join lateral unnest(x.started, x.numbers) as w (start, number)
            where x.limit_id = entered and x.is_rate and x.value = each.value
              and w.start > present - l.per * interval '1 second' and w.start <= present;
            last := coalesce(cardinality(u.started), 0);
            part := l.per / 256;
            -- Of large rates, starts that are close together are noted as one.
            if last > 0 and l.rate > 256
                    and floor(extract(epoch from u.started[last]) / part) = floor(extract(epoch from present) / part) then
                u.started[last] := present;
                u.numbers[last] := u.numbers[last] + each.number;
            else
                u.started := u.started || present;
                u.numbers := u.numbers || each.number;
            end if;
            insert into jmsql_internal.limit_usage as x (limit_id, queue_id, is_rate, value, started, numbers, used_at)
            values (entered, l.queue_id, true, each.value, u.started, u.numbers, present)
            on conflict (limit_id, is_rate, value) do update
            set started = excluded.started, numbers = excluded.numbers, used_at = excluded.used_at;
        end loop;
    end if;
    if l.at_most is not null then
        for each in select distinct s.value from unnest(slots) as s (value) loop
            select x.* into u from jmsql_internal.limit_usage x
            where x.limit_id = entered and not x.is_rate and x.value = each.value;
            select array_agg(s.holder_id), array_agg(s.connection_id), array_agg(s.claim_id),
                   array_agg(s.inverse_priority), array_agg(s.sequence)
            into u.holder_ids, u.connection_ids, u.claim_ids, u.inverse_priorities, u.sequences
            from (
                select * from jmsql_internal.held_slots(u) where u.sequences <> '{}'
                union all
                select holder, connection, n.claim_id, n.inverse_priority, n.sequence
                from unnest(slots, claims, priorities, messages) as n (value, claim_id, inverse_priority, sequence)
                where n.value = each.value) as s;
            insert into jmsql_internal.limit_usage as x (
                limit_id, queue_id, is_rate, value, holder_ids, connection_ids, claim_ids, inverse_priorities, sequences,
                used_at)
            values (entered, l.queue_id, false, each.value, u.holder_ids, u.connection_ids, u.claim_ids,
                    u.inverse_priorities, u.sequences, present)
            on conflict (limit_id, is_rate, value) do update
            set holder_ids = excluded.holder_ids, connection_ids = excluded.connection_ids,
                claim_ids = excluded.claim_ids, inverse_priorities = excluded.inverse_priorities,
                sequences = excluded.sequences, used_at = excluded.used_at;
        end loop;
    end if;
end
$$;
comment on function jmsql_internal.note_started(bigint, bigint, bigint, text[], text[], bigint[], smallint[], bigint[]) is
    'Writes down which messages have been claimed within a limit that `enter_limit` has locked.';

create function jmsql_internal.count_waiting(queue integer, by_name text, wanted text[]) returns bigint
    language sql stable
    set search_path = pg_catalog, pg_temp
begin atomic
    select count(*)
    from (
        select m.* from jmsql_internal.message m
        where m.queue_id = queue
          and nullif(m.transaction_id = any(array(
              select p.transaction_id from jmsql_internal.pending_transaction p)), true) is not null
        order by m.queue_id, m.inverse_priority, m.sequence
        limit 1000) m
    where (m.jms_expiration <= (select jmsql_internal.current_milliseconds())) is not true
      and not exists (
          select from jmsql_internal.delivery d
          where (d.queue_id, d.inverse_priority, d.sequence) = (m.queue_id, m.inverse_priority, m.sequence)
            and (d.claim_id is not null or d.next_attempt > now())
          offset 0)
      and (by_name is null
           or left(coalesce(case by_name
                  when 'JMSType' then m.jms_type
                  when 'JMSCorrelationID' then m.jms_correlation_id
                  when 'JMSPriority' then (9 - m.inverse_priority)::text
                  else m.properties ->> by_name end, ''), 200) = any(wanted));
end;
comment on function jmsql_internal.count_waiting(integer, text, text[]) is
    'How many of the first 1,000 messages of a queue are free, and have one of some values of a property; any value without one.';

create view jmsql.limits with (security_invoker) as
select coalesce(q.name, t.name) as destination,
       s.name as subscription,
       nullif(l.selector, '') as selector,
       case when u.is_rate then 'rate' when not u.is_rate then 'at_most'
            when l.rate is not null then 'rate' else 'at_most' end as kind,
       case when coalesce(u.is_rate, l.rate is not null) then l.rate else l.at_most end as most,
       case when coalesce(u.is_rate, l.rate is not null) then l.per end as per,
       case when coalesce(u.is_rate, l.rate is not null) then l.rate_by else l.at_most_by end as by,
       u.value,
       coalesce(n.used, 0) as used,
       coalesce(n.used, 0) >= case when coalesce(u.is_rate, l.rate is not null) then l.rate else l.at_most end as is_met,
       case when l.selector <> '' then null
            when n.used >= case when u.is_rate then l.rate else l.at_most end
            then jmsql_internal.count_waiting(l.queue_id, case when u.is_rate then l.rate_by else l.at_most_by end, array[u.value])
            else 0 end as waiting,
       n.free_at,
       l.declared_at
from jmsql_internal.listener_limit l
join jmsql_internal.queue q on q.queue_id = l.queue_id
left join jmsql_internal.subscription s on s.queue_id = l.queue_id
left join jmsql_internal.topic t on t.topic_id = s.topic_id
left join jmsql_internal.limit_usage u on u.limit_id = l.limit_id
left join lateral (
    select case when u.is_rate then sum(w.number) else count(w.sequence) end as used,
           case when u.is_rate and sum(w.number) >= l.rate then min(w.start) + l.per * interval '1 second' end as free_at
    from (
        select w.start, w.number, null::bigint as sequence
        from unnest(u.started, u.numbers) as w (start, number)
        where w.start > clock_timestamp() - l.per * interval '1 second'
        union all
        select null, null, h.sequence from jmsql_internal.held_slots(u) h) w) n on true
where q.deleted_at is null;
comment on view jmsql.limits is
    'The limits of listeners, and what is used of them: one row for each value of the property by which one counts.';
comment on column jmsql.limits.destination is 'The queue, or the topic of the subscription.';
comment on column jmsql.limits.subscription is 'The subscription; null: it is a queue''s listener.';
comment on column jmsql.limits.selector is 'The listener''s selector; null: it has none.';
comment on column jmsql.limits.kind is 'rate: messages that start in a time; at_most: messages that are handled at a time.';
comment on column jmsql.limits.most is 'The limit.';
comment on column jmsql.limits.per is 'Of a rate: the seconds in which so many messages start.';
comment on column jmsql.limits.by is 'The property or header whose values are limited each; null: the limit is one for all.';
comment on column jmsql.limits.value is 'The value of the property; empty: messages without it, or all messages.';
comment on column jmsql.limits.used is 'How many messages have started in the last `per` seconds, or are handled now.';
comment on column jmsql.limits.is_met is 'Whether further messages of the value wait for the limit.';
comment on column jmsql.limits.waiting is
    'How many messages wait for the limit, of the first 1,000 of the queue; null: the listener has a selector.';
comment on column jmsql.limits.free_at is 'When the next message of a rate that is met may start.';
comment on column jmsql.limits.declared_at is 'When the worker started whose limit it is.';
