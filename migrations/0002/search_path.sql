-- Functions in PL/pgSQL look up functions, operators and relations when they run, in the search path of who calls them. These
-- find only PostgreSQL's own. Where that would cost too much for each message, all matches are exact instead.

alter function jmsql_internal.connect_client(text, integer) set search_path = pg_catalog, pg_temp;
alter function jmsql_internal.lead(bigint, interval) set search_path = pg_catalog, pg_temp;
alter function jmsql_internal.group_state(integer, bigint[]) set search_path = pg_catalog, pg_temp;
alter function jmsql_internal.remove_messages() set search_path = pg_catalog, pg_temp;
alter function jmsql_internal.forget_counters() set search_path = pg_catalog, pg_temp;
