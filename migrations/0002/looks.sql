-- Looks that cost little, whatever waits.

create function jmsql.depth(destination text, most bigint default 1000) returns bigint
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
    -- The planner, which knows nothing of how many messages a queue has, would else read all of them, and sort them.
    set enable_sort = off
    set enable_bitmapscan = off
    set enable_seqscan = off
as $$
declare
    number integer := jmsql_internal.queue_number(destination);
begin
    if (most >= 0) is not true then
        raise exception 'Expected a number of messages from 0 on, got %.', coalesce(most::text, 'null')
            using errcode = 'JMS03';
    end if;
    perform jmsql_internal.require_access(number, 'browse');
    return (
        select count(*)
        from (select m.transaction_id from jmsql_internal.message m where m.queue_id = number
              order by m.queue_id, m.inverse_priority, m.sequence limit most) m
        where nullif(m.transaction_id = any(array(
            select p.transaction_id from jmsql_internal.pending_transaction p)), true) is not null);
end
$$;
comment on function jmsql.depth(text, bigint) is
    'How many messages a queue has, whatever their state, without those that are delayed: counted up to a number, which '
    'stands for so many or more.';
