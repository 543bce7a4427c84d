-- The limits of listeners over all workers, and the clients whose handlers hold slots.

-- name: declare
insert into jmsql_internal.listener_limit as l (queue_id, selector, rate, per, rate_by, at_most, at_most_by)
values (%(queue_id)s, %(chosen)s, %(rate)s, %(per)s, %(rate_by)s, %(at_most)s, %(at_most_by)s)
on conflict (queue_id, md5(selector)) do update
set rate = excluded.rate, per = excluded.per, rate_by = excluded.rate_by, at_most = excluded.at_most,
    at_most_by = excluded.at_most_by, declared_at = clock_timestamp()
where %(replaces)s;

-- name: show_presence
-- A client that comes too late has lost its slots: it is told so, and begins again. After more than a minute its row is
-- gone, too. The answer is 0, or a number between those of the claims whose slots are lost and those of later ones.
with former as materialized (
    select set_config('synchronous_commit', 'off', true),
           coalesce((select h.expires_at < clock_timestamp() from jmsql_internal.limit_holder h
                     where h.holder_id = %(holder_id)s::bigint), %(was_shown)s) as is_late)
insert into jmsql_internal.limit_holder as h (holder_id, connection_id, running, expires_at)
select %(holder_id)s, %(connection_id)s, %(running)s::bigint[],
       clock_timestamp() + %(duration)s::float8 * interval '1 second'
from former
on conflict (holder_id) do update
set connection_id = excluded.connection_id, running = excluded.running, expires_at = excluded.expires_at
returning case when (select is_late from former) then nextval('jmsql_internal.claim_sequence'::regclass) else 0 end;

-- name: end_presence
update jmsql_internal.limit_holder set expires_at = '-infinity' where holder_id = %(holder_id)s;

-- name: forget_limits
-- What nothing has used for a while. A listener that is still there declares its limit once more. Clients that were
-- silent before the server's clock was set back are, from then on.
with holders as (
    delete from jmsql_internal.limit_holder h where h.expires_at < clock_timestamp() - interval '1 minute'),
silent as (
    update jmsql_internal.limit_holder h set expires_at = clock_timestamp() + interval '10 seconds'
    where h.expires_at > clock_timestamp() + interval '1 minute'),
usage as (
    delete from jmsql_internal.limit_usage u
    using jmsql_internal.listener_limit l
    where l.limit_id = u.limit_id and u.used_at < clock_timestamp() - interval '1 minute'
      and case when u.is_rate then u.used_at < clock_timestamp() - l.per * interval '1 second'
               else not exists (select from jmsql_internal.held_slots(u)) end)
delete from jmsql_internal.listener_limit l
where l.declared_at < clock_timestamp() - interval '1 day'
  and not exists (select from jmsql_internal.limit_usage u where u.limit_id = l.limit_id);
