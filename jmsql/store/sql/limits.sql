-- The limits of listeners, each with what is used of it.

-- name: limits
-- Those that hold messages back come first. Of each limit, the values are read that were used lately, and with those at
-- their limit the first 1,000 messages of its queue.
select f.queue_id, coalesce(q.name, t.name), s.name, s.client_id, nullif(f.selector, ''::text),
       n.listeners,
       case when f.is_rate then 'rate'::text else 'at_most'::text end, f.most, f.per, f.by_name, f.values, f.used, coalesce(pg_catalog.cardinality(f.met), 0),
       case when f.selector <> ''::text then null::bigint when f.met is null then 0::bigint
            else jmsql_internal.count_waiting(f.queue_id, f.by_name, f.met) end,
       f.free_at, coalesce(f.met[1:5], '{}'::text[])
from (
    select l.limit_id, l.queue_id, l.selector, l.is_rate, l.most, l.per, l.by_name, (count(*) filter (where l.value is not null))::integer as values,
           coalesce(sum(l.used), 0)::integer as used, pg_catalog.array_agg(l.value order by l.used desc, l.value) filter (where l.used >= l.most) as met,
           min(l.free_at) as free_at
    from (
        select l.limit_id, l.queue_id, l.selector, k.is_rate, case when k.is_rate then l.rate else l.at_most end as most,
               case when k.is_rate then l.per end as per, case when k.is_rate then l.rate_by else l.at_most_by end as by_name,
               u.value, n.used, n.free_at
        from (select l.* from jmsql_internal.listener_limit l
              where %(queue_id)s::integer is null or l.queue_id = %(queue_id)s::integer
              order by l.limit_id desc limit 1000) l
        cross join lateral (select true as is_rate where l.rate is not null
                            union all select false where l.at_most is not null) k
        left join lateral (
            select u.* from jmsql_internal.limit_usage u where u.limit_id = l.limit_id and u.is_rate = k.is_rate
            order by u.limit_id, u.is_rate, u.value limit 1000) u on true
        left join lateral (
            select sum(w.number) as used,
                   case when sum(w.number) >= l.rate then min(w.start) + l.per * interval '1 second' end as free_at
            from unnest(u.started, u.numbers) as w (start, number)
            where k.is_rate and w.start > clock_timestamp() - l.per * interval '1 second'
              and w.start <= clock_timestamp()
            having k.is_rate
            union all
            select count(*), null::timestamptz from jmsql_internal.held_slots(u) where not k.is_rate having not k.is_rate) n on true
        limit %(window)s) l
    group by l.limit_id, l.queue_id, l.selector, l.is_rate, l.most, l.per, l.by_name
    order by pg_catalog.cardinality(pg_catalog.array_agg(l.value) filter (where l.used >= l.most)) desc nulls last, l.limit_id, l.is_rate
    limit %(limit)s) f
left join (
    select c.queue_id, c.selector, string_agg(distinct c.listeners, ', '::text) as listeners
    from (select c.queue_id, c.selector, c.listeners from jmsql_internal.consumer c
          where %(queue_id)s::integer is null or c.queue_id = %(queue_id)s::integer limit 12000) c
    group by c.queue_id, c.selector) n on n.queue_id = f.queue_id and n.selector = f.selector
cross join lateral (
    select q.name from jmsql_internal.queue q where q.queue_id = f.queue_id and q.deleted_at is null offset 0) q
left join lateral (
    select s.name, s.client_id, s.topic_id from jmsql_internal.subscription s where s.queue_id = f.queue_id offset 0) s on true
left join lateral (select t.name from jmsql_internal.topic t where t.topic_id = s.topic_id offset 0) t on true
where %(like)s::text is null or coalesce(q.name, t.name) like %(like)s::text or s.name like %(like)s::text
order by f.met is null, pg_catalog.cardinality(f.met) desc, f.limit_id, f.is_rate;
