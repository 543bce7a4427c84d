-- Functions that message selectors call: Java's arithmetic and comparison, which never raise.
--
-- A selector's value is a jsonb, as in the column properties: a number without fraction digits is an exact (long)
-- value, one with fraction digits an approximate (double) one, and NaN, the infinities and -0.0 stand as text in a
-- one-element array. The unknown value is null. Each function works for every jsonb that someone may have put there.

create function jmsql_internal.selector_is_exact(number numeric) returns boolean
    language sql immutable strict parallel safe
    return pg_catalog.scale(number) = 0 and number between -9223372036854775808 and 9223372036854775807;
comment on function jmsql_internal.selector_is_exact(numeric) is
    'Whether a number is exact to a selector (a Java long).';

create function jmsql_internal.selector_double(value jsonb) returns double precision
    language sql immutable strict parallel safe
    return case
        when pg_catalog.jsonb_typeof(value) = 'number' then
            case when value::numeric >= 1.797693134862315807e308 then double precision 'Infinity'
                 when value::numeric <= -1.797693134862315807e308 then double precision '-Infinity'
                 when pg_catalog.abs(value::numeric) < 2.4703282292062328e-324 then double precision '0'
                 else value::double precision end
        when value = '["NaN"]' then double precision 'NaN'
        when value = '["Infinity"]' then double precision 'Infinity'
        when value = '["-Infinity"]' then double precision '-Infinity'
        when value = '["-0.0"]' then double precision '-0'
    end;
comment on function jmsql_internal.selector_double(jsonb) is
    'A selector''s number as a double; null if it is no number.';

create function jmsql_internal.selector_compare(a jsonb, b jsonb) returns text
    language plpgsql immutable strict parallel safe
    set search_path = pg_catalog, pg_temp
as $$
declare
    type_of_a text := jsonb_typeof(a);
    type_of_b text := jsonb_typeof(b);
    x double precision;
    y double precision;
begin
    if type_of_a in ('string', 'boolean') then
        return case when type_of_a <> type_of_b then 'unlike' when a = b then 'equal' else 'different' end;
    end if;
    if type_of_a = 'number' and type_of_b = 'number' then
        if jmsql_internal.selector_is_exact(a::numeric) and jmsql_internal.selector_is_exact(b::numeric) then
            return case when a < b then '<' when a > b then '>' else '=' end;
        end if;
    end if;
    x := jmsql_internal.selector_double(a);
    y := jmsql_internal.selector_double(b);
    return case when x = 'NaN' and y is not null or y = 'NaN' and x is not null then 'different'
                when x < y then '<'
                when x > y then '>'
                when x = y then '='
                else 'unlike' end;
end
$$;
comment on function jmsql_internal.selector_compare(jsonb, jsonb) is
    'How two values compare: <, = or > for numbers, equal or different for strings, booleans and NaN, or unlike.';

-- PostgreSQL raises where Java's doubles turn into infinity or zero. The logarithm of a product or quotient tells
-- where that can happen. Close to either limit, the same operation with a scaled operand tells exactly; for a
-- product close to zero, which may need more digits than a double has, whole numbers do. An expression need not be
-- evaluated from left to right, so what could raise stands behind IF or CASE. The numbers are powers of two: 7.9e-31
-- is 2^-100, 1.4e+45 is 2^150, 1.4e+278 is 2^924 and 9.0e+307 is 2^1023.

create function jmsql_internal.selector_sum(x double precision, y double precision) returns double precision
    language plpgsql immutable strict parallel safe
    set search_path = pg_catalog, pg_temp
as $$
begin
    if least(abs(x), abs(y)) > 1e290 and greatest(abs(x), abs(y)) < 'Infinity' then
        if abs(x / 2 + y / 2) >= 8.98846567431158e+307 then
            return sign(x) * 'Infinity'::double precision;
        end if;
    end if;
    return x + y;
end
$$;

create function jmsql_internal.selector_product(x double precision, y double precision) returns double precision
    language plpgsql immutable strict parallel safe
    set search_path = pg_catalog, pg_temp
as $$
declare
    logarithm double precision;
    overflow  boolean := false;
    underflow boolean := false;
    exponent  integer;
    other     integer;
