"""Statements as values, the files that they are written in, and decisions that take several of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg
import pytest

from jmsql.exceptions import JMSException, JMSSecurityException
from jmsql.store.statement import Query, Result, SqlFile, Statement, Steps, fill, in_transaction, row_count, value
from jmsql.store.wire._sync.runner import Runner

FIND = Statement(
    "find", "select queue_id from jmsql_internal.queue where name = %(name)s", "looking up {name!r}", value(int)
)
CREATE = Statement(
    "create", "insert into jmsql_internal.queue (name) values (%(name)s)", "creating {name!r}", row_count
)


class Script(Runner):
    """It answers as it is told, and notes what it is asked."""

    is_idle = True

    def __init__(self, *answers: Result | psycopg.Error, schema: str = "jmsql") -> None:
        super().__init__(schema)
        self.answers = list(answers)
        self.asked: list[tuple[str, object]] = []

    def execute(self, statement: bytes, parameters: Mapping[str, Any]) -> Result:
        self.asked.append((statement.decode(), parameters))
        answer = self.answers.pop(0)
        if isinstance(answer, psycopg.Error):
            raise answer
        return answer

    def sleep(self, seconds: float) -> None:
        raise AssertionError


def found(number: int) -> Result:
    return Result([(number,)], 1)


def test_statement_is_of_the_schema_of_its_runner() -> None:
    script = Script(found(7), schema="shop")
    assert script.run(FIND.bind(name="orders")) == 7
    assert script.asked == [('select queue_id from "shop_internal".queue where name = %(name)s', {"name": "orders"})]


def test_text_is_the_same_object_each_time() -> None:
    assert FIND.encoded("jmsql") is FIND.encoded("jmsql")


def test_percent_sign_in_the_name_of_a_schema_is_no_placeholder() -> None:
    statement = Statement("listen", "listen {schema}; select {channel}, jmsql.f()", "listening", row_count)
    assert statement.encoded("a%'b") == b"""listen "a%%'b"; select 'a%%''b', "a%%'b".f()"""


def test_values_that_belong_to_the_text_travel_with_it() -> None:
    statement = Statement("find", "select %(a)s, %(b)s", "looking", row_count, {"a": 1})
    assert statement.bind(b=2).parameters == {"a": 1, "b": 2}


def test_error_names_the_statements_purpose_and_has_its_cause() -> None:
    refused = psycopg.errors.InsufficientPrivilege("no")
    with pytest.raises(JMSSecurityException, match="looking up 'orders'") as raised:
        Script(refused).run(FIND.bind(name="orders"))
    assert raised.value.__cause__ is refused
    assert raised.value.error_code == "42501"


def find_or_create(name: str) -> Steps[str]:
    try:
        number = yield from FIND.bind(name=name)
    except JMSException as error:
        created = yield from CREATE.bind(name=name)
        return f"created {created} after {error.error_code}"
    return f"found {number}"


def test_steps_get_results_and_return_a_value() -> None:
    assert Script(found(7)).run(find_or_create("orders")) == "found 7"


def test_error_of_a_statement_is_the_decision_s_to_handle() -> None:
    script = Script(psycopg.errors.UndefinedTable("none"), Result([], 1))
    assert script.run(find_or_create("orders")) == "created 1 after 42P01"
    assert len(script.asked) == 2


def test_error_that_a_decision_does_not_handle_is_raised() -> None:
    with pytest.raises(JMSException, match="creating 'orders'"):
        Script(psycopg.errors.UndefinedTable(), psycopg.errors.UndefinedTable()).run(find_or_create("orders"))


def test_statements_are_read_from_a_file_without_comments_and_semicolons() -> None:
    control = SqlFile("control")
    assert control["is_connected"] == "select jmsql_internal.is_connected(%(connection_id)s::bigint)"
    assert "--" not in control["beat"]
    assert control["beat"].startswith("with commit")
    with pytest.raises(KeyError):
        control["no_such_name"]


def test_parts_are_put_where_their_names_stand() -> None:
    assert fill("select {columns} from '{1,2}'", columns="a, b") == "select a, b from '{1,2}'"


def test_query_is_awaited_by_itself() -> None:
    query: Query[int] = FIND.bind(name="orders")
    steps = iter(query)
    assert next(steps) is query


def asked(script: Script) -> list[str]:
    return [statement.split()[0] for statement, _ in script.asked]


def test_steps_that_succeed_in_a_transaction_are_committed() -> None:
    script = Script(Result([], -1), found(7), Result([], -1))
    assert script.run(in_transaction(find_or_create("orders"))) == "found 7"
    assert asked(script) == ["begin", "select", "commit"]


def test_steps_that_fail_in_a_transaction_are_rolled_back() -> None:
    script = Script(Result([], -1), psycopg.errors.InsufficientPrivilege("no"), Result([], -1))
    with pytest.raises(JMSSecurityException, match="looking up 'orders'"):
        script.run(in_transaction(FIND.bind(name="orders")))
    assert asked(script) == ["begin", "select", "rollback"]


def test_lost_connection_has_rolled_back_by_itself() -> None:
    script = Script(Result([], -1), psycopg.OperationalError("the connection is lost"))
    with pytest.raises(JMSException, match="the connection is lost"):
        script.run(in_transaction(FIND.bind(name="orders")))
    assert asked(script) == ["begin", "select"]
