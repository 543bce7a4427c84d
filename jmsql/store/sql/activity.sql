-- What administrators have done: what a program says of it beforehand, and the lines that are there.

-- name: say
-- For the transaction; the functions that change something write the line.
select set_config('jmsql.actor', %(actor)s, true), set_config('jmsql.selector', %(selector)s, true),
       set_config('jmsql.details', %(details)s, true), set_config('jmsql.action_id', %(action_id)s, true);

-- name: activity
-- Of the next so many lines, the last first. What is hidden is not found either: else it could be guessed.
select {shown}
from (select a.activity_id from jmsql_internal.administrative_action a
      where a.activity_id < %(before)s::bigint order by a.activity_id desc limit %(window)s) f
join jmsql.activity v using (activity_id)
where %(search)s::text is null
   or strpos(lower(pg_catalog.concat_ws(E'\n', v.action, v.destination, v.target, v.subscription, v.user_name, v.role_name, v.actor,
                                        v.application,
                                        case when not %(hidden)s::boolean or v.messages is null then v.details end,
                                        case when not %(hidden)s::boolean then v.selector end)), lower(%(search)s::text)) > 0
   or %(search)s::text = any(v.message_ids)
order by f.activity_id desc
limit %(limit)s;

-- name: shown
v.activity_id, v.at, v.ended_at, v.user_name, v.role_name, v.actor, v.application, v.host, v.action, v.destination, v.subscription,
       v.client_id, v.target, v.selector, v.details, v.messages, v.message_ids, v.outcome

-- name: end_of_window
select a.activity_id from jmsql_internal.administrative_action a
where a.activity_id < %(before)s::bigint order by a.activity_id desc limit 1 offset %(window)s::integer - 1;

-- name: days
select activity_days from jmsql_internal.configuration;

-- name: set_days
update jmsql_internal.configuration set activity_days = %(days)s;
