"""The shape of the schema, compared to the listing in schema.txt, so that every change to it is seen in a review."""

from __future__ import annotations

import os
from pathlib import Path

import psycopg

LISTING = Path(__file__).with_name("schema.txt")
RENEWAL = "JMSQL_RENEW_LISTING"
"""The environment variable with which the test writes the listing."""

RELATIONS = """
    select c.oid, c.relname,
           case c.relkind when 'r' then 'table' when 'p' then 'partitioned table' when 'v' then 'view'
                          when 'S' then 'sequence' end
           || case c.relpersistence when 'u' then ', unlogged' else '' end
           || coalesce(', with ' || array_to_string(c.reloptions, ', '), '')
    from pg_class c
    where c.relnamespace = %s::regnamespace and c.relkind in ('r', 'p', 'v', 'S') and not c.relispartition
    order by 2
    """
PARTS = """
    select * from (select a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
               || case when a.attnotnull then ' not null' else '' end
               || case a.attidentity when '' then '' else ' identity' end
               || coalesce(case a.attgenerated when '' then ' default ' else ' generated ' end
                           || pg_get_expr(d.adbin, d.adrelid), '')
        from pg_attribute a
        left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
        join pg_class c on c.oid = a.attrelid
        where a.attrelid = %(table)s and a.attnum > 0 and not a.attisdropped and c.relkind <> 'S'
                   order by a.attnum) as columns
    union all
    select * from (select 'constraint ' || conname || ' ' || pg_get_constraintdef(oid) from pg_constraint
                   where conrelid = %(table)s and contype <> 'n' order by 1) as constraints
    union all
    select * from (select regexp_replace(pg_get_indexdef(indexrelid),
                                         '^CREATE (UNIQUE )?INDEX (\\S+) ON (ONLY )?\\S+ USING', 'index \\2 \\1')
                   from pg_index where indrelid = %(table)s
                   and not exists (select from pg_constraint where conindid = indexrelid) order by 1) as indexes
    union all
    select * from (select 'trigger ' || regexp_replace(pg_get_triggerdef(oid), '^CREATE TRIGGER ', '') from pg_trigger
                   where tgrelid = %(table)s and not tgisinternal order by 1) as triggers
    union all
    select * from (select 'policy ' || policyname || ' for ' || lower(cmd) from pg_policies, pg_class c, pg_namespace n
                   where c.oid = %(table)s and n.oid = c.relnamespace and schemaname = n.nspname
                     and tablename = c.relname order by 1) as policies
    """
FUNCTIONS = """
    select p.proname || '(' || pg_get_function_arguments(p.oid) || ') returns ' || pg_get_function_result(p.oid)
           || case p.provolatile when 'i' then ', immutable' when 's' then ', stable' else '' end
           || case when p.proisstrict then ', strict' else '' end
           || case when p.prosecdef then ', with its owner''s rights' else '' end
    from pg_proc p
    where p.pronamespace = %s::regnamespace
    order by 1
    """
TYPES = """
    select t.typname || ' ' || string_agg(e.enumlabel, ', ' order by e.enumsortorder)
    from pg_type t join pg_enum e on e.enumtypid = t.oid where t.typnamespace = %s::regnamespace
    group by t.typname order by 1
    """


def listing(database: psycopg.Connection, schema: str) -> list[str]:
    """What is in the schema, as lines."""
    lines = []
    for oid, name, kind in database.execute(RELATIONS, [schema]).fetchall():
        lines.append(f"{schema}.{name}: {kind}")
        lines += [f"    {part}" for (part,) in database.execute(PARTS, {"table": oid})]
        lines.append("")
    lines += [f"{schema}.{text}" for (text,) in database.execute(FUNCTIONS, [schema])]
    lines += ["", *(f"{schema}.{text}" for (text,) in database.execute(TYPES, [schema]))]
    return lines


def test_schema_has_the_shape_of_the_listing(jmsql_clean_url: str) -> None:
    with psycopg.connect(jmsql_clean_url, options="-c timezone=UTC") as database:
        found = "\n".join([*listing(database, "jmsql"), "", *listing(database, "jmsql_internal")]).rstrip() + "\n"
    if os.environ.get(RENEWAL):
        LISTING.write_text(found)
    assert found.splitlines() == LISTING.read_text().splitlines(), (
        f"{LISTING.name} is renewed by {RENEWAL}=1 python -m pytest {Path(*Path(__file__).parts[-4:])}"
    )


WITHOUT_COMMENT = """
    select c.relname::text from pg_class c
    where c.relnamespace = 'jmsql'::regnamespace and c.relkind = 'v' and obj_description(c.oid, 'pg_class') is null
    union all
    select c.relname || '.' || a.attname from pg_class c join pg_attribute a on a.attrelid = c.oid
    where c.relnamespace = 'jmsql'::regnamespace and c.relkind = 'v' and a.attnum > 0
      and col_description(c.oid, a.attnum) is null
    union all
    select p.oid::regprocedure::text from pg_proc p
    where p.pronamespace = 'jmsql'::regnamespace and obj_description(p.oid, 'pg_proc') is null
    """


def test_every_view_column_and_function_of_the_contract_has_a_comment(jmsql_clean_url: str) -> None:
    with psycopg.connect(jmsql_clean_url) as database:
        assert database.execute(WITHOUT_COMMENT).fetchall() == []