begin
    if x = 0 or y = 0 or greatest(abs(x), abs(y)) >= 'Infinity' then
        return x * y;
    end if;
    logarithm := ln(abs(x)) + ln(abs(y));
    if logarithm > 709 then
        overflow := case when logarithm > 711 then true
                         else abs(x * 7.888609052210118e-31 * y) >= 1.418129833677085e+278 end;
    elsif logarithm < -747 then
        underflow := true;
    elsif logarithm < -744 then
        exponent := 60 - floor(ln(abs(x)) / ln(2));
        other := 60 - floor(ln(abs(y)) / ln(2));
        underflow := (abs(x) * 1.42724769270596e+45 * power(2::double precision, exponent - 150))::bigint::numeric
                   * (abs(y) * 1.42724769270596e+45 * power(2::double precision, other - 150))::bigint::numeric
                  <= power(2::numeric, exponent + other - 1075);
    end if;
    return case when overflow then sign(x) * sign(y) * 'Infinity'::double precision
                when underflow then sign(x) * sign(y) * '0'::double precision
                else x * y end;
end
$$;

create function jmsql_internal.selector_quotient(x double precision, y double precision) returns double precision
    language plpgsql immutable strict parallel safe
    set search_path = pg_catalog, pg_temp
as $$
declare
    logarithm double precision;
    overflow  boolean;
    underflow boolean;
begin
    if x = 'NaN' or y = 'NaN' or x = 0 and y = 0 then
        return 'NaN';
    elsif y = 0 then
        return case when (x < 0) = (y::text = '-0') then 'Infinity' else '-Infinity' end;
    elsif x = 0 or greatest(abs(x), abs(y)) = 'Infinity' then
        return x / y;
    end if;
    logarithm := ln(abs(x)) - ln(abs(y));
    overflow := case when logarithm < 709 then false when logarithm > 711 then true
                     else abs(x * 7.888609052210118e-31 / y) >= 1.418129833677085e+278 end;
    underflow := case when logarithm > -744 then false when logarithm < -747 then true
                      else abs(x * 1.2676506002282294e+30 / y) <= 3.13151306251402e-294 end;
    return case when overflow then sign(x) * sign(y) * 'Infinity'::double precision
                when underflow then sign(x) * sign(y) * '0'::double precision
                else x / y end;
end
$$;

create function jmsql_internal.selector_arithmetic(operation text, a jsonb, b jsonb) returns jsonb
    language plpgsql immutable strict parallel safe
    set search_path = pg_catalog, pg_temp
    set extra_float_digits = 1
as $$
declare
    exact  numeric;
    x      double precision;
    y      double precision;
    result text;
begin
    if jsonb_typeof(a) = 'number' and jsonb_typeof(b) = 'number' then
        if jmsql_internal.selector_is_exact(a::numeric) and jmsql_internal.selector_is_exact(b::numeric) then
            if operation = '/' and b = '0' then
                return null;
            end if;
            exact := case operation when '+' then a::numeric + b::numeric
                                    when '-' then a::numeric - b::numeric
                                    when '*' then a::numeric * b::numeric
                                    when '/' then div(a::numeric, b::numeric) end;
            if not jmsql_internal.selector_is_exact(exact) then
                exact := mod(exact + 9223372036854775808, 18446744073709551616);
                exact := exact + case when exact < 0 then 9223372036854775808 else -9223372036854775808 end;
            end if;
            return to_jsonb(exact);
        end if;
    end if;

    x := jmsql_internal.selector_double(a);
    y := jmsql_internal.selector_double(b);
    result := case operation when '+' then jmsql_internal.selector_sum(x, y)
                             when '-' then jmsql_internal.selector_sum(x, -y)
                             when '*' then jmsql_internal.selector_product(x, y)
                             when '/' then jmsql_internal.selector_quotient(x, y) end::text;
    if result in ('NaN', 'Infinity', '-Infinity') then
        return jsonb_build_array(result);
    elsif result = '-0' then
        return '["-0.0"]';
    end if;
    return to_jsonb(round(result::numeric, greatest(scale(result::numeric), 1)));
end
$$;
comment on function jmsql_internal.selector_arithmetic(text, jsonb, jsonb) is
    'Java''s +, -, * and / on two values of a selector; null if either is no number, or for an exact division by zero.';
