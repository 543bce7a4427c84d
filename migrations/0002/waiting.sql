-- Clients tell senders by advisory locks what their consumers wait for, so that messages for which nobody waits are not
-- notified. Those of the release before do not: the keys that `connect_client` gives them are negative, since they end with
-- the half of a UUID that begins with its variant. While one of them is there, all messages are notified.

create function jmsql_internal.connect_announcing_client(client_host text, client_process_id integer) returns bigint
    language plpgsql volatile strict
    set search_path = pg_catalog, pg_temp
as $$
declare
    key bigint;
    number bigint;
begin
    loop
        key := ('x' || right(replace(gen_random_uuid()::text, '-', ''), 16))::bit(64)::bigint & 9223372036854775807;
        exit when pg_try_advisory_lock(key);
    end loop;
    insert into jmsql_internal.connection (host, process_id, lock_key, server_process_id)
    values (client_host, client_process_id, key, pg_backend_pid())
    returning connection_id into number;
    execute format('listen %I', jmsql_internal.channel());
    return number;
end
$$;
comment on function jmsql_internal.connect_announcing_client(text, integer) is
    'Does what connect_client does, for a client that announces what its consumers wait for.';
comment on column jmsql_internal.connection.lock_key is
    'The key of the advisory lock that the client''s control connection holds; null: it sends heartbeats. Negative: it does '
    'not announce what its consumers wait for.';
