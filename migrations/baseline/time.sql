-- Times, which messages have as JMS has them: in milliseconds since the epoch.

create function jmsql.current_milliseconds() returns bigint
    language sql stable parallel safe
    return (extract(epoch from pg_catalog.statement_timestamp()) * 1000)::bigint;
comment on function jmsql.current_milliseconds() is 'The server''s time, in milliseconds since the epoch.';

create function jmsql.to_timestamp(milliseconds bigint) returns timestamptz
    language sql immutable parallel safe
    return case when milliseconds between -62135510400000 and 253402214399999
                then pg_catalog.to_timestamp(milliseconds::double precision / 1000) end;
comment on function jmsql.to_timestamp(bigint) is
    'Milliseconds since the epoch as a time; null beyond the years 1 to 9999, which is all that most languages know.';

create function jmsql.whole_number(value text) returns bigint
    language sql immutable parallel safe
    return case when value ~ '^-?[0-9]{1,18}$' then value::bigint end;
comment on function jmsql.whole_number(text) is 'A whole number that is written so; null for any other text.';
