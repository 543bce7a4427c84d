-- The time of the next delayed message, by which autoscalers start a client before it is due.

create function jmsql.next_due(destination text) returns timestamptz
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
    -- The planner, which has no statistics of a queue, would else read all delayed messages, and sort them.
    set enable_sort = off
    set enable_bitmapscan = off
    set enable_seqscan = off
    set jit = off
as $$
declare
    number integer := jmsql_internal.queue_number(destination);
begin
    perform jmsql_internal.require_access(number, 'browse');
    return (
        select jmsql_internal.to_timestamp(m.jms_delivery_time)
        from jmsql_internal.delayed_message m
        where m.queue_id = number
          and nullif(m.transaction_id = any(array(
              select p.transaction_id from jmsql_internal.pending_transaction p)), true) is not null
        order by m.queue_id, m.jms_delivery_time, m.sequence limit 1);
end
$$;
comment on function jmsql.next_due(text) is
    'When the next of the delayed messages of a queue is due; null: none is delayed. It may be in the past while no client is '
    'connected that does the maintenance.';
