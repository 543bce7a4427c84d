"""Functions, operators and tables that a role could make so that others run them: PostgreSQL chooses the best match.

A trap has the name of something in `pg_catalog` that the SQL of jmsql names, and arguments that could fit better.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

ROOT = Path(__file__).parents[3]

_SOURCES = ("jmsql/**/*.sql", "jmsql/**/*.py", "migrations/**/*.sql")

_TYPES = """
    bool int2 int4 int8 float4 float8 numeric text name varchar bpchar "char" oid regclass regnamespace regrole regtype
    regprocedure jsonb uuid bytea timestamptz timestamp date interval xid xid8 tid text[] int2[] int4[] int8[] float8[]
    bool[] tid[] uuid[] jsonb[] bytea[] xid[] xid8[] jmsql_internal.outcome jmsql_internal.message_type
    jmsql_internal.message_type[]
"""
"""What the arguments of traps are: what columns, parameters and results are in the SQL of jmsql."""

# Each row of `signature` is a trap. One better argument suffices to be chosen. Where a function takes any types, all of
# its arguments are better at once.
_FUNCTIONS = """
with kind as (
    select t.oid, t.typelem, t.typcategory = 'A' as is_array
    from unnest(%(types)s::text[]) as given (name) join pg_type t on t.oid = to_regtype(given.name)),
known as (
    select p.oid, p.proname, p.provariadic, p.prorettype,
           case when p.provariadic = 0 then array(select unnest(p.proargtypes))
                else (array(select unnest(p.proargtypes)))[:p.pronargs - 1] || array_fill(
                    coalesce(nullif((select t.typelem from pg_type t where t.oid = p.provariadic), 0), p.provariadic),
                    array[more]) end as arguments
    from pg_proc p cross join generate_series(1, 4) as more
    where p.pronamespace = 'pg_catalog'::regnamespace and p.proname = any(%(names)s)
      and p.pronargs between 1 and 5 and (more = 1 or p.provariadic <> 0) and p.prorettype <> 'trigger'::regtype),
position as (
    select k.*, a.argument, a.n, y.typtype = 'p' as is_any,
           y.typname in ('anyarray', 'anycompatiblearray') as is_any_array
    from known k cross join unnest(k.arguments) with ordinality as a (argument, n)
    join pg_type y on y.oid = a.argument),
signature as (
    -- One argument is of the type that others are cast from.
    select p.proname, k.arguments[:p.n - 1] || t.oid || k.arguments[p.n + 1:] as arguments
    from position p join known k on k.oid = p.oid and k.arguments = p.arguments
    join kind t on t.oid <> p.argument and (t.oid = 'text'::regtype or exists (
        select from pg_cast c where c.castsource = t.oid and c.casttarget = p.argument and c.castcontext = 'i'))
    where not exists (select from position o where o.oid = p.oid and o.arguments = p.arguments and o.is_any)
    union
    -- All that may be of any type are of one.
    select p.proname, array_agg(
        case when p.is_any_array then (select a.oid from kind a where a.typelem = t.oid and a.is_array)
             when p.is_any then t.oid else p.argument end order by p.n)
    from position p cross join kind t
    group by p.oid, p.proname, p.arguments, t.oid having bool_or(p.is_any)
    union
    -- By turns the names of fields and values.
    select p.proname, array_agg(case when not p.is_any then p.argument when p.n %% 2 = 1 then 'text'::regtype
                                     else t.oid end order by p.n)
    from position p cross join kind t where p.provariadic = '"any"'::regtype
    group by p.oid, p.proname, p.arguments, t.oid)
select s.proname, array(select a::regtype::text from unnest(s.arguments) with ordinality as u (a, n) order by n)
from signature s
where array_position(s.arguments, null) is null and not exists (
    select from unnest(s.arguments) as u (a) join pg_type y on y.oid = u.a where y.typtype = 'p')
  and not exists (select from pg_proc p where p.pronamespace in ('pg_catalog'::regnamespace, 'public'::regnamespace)
                  and p.proname = s.proname and p.proargtypes::text = array_to_string(s.arguments, ' '))
"""

_OPERATORS = """
with kind as (
    select t.oid, t.typelem, t.typcategory = 'A' as is_array
    from unnest(%(types)s::text[]) as given (name) join pg_type t on t.oid = to_regtype(given.name)),
known as (
    select o.oprname, o.oprleft, o.oprright, l.typtype = 'p' as is_any_left, r.typtype = 'p' as is_any_right,
           l.typname ~ 'array$' and l.typname <> 'anynonarray' as is_left_array,
           r.typname ~ 'array$' and r.typname <> 'anynonarray' as is_right_array
    from pg_operator o join pg_type l on l.oid = o.oprleft join pg_type r on r.oid = o.oprright
    where o.oprnamespace = 'pg_catalog'::regnamespace and o.oprname = any(%(names)s)
      and (l.typtype = 'p' or o.oprleft in (select oid from kind))
      and (r.typtype = 'p' or o.oprright in (select oid from kind))),
