-- What everything else is built on: the channel of notifications, and times, which messages have as JMS has them, in
-- milliseconds since the epoch.

create function jmsql_internal.channel() returns text
    language sql stable parallel safe
    return (select n.nspname::text from pg_catalog.pg_namespace n where n.oid = 'jmsql'::regnamespace);
comment on function jmsql_internal.channel() is
    'The channel of notifications, which is named as the schema of the views.';

-- Where the server's queue of notifications is full, a notification fails the commit of its transaction.
create function jmsql_internal.notify(variadic payloads text[]) returns void
    language plpgsql volatile
as $$
begin
    if pg_catalog.pg_notification_queue_usage() < 0.9::float8 then
        perform pg_catalog.pg_notify(jmsql_internal.channel(), payload) from pg_catalog.unnest(payloads) as payload;
    end if;
end
$$;
comment on function jmsql_internal.notify(text[]) is
    'Notifies clients of payloads, unless the queue of notifications is nearly full: they then learn by polling.';

create function jmsql_internal.current_milliseconds() returns bigint
    language sql stable parallel safe
    return (extract(epoch from pg_catalog.statement_timestamp()) * 1000)::bigint;
comment on function jmsql_internal.current_milliseconds() is 'The server''s time, in milliseconds since the epoch.';

create function jmsql_internal.to_timestamp(milliseconds bigint) returns timestamptz
    language sql immutable parallel safe
    return case when milliseconds between -62135510400000 and 253402214399999
                then pg_catalog.to_timestamp(milliseconds::double precision / 1000) end;
comment on function jmsql_internal.to_timestamp(bigint) is
    'Milliseconds since the epoch as a time; null beyond the years 1 to 9999, which is all that most languages know.';

create function jmsql_internal.whole_number(value text) returns bigint
    language sql immutable parallel safe
    return case when value ~ '^-?[0-9]{1,18}$' then value::bigint end;
comment on function jmsql_internal.whole_number(text) is 'A whole number that is written so; null for any other text.';

-- A statement that goes with a commit cannot return what keeps it from that: the answer would come too late.
create function jmsql_internal.refuse(sqlstate text, reason text) returns integer
    language plpgsql volatile
as $$
begin
    raise exception using errcode = sqlstate, message = reason;
end
$$;
comment on function jmsql_internal.refuse(text, text) is 'Fails with an SQLSTATE of jmsql and a text, where a value is expected.';
