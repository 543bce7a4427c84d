"""Names in SQL: files that are written for the schema `jmsql` serve every schema."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import jmsql
from jmsql.store.identifier import in_schema, quote_identifier

PACKAGE = Path(jmsql.__file__).parent
MIGRATIONS = PACKAGE.parent / "migrations"


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("select from jmsql.queues", 'select from "shop"."queues'),
        ("select jmsql.send(x), jmsql_internal.message.*", 'select "shop".send(x), "shop_internal".message.*'),
        ("join jmsql_internal.queue q", 'join "shop_internal".queue q'),
        ("format('lock table jmsql.%I', name)", "format('lock table shop.%I', name)"),
        ("'all tables in schema jmsql_internal'", "'all tables in schema shop_internal'"),
        ("'jmsql.queues'::regclass", "'shop.queues'::regclass"),
        ("'jmsql.queues'::pg_catalog.regclass", "'shop.queues'::pg_catalog.regclass"),
        ("nextval('jmsql_internal.claim'::regclass)", "nextval('shop_internal.claim'::regclass)"),
        ("'jmsql_internal'::regnamespace", "'shop_internal'::regnamespace"),
        ("to_regnamespace('jmsql_internal')::oid", "to_regnamespace('shop_internal')::oid"),
        ("to_regclass('jmsql_internal.message')", "to_regclass('shop_internal.message')"),
        ("to_regclass('jmsql_internal.' || name)", "to_regclass('shop_internal.' || name)"),
    ],
)
def test_qualified_names_are_of_the_schema(written: str, read: str) -> None:
    assert in_schema(written, "shop").replace('"', "") == read.replace('"', "")


@pytest.mark.parametrize(
    "text", ["set_config('jmsql.limit', '1', true)", "notmyjmsql.x", "a.jmsql.b", "jmsql, x", "'jmsql.x'::text"]
)
def test_all_else_stays(text: str) -> None:
    assert in_schema(text, "shop") == text


def test_no_file_names_the_internal_schema_otherwise() -> None:
    """A name that stays as it is leads to the schema `jmsql`, or to none: nothing fails, and nothing is done."""
    files = [path for place in (MIGRATIONS, PACKAGE) for path in place.rglob("*.sql")]
    assert len(files) > 40
    for path in files:
        code = re.sub("--.*", "", path.read_text()).replace("{", "")  # a name that is filled in later
        assert "jmsql_internal" not in in_schema(code, "shop"), path.name


def test_name_with_a_quote_is_quoted() -> None:
    assert in_schema("jmsql.queues", 'a"b') == '"a""b".queues'
    assert quote_identifier('a"b') == '"a""b"'
    assert in_schema("'jmsql.queues'::regclass", "it's") == "'\"it''s\".queues'::regclass"