signature as (
    select k.oprname, t.oid as l, k.oprright as r from known k join kind t on t.oid = k.oprright or exists (
        select from pg_cast c where c.castsource = t.oid and c.casttarget = k.oprleft and c.castcontext = 'i')
    union select k.oprname, k.oprleft, t.oid from known k join kind t on t.oid = k.oprleft or exists (
        select from pg_cast c where c.castsource = t.oid and c.casttarget = k.oprright and c.castcontext = 'i')
    union
    select k.oprname,
           case when not k.is_any_left then k.oprleft
                when k.is_left_array then (select a.oid from kind a where a.typelem = t.oid and a.is_array)
                else t.oid end,
           case when not k.is_any_right then k.oprright
                when k.is_right_array then (select a.oid from kind a where a.typelem = t.oid and a.is_array)
                else t.oid end
    from known k cross join kind t where k.is_any_left or k.is_any_right)
select s.oprname, s.l::regtype::text, s.r::regtype::text from signature s
where s.l is not null and s.r is not null
  and not exists (select from pg_type y where y.oid in (s.l, s.r) and y.typtype = 'p')
  and not exists (
    select from pg_operator o where o.oprnamespace in ('pg_catalog'::regnamespace, 'public'::regnamespace)
    and (o.oprname, o.oprleft, o.oprright) = (s.oprname, s.l, s.r))
"""

_RELATIONS = """
select distinct c.relname from pg_class c
where c.relnamespace in ('pg_catalog'::regnamespace, to_regnamespace('jmsql'), to_regnamespace('jmsql_internal'))
  and c.relkind in ('r', 'v', 'p') and c.relname = any(%(names)s)
"""


def sources() -> str:
    """All that can be SQL of jmsql's."""
    return "\n".join(
        path.read_text() for pattern in _SOURCES for path in ROOT.glob(pattern) if "_sync" not in path.parts
    )


def set_traps(database: psycopg.Connection[Any]) -> int:
    """Make the functions and operators in the schema `public` that are not there yet; return how many.

    Args:
        database: The connection of a superuser, in autocommit mode, which no trap catches from now on.
    """
    database.execute("set search_path = pg_catalog")
    text = sources()
    parameters = {"types": _TYPES.split()}
    functions = database.execute(_FUNCTIONS, {**parameters, "names": sorted(set(re.findall(r"\w+(?=\()", text)))})
    made = [
        f"create function public.{name}({', '.join(types)}) returns text language plpgsql as "
        f"$$begin raise exception 'trapped by a function'; end$$"
        for name, types in functions
    ]
    operators = database.execute(
        _OPERATORS, {**parameters, "names": sorted(set(re.findall(r"[-+*/<>=~!@#%^&|?]+", text)))}
    )
    for name, left, right in operators:
        made.append(
            f"create or replace function public.operator_trap({left}, {right}) returns boolean language plpgsql as "
            f"$$begin raise exception 'trapped by an operator'; end$$"
        )
        made.append(
            f"create operator public.{name} (leftarg = {left}, rightarg = {right}, function = public.operator_trap)"
        )
    database.execute("; ".join(dict.fromkeys(made)).encode())
    return len(made)


def trapping_tables(database: psycopg.Connection[Any]) -> str:
    """Return statements that make temporary tables with the names of the relations that the SQL of jmsql names."""
    names = {"names": sorted(set(re.findall(r"\w+", sources())))}
    relations = database.execute(_RELATIONS, names).fetchall()
    return ";".join(
        sql.SQL("create temporary table {} ()").format(sql.Identifier(name)).as_string() for (name,) in relations
    )


def caught(database: psycopg.Connection[Any]) -> list[str]:
    """The traps that somebody has called, and those that objects of jmsql depend on."""
    rows = database.execute(
        """
        select p.oid::regprocedure::text from pg_stat_user_functions s join pg_proc p on p.oid = s.funcid
        where p.pronamespace = 'public'::regnamespace
        union
        select pg_describe_object(d.classid, d.objid, d.objsubid) || ' depends on '
               || pg_describe_object(d.refclassid, d.refobjid, d.refobjsubid)
        from pg_depend d
        where (d.refclassid, d.refobjid) in (
            select 'pg_proc'::regclass, oid from pg_proc where pronamespace = 'public'::regnamespace
            union all
            select 'pg_operator'::regclass, oid from pg_operator where oprnamespace = 'public'::regnamespace)
          and (d.classid, d.objid) not in (
            select 'pg_operator'::regclass, oid from pg_operator where oprnamespace = 'public'::regnamespace)
        """
    )
    return [what for (what,) in rows]
