-- What a consumer asks for is the first messages from a place in the primary key on, whatever else the table holds. Two
-- things keep every plan, the cached ones too, on that key.

-- There are no statistics on its columns. With one queue in the table, they say that its number excludes nothing, and a
-- consumer then reads and sorts the table for each message. Without them, the planner takes the key for selective.
alter table jmsql_internal.message
    alter column queue_id set statistics 0,
    alter column inverse_priority set statistics 0,
    alter column sequence set statistics 0,
    alter column group_hash set statistics 0,
    alter column jms_expiration set statistics 0;
alter table jmsql_internal.delivery
    alter column queue_id set statistics 0,
    alter column inverse_priority set statistics 0,
    alter column sequence set statistics 0,
    alter column group_hash set statistics 0;
alter table jmsql_internal.delayed_message
    alter column due set statistics 0,
    alter column sequence set statistics 0;

-- What groups ask for, an index on the queue and the group brings. It has the queue as an expression: as a column, the
-- primary key could be read for it, too, and while there seem to be few rows, the planner sees no difference.
alter index jmsql_internal.message_group alter column 1 set statistics 0;
alter index jmsql_internal.delivery_group alter column 1 set statistics 0;

-- Each table has 128 pages, which vacuum leaves in place. A plan made while there are fewer scans them all, and goes on
-- scanning them all when they are a million. It also has two pages for each page of its largest index. An index keeps
-- all the pages it ever had; of one in which vacuum has seen two rows, PostgreSQL expects that a look-up reads half,
-- and that each costs as much as four pages of the table when it is read whole.
insert into jmsql_internal.message (sequence, queue_id, message_type, inverse_priority, jms_delivery_mode, bytes_body)
    select n, 0, 'BytesMessage', 0, 2, decode(repeat('00', 1000), 'hex') from generate_series(1, 128 * 8) as n;
delete from jmsql_internal.message;
insert into jmsql_internal.delayed_message
    (sequence, queue_id, message_type, inverse_priority, jms_delivery_mode, jms_delivery_time, bytes_body)
    select n, 0, 'BytesMessage', 0, 2, 253402214399999, decode(repeat('00', 1000), 'hex')
    from generate_series(1, 128 * 8) as n;
delete from jmsql_internal.delayed_message;
insert into jmsql_internal.delivery (queue_id, inverse_priority, sequence, last_error)
    select 0, 0, n, repeat(' ', 500) from generate_series(1, 128 * 16) as n;
delete from jmsql_internal.delivery;

-- VACUUM FULL, CLUSTER, TRUNCATE and a restored dump leave a table with no more pages than its rows need. An index grows
-- without its table where a few messages stay and most others go: vacuum frees no page that has a row left.
create function jmsql_internal.tables_without_pages() returns setof text
    language sql stable
    set search_path = pg_catalog, pg_temp
begin atomic
    select c.relname::text from pg_class c
    where c.oid in ('jmsql_internal.message'::regclass, 'jmsql_internal.delivery'::regclass,
                    'jmsql_internal.delayed_message'::regclass)
      and pg_relation_size(c.oid)
          < 128 * current_setting('block_size')::bigint
            + 2 * (select max(pg_relation_size(i.oid)) from pg_index k join pg_class i on i.oid = k.indexrelid
                   where k.indrelid = c.oid and i.relam = (select a.oid from pg_am a where a.amname = 'btree'))
    order by c.relname;
end;
comment on function jmsql_internal.tables_without_pages() is
    'The tables of messages that have fewer pages than every plan is to count with: 128 and twice the largest index.';

create function jmsql_internal.restore_pages() returns setof text
    language plpgsql volatile security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    name text;
    started timestamptz := clock_timestamp();
begin
    for name in select t from jmsql_internal.tables_without_pages() t loop
        -- ANALYZE takes this lock as well. If somebody else has it, the next run restores the pages.
        begin
            execute format('lock table jmsql_internal.%I in share update exclusive mode nowait', name);
        exception when lock_not_available then
            continue;
        end;
        -- Nobody else ever sees the rows. The caller has more to do: what is missing then, the next run adds.
        while exists (select from jmsql_internal.tables_without_pages() t where t = name)
              and clock_timestamp() < started + interval '1 second' loop
            case name
                when 'message' then
                    insert into jmsql_internal.message
                        (queue_id, message_type, inverse_priority, jms_delivery_mode, bytes_body)
                    select 0, 'BytesMessage', 0, 2, decode(repeat('00', 1000), 'hex') from generate_series(1, 64);
                when 'delayed_message' then
                    insert into jmsql_internal.delayed_message
                        (queue_id, message_type, inverse_priority, jms_delivery_mode, jms_delivery_time, bytes_body)
                    select 0, 'BytesMessage', 0, 2, 253402214399999, decode(repeat('00', 1000), 'hex')
                    from generate_series(1, 64);
                else
                    insert into jmsql_internal.delivery (queue_id, inverse_priority, sequence, last_error)
                    select 0, 0, nextval('jmsql_internal.claim_sequence'::regclass), repeat(' ', 500)
                    from generate_series(1, 128);
            end case;
        end loop;
        execute format('delete from jmsql_internal.%I where queue_id = 0', name);
        -- All sessions then plan again what they planned without the pages.
        execute format('analyze jmsql_internal.%I', name);
        return next name;
    end loop;
end
$$;
comment on function jmsql_internal.restore_pages() is
    'Gives tables the pages back with which every plan is to count, and returns the names of those that had too few.';
