"""Which statements leave something on their connection."""

from __future__ import annotations

import pytest

from jmsql.store.wire.application_sql import effects_of


@pytest.mark.parametrize(
    "statement",
    [
        "set role shop",
        " SET SESSION AUTHORIZATION shop",
        "set\nstatement_timeout = '1s'",
        "select 1; set search_path = shop",
        "/* why */ reset role",
        "-- why\nset role shop",
        "/* why */ -- and\n listen news",
        "select 1; -- why\ncall work()",
        "/* a /* b */ c */ reset all",
        "select set_config('shop.tenant', '5', false)",
        "select set_config('shop.tenant', %(tenant)s, %(until_the_end)s)",
        "select set_config('shop.tenant', '5', true), set_config('shop.user', '7', false)",
        "select pg_advisory_lock(5)",
        "select pg_try_advisory_lock_shared (5)",
        "listen news",
        "create temp table shipment (goods text)",
        "create local temporary table shipment (goods text)",
        "prepare find as select 1",
        "declare all_goods cursor with hold for select 1",
        "do $$ begin perform 1; end $$",
    ],
)
def test_a_statement_with_a_lasting_effect_is_recognised(statement: str) -> None:
    assert effects_of(statement).outlives_transaction


@pytest.mark.parametrize(
    "statement",
    [
        "select 1",
        "set local role shop",
        "set transaction isolation level serializable",
        "set constraints all deferred",
        "select set_config('shop.tenant', '5', true)",
        "SELECT set_config('shop.tenant', %(tenant)s, TRUE)",
        "select set_config('shop.tenant', $1, true)",
        "update orders set state = 'shipped'",
        "update orders\nset state = 'shipped'",
        "select pg_advisory_xact_lock(5)",
        "insert into settings values ('reset')",
        "select 1 -- ; reset all",
        "prepare transaction 'a'",
    ],
)
def test_a_statement_whose_effect_ends_with_the_transaction_is_recognised(statement: str) -> None:
    assert not effects_of(statement).outlives_transaction


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("set local role shop", True),
        ("select 1; SET\nROLE shop", True),
        ("/* why */ set session authorization shop", True),
        ("set local session_authorization = shop", True),
        ("reset role", True),
        ("-- as shop\nset role shop", True),
        ("-- set role shop\nselect 1", False),
        ("select set_config('role', 'shop', true)", True),
        ("select set_config('shop.tenant', '5', true), set_config( 'session_authorization', 'shop', true)", True),
        ("select set_config(%(name)s, 'shop', true)", True),
        ("do $$ begin set local role shop; end $$", True),
        ("call log_in('shop')", True),
        ("select role from member", False),
        ("update member\nset role = 'owner'", False),
        ("select set_config('shop.tenant', '5', true)", False),
        ("set local statement_timeout = 5", False),
    ],
)
def test_a_statement_that_may_change_the_role_is_recognised(statement: str, expected: bool) -> None:
    assert effects_of(statement).changes_role is expected
