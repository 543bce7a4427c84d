-- The baseline was changed in place while nobody had released it. What its earlier states lack cannot be added here.

do $$
begin
    if not exists (select from pg_catalog.pg_proc p
                   where p.pronamespace = 'jmsql_internal'::regnamespace and p.proname = 'accessible_queues') then
        raise exception 'The schema % is of a time before the first release, and its version 0001 is not that of the '
            'release.', 'jmsql'::regnamespace using errcode = 'JMS03',
            hint = format('Receive its messages with the jmsql that made it, `drop schema %s, %s cascade`, and migrate '
                'again.', 'jmsql'::regnamespace, 'jmsql_internal'::regnamespace);
    end if;
end
$$;
