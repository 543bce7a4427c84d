-- Who may only receive gets rid of what fails: the queue DLQ is where a dead letter may go, under its number as well.

create function jmsql_internal.may_die_in(queue integer, target integer) returns boolean
    language plpgsql stable strict
    set search_path = pg_catalog, pg_temp
as $$
begin
    return exists (
        select from jmsql_internal.queue t
        where t.queue_id = target
          and (t.name = 'DLQ'
               or t.queue_id = (select q.dead_letter_queue_id from jmsql_internal.queue q where q.queue_id = queue)));
end
$$;
comment on function jmsql_internal.may_die_in(integer, integer) is
    'Whether dead letters of a queue go to another: it is the one that the queue names, or DLQ.';

alter policy may_insert on jmsql_internal.delivery
    with check (
        (queue_id = any ((select jmsql_internal.accessible_queues('receive', current_user))::integer[])
         or (select jmsql_internal.has_access_to_all('receive', current_user)))
        and ((dead_letter_queue_id is null or dead_letter_queue_id = 0
              or jmsql_internal.may_die_in(queue_id, dead_letter_queue_id)
              or dead_letter_queue_id = any ((select jmsql_internal.accessible_queues('send', current_user))::integer[])
              or (select jmsql_internal.has_access_to_all('send', current_user)))
             and delivery_count between 0 and 1000000 and error_count between 0 and 1000000
             and length(last_error) <= 100000 is not false
             and isfinite(first_failed_at) is not false
             and (next_attempt < '9999-01-01 00:00+00' is not false or dead_letter_queue_id is not null)
             or (select jmsql_internal.has_access_to_all('administer', current_user))));
alter policy may_update on jmsql_internal.delivery
    with check (
        (queue_id = any ((select jmsql_internal.accessible_queues('receive', current_user))::integer[])
         or (select jmsql_internal.has_access_to_all('receive', current_user)))
        and ((dead_letter_queue_id is null or dead_letter_queue_id = 0
              or jmsql_internal.may_die_in(queue_id, dead_letter_queue_id)
              or dead_letter_queue_id = any ((select jmsql_internal.accessible_queues('send', current_user))::integer[])
              or (select jmsql_internal.has_access_to_all('send', current_user)))
             and delivery_count between 0 and 1000000 and error_count between 0 and 1000000
             and length(last_error) <= 100000 is not false
             and isfinite(first_failed_at) is not false
             and (next_attempt < '9999-01-01 00:00+00' is not false or dead_letter_queue_id is not null)
             or (select jmsql_internal.has_access_to_all('administer', current_user))));
