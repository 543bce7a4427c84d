-- What went through a destination, by slots of a span.

-- name: slots
select floor((extract(epoch from r.minute)::float8 - %(start)s::float8) / %(seconds)s::float8)::integer,
       sum(r.sent)::bigint, sum(r.acknowledged)::bigint, sum(r.rolled_back)::bigint, sum(r.waited)::float8,
       sum(r.calls)::bigint, sum(r.handled)::float8
from (
    select r.* from jmsql_internal.rate r
    where r.destination_id = %(destination_id)s::integer and r.minute >= to_timestamp(%(start)s::float8)
    order by r.destination_id, r.minute limit 20000) r
group by 1;

-- name: days
select c.rates_days from jmsql_internal.configuration c;
