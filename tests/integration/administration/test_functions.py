"""Functions of SQL with wrong arguments: they fail with a SQLSTATE of jmsql, or mean what they mean in Python."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

import psycopg
import pytest

from jmsql import JMSException, Queue, Session, Topic
from jmsql.admin import Administration
from jmsql.values.destinations import require_destination

NO_DESTINATION = "JMS01"
WRONG_VALUE = "JMS03"
LONG = "x" * 256
RESERVED = "temporary-00000000-0000-0000-0000-000000000000"
ALL_TIME = datetime(1970, 1, 1, tzinfo=UTC)
COLUMNS = (
    "queue, topic, priority, expires_at is null, delivery_time is null, delivery_mode, correlation_id, reply_to, "
    "jms_type, group_id, properties, type, body"
)

Python = Callable[[Administration, Session], object]


class Refused(NamedTuple):
    """A call of SQL, the SQLSTATE with which it fails, and the same in Python, which fails too."""

    sql: str
    state: str
    python: Python | None = None


def send(
    destination: str,
    text: str | None = "x",
    properties: dict[str, Any] | None = None,
    reply_to: str | None = None,
    **options: Any,
) -> Python:
    """Send as a program in Python does what the arguments of the function say."""

    def sending(_: Administration, session: Session) -> None:
        producer = session.create_producer(require_destination(destination))
        message = session.create_text_message(text)
        for name, value in (properties or {}).items():
            message.properties[name] = value
        if reply_to is not None:
            message.jms_reply_to = require_destination(reply_to)
        message.jms_correlation_id = options.pop("correlation_id", None)
        message.jms_type = options.pop("jms_type", None)
        producer.delivery_delay = options.pop("delivery_delay", 0)
        producer.send(message, **options)

    return sending


WRONG_DESTINATIONS: list[str | None] = [None, "", LONG, "queue://", "topic://", "nothing://orders", "temp-queue://gone"]
MISSING = ["gone", "queue://gone", "queue://queue://orders", "queue://topic://prices", "queue://nothing://orders"]


def literal(value: str | None) -> str:
    return "null" if value is None else f"'{value}'"


def with_argument(call: Callable[[Administration, Any], object], argument: object) -> Python:
    return lambda administration, _: call(administration, argument)


def everywhere() -> Iterator[Refused]:
    """Each function that takes a destination, with all that is none, and with those that are not there."""
    of_any: dict[str, Callable[[Administration, Any], object]] = {
        "alter_destination({}, '{{\"paused\": true}}')": lambda a, d: a.alter(d, paused=True),
        "pause({})": lambda a, d: a.pause(d),
        "resume({})": lambda a, d: a.resume(d),
        "delete_destination({})": lambda a, d: a.delete(d),
        "grant_access({}, 'pg_monitor', 'send')": lambda a, d: a.grant(d, "pg_monitor", send=True),
        "revoke_access({}, 'pg_monitor', 'send')": lambda a, d: a.revoke(d, "pg_monitor", send=True),
    }
    of_queues: dict[str, Callable[[Administration, Any], object]] = {
        "move({}, 'other')": lambda a, d: a.move(d, "other"),
        "move('orders', {})": lambda a, d: a.move("orders", d),
        "purge({})": lambda a, d: a.purge(d),
        "deliver({})": lambda a, d: a.deliver(d),
        "depth({})": lambda a, d: a.depth(d),
        "retry({})": lambda a, d: a.retry(d),
        "replay('orders', {}, '-infinity')": lambda a, d: a.history.replay("orders", d, since=ALL_TIME),
        "alter_destination('orders', jsonb_build_object('expiry_queue', coalesce({}, '')))": (
            lambda a, d: a.alter("orders", expiry_queue=d or "")
        ),
    }
    for text, call in (of_any | of_queues).items():
        for destination in [*WRONG_DESTINATIONS, *MISSING]:
            yield Refused(text.format(literal(destination)), NO_DESTINATION, with_argument(call, destination))
    for text, call in of_queues.items():
        yield Refused(text.format("'topic://prices'"), NO_DESTINATION, with_argument(call, "topic://prices"))
    for destination in WRONG_DESTINATIONS:
        for body in ("'x'::text", "'{}'::jsonb"):
            yield Refused(f"send({literal(destination)}, {body})", NO_DESTINATION, send(destination))  # type: ignore[arg-type]
    for destination in WRONG_DESTINATIONS[:5]:
        yield Refused(
            f"replay({literal(destination)}, 'orders', '-infinity')",
            NO_DESTINATION,
            with_argument(lambda a, d: a.history.replay(d or "", "orders", since=ALL_TIME), destination),
        )
    for name in (None, "", LONG, RESERVED):
        yield Refused(
            f"create_queue({literal(name)})", NO_DESTINATION, with_argument(Administration.create_queue, name)
        )
        yield Refused(
            f"create_topic({literal(name)})", NO_DESTINATION, with_argument(Administration.create_topic, name)
        )


def settings() -> Iterator[Refused]:
    for wrong in ("null", "'null'", "'[]'", "'5'", "'\"paused\"'"):
        for function in ("create_queue('orders', {})", "create_topic('prices', {})", "alter_destination('orders', {})"):
            yield Refused(function.format(wrong), WRONG_VALUE)
    of: dict[str, list[Any]] = {
        "paused": ["yes", 1, [], {}],
        "history": ["on", 0],
        "history_days": ["5", 0, -1, 5.5, 10**30, True],
        "maximum_deliveries": ["5", 0, -1, 2**31],
        "redelivery_delay": ["1", -1, True, [], 10**400],
        "redelivery_multiplier": ["2", 0, -1],
        "redelivery_jitter": ["0", -1, 2],
        "visibility_timeout": ["5", 0, -1],
        "expiry_queue": [5, True, ["other"], {}],
        "dead_letter_queue": [5, True],
        "expiry_queue_id": [1],
        "queue_id": [1],
        "name": ["x"],
        "": [1],
    }
    for name, values in of.items():
        for value in values:
            yield Refused(
                f"alter_destination('orders', '{json.dumps({name: value})}')",
                WRONG_VALUE,
                with_argument(lambda a, given: a.alter("orders", **given), {name: value}),
            )
    yield Refused(
        "alter_destination('orders', '{\"expiry_queue\": \"queue://orders\"}')",
        WRONG_VALUE,
        lambda a, _: a.alter("orders", expiry_queue="orders"),
    )
    yield Refused("delete_destination('orders', null)", WRONG_VALUE)
    for days in (-1, 367):
        yield Refused(f"keep_rates({days})", WRONG_VALUE, with_argument(lambda a, d: a.keep_rates(d), days))
    yield Refused("keep_rates(null)", WRONG_VALUE)


def sends() -> Iterator[Refused]:
    for priority in (-1, 10, 2**31 - 1):
        yield Refused(f"send('orders', 'x', priority => {priority})", WRONG_VALUE, send("orders", priority=priority))
    yield Refused("send('orders', 'x', priority => null)", WRONG_VALUE)
    yield Refused("send('orders', 'x', time_to_live => '-1 s')", WRONG_VALUE, send("orders", time_to_live=-1))
    yield Refused("send('orders', 'x', delivery_delay => '-1 s')", WRONG_VALUE, send("orders", delivery_delay=-1))
    yield Refused(
        "send('orders', 'x', delivery_delay => '101 years')",
        WRONG_VALUE,
        send("orders", delivery_delay=timedelta(days=101 * 366)),
    )
    for reply_to in ("", LONG, "queue://", "nothing://orders"):
        python = send("orders", reply_to=reply_to)
        yield Refused(f"send('orders', 'x', reply_to => '{reply_to}')", NO_DESTINATION, python)
    yield Refused(f"send('{RESERVED}', 'x')", NO_DESTINATION, send(RESERVED))
    yield Refused(f"send('topic://{RESERVED}', 'x')", NO_DESTINATION, send(f"topic://{RESERVED}"))
    for wrong in ("'null'", "'[]'", "'5'", "'\"text\"'"):
        yield Refused(f"send('orders', 'x', {wrong})", WRONG_VALUE)
    properties: list[dict[str, Any]] = [
        {"": 1},
        {"two words": 1},
        {"5": 1},
        {"null": 1},
        {"Between": 1},
        {"JMSType": "x"},
        {"JMSXDeliveryCount": 1},
        {"JMS_jmsql_DeadLetterReason": "x"},
        {"JMSXGroupID": "g", "JMSX": 1},
        {"list": []},
        {"object": {}},
        {"large": 2**63},
        {"small": -(2**63) - 1},
        {"huge": 10**400},
        {"JMSXGroupID": 5},
        {"JMSXGroupID": True},
        {"JMSXGroupSeq": 0},
        {"JMSXGroupSeq": 2**31},
        {"JMSXGroupSeq": "1"},
        {"JMSXGroupSeq": 1.5},
    ]
    for given in properties:
        yield Refused(f"send('orders', 'x', '{json.dumps(given)}')", WRONG_VALUE, send("orders", properties=given))
    yield Refused("send('orders', 'x', '{\"digits\": 1" + "0" * 310 + ".5}')", WRONG_VALUE)
    yield Refused("send('orders', 'x', '{\"nothing\": null}')", WRONG_VALUE)


def others() -> Iterator[Refused]:
    yield Refused("cancel(null)", WRONG_VALUE)
    for call in (
        "move('orders', 'other', max_messages => -1)",
        "purge('orders', max_messages => -1)",
        "retry('orders', -1)",
        "deliver('orders', max_messages => -1)",
    ):
        yield Refused(call, WRONG_VALUE)
    yield Refused("depth('orders', -1)", WRONG_VALUE, lambda a, _: a.depth("orders", -1))
    yield Refused("depth('orders', null)", WRONG_VALUE)
    for nowhere in ("null", "'gone'", "'topic://prices'"):
        yield Refused(f"next_due({nowhere})", NO_DESTINATION)
    # What array_agg makes of nothing must not choose all.
    yield Refused("move('orders', 'other', (select array_agg(sequence) from jmsql.messages where false))", WRONG_VALUE)
    yield Refused("purge('orders', (select array_agg(sequence) from jmsql.messages where false))", WRONG_VALUE)
    yield Refused("move('orders', 'queue://orders')", WRONG_VALUE, lambda a, _: a.move("orders", "queue://orders"))
    for wrong in ("null", "'-infinity', null", "'-infinity', keep_ids => null", "'-infinity', outcomes => null"):
        yield Refused(f"replay('orders', 'other', {wrong})", WRONG_VALUE)
    for outcomes in ("{lost}", "{acknowledged,lost}", "{NULL}"):
        yield Refused(f"replay('orders', 'other', '-infinity', outcomes => '{outcomes}')", WRONG_VALUE)
    for function in ("grant_access", "revoke_access"):
        for role in ("null", "''", "'nobody'"):
            yield Refused(f"{function}('orders', {role}, 'send')", WRONG_VALUE)
        for actions in ("null", "''", "'administer'", "'send', null", "variadic '{}'", "variadic null"):
            yield Refused(f"{function}('orders', 'pg_monitor', {actions})", WRONG_VALUE)
    for source in ("null", "gen_random_uuid()"):
        yield Refused(f"forget_spark_source({source})", WRONG_VALUE)


REFUSED = [*everywhere(), *settings(), *sends(), *others()]

ACCEPTED: dict[str, Python] = {
    "send('orders', 'x')": send("orders"),
    "send('queue://orders', 'x')": send("queue://orders"),
    "send('queue://queue://orders', 'x')": send("queue://queue://orders"),
    "send('queue://topic://prices', 'x')": send("queue://topic://prices"),
    "send('new one', 'x')": send("new one"),
    "send('It''s \"this\".that', 'x')": send('It\'s "this".that'),
    f"send('{'ü' * 255}', 'x')": send("ü" * 255),
    "send('orders', null)": send("orders", None),
    "send('orders', null::jsonb)": send("orders", None),
    "send('orders', '')": send("orders", ""),
    "send('orders', 'x', '{}')": send("orders"),
    "send('orders', 'x', time_to_live => '0')": send("orders", time_to_live=0),
    "send('orders', 'x', time_to_live => '200 years')": send("orders", time_to_live=math.inf),
    "send('orders', 'x', time_to_live => '1 h')": send("orders", time_to_live=3600),
    "send('orders', 'x', delivery_delay => '0')": send("orders", delivery_delay=0),
    "send('orders', 'x', delivery_delay => '1 h', time_to_live => '2 h')": send(
        "orders", delivery_delay=3600, time_to_live=7200
    ),
    "send('orders', 'x', reply_to => 'answers')": send("orders", reply_to="answers"),
    "send('orders', 'x', reply_to => 'topic://answers')": send("orders", reply_to="topic://answers"),
    "send('orders', 'x', reply_to => 'queue://queue://answers')": send("orders", reply_to="queue://queue://answers"),
    "send('orders', 'x', correlation_id => '', jms_type => '')": send("orders", correlation_id="", jms_type=""),
    """send('orders', 'x', '{"JMSXGroupID": "g", "JMSXGroupSeq": 1, "JMS_b": 2, "größe": 1.5, "yes": true}')""": send(
        "orders", properties={"JMSXGroupID": "g", "JMSXGroupSeq": 1, "JMS_b": 2, "größe": 1.5, "yes": True}
    ),
    "send('orders', 'x', '{\"most\": 9223372036854775807, \"least\": -9223372036854775808}')": send(
        "orders", properties={"most": 2**63 - 1, "least": -(2**63)}
    ),
    "send('topic://prices', 'x')": send("topic://prices"),
    "create_queue('queue://orders')": lambda a, s: a.create_queue("queue://orders"),
    "create_topic('topic://prices')": lambda a, s: a.create_topic("topic://prices"),
    "move('queue://orders', 'queue://other', max_messages => 0)": lambda a, s: a.move(
        "queue://orders", "queue://other", limit=0
    ),
    "depth('queue://orders', 0)": lambda a, s: a.depth("queue://orders", 0),
    "purge('queue://orders')": lambda a, s: a.purge("queue://orders"),
    "purge('orders', '{}')": lambda a, s: a.purge("orders", "nothing = 1"),
    "retry('queue://orders')": lambda a, s: a.retry("queue://orders"),
    "replay('gone', 'orders', '-infinity')": lambda a, s: a.history.replay("gone", "orders", since=ALL_TIME),
    "replay('orders', 'queue://other', '-infinity', outcomes => '{}')": (
        lambda a, s: a.history.replay("orders", "queue://other", since=ALL_TIME, outcomes=[])
    ),
    "alter_destination('queue://orders', '{\"expiry_queue\": \"queue://other\"}')": (
        lambda a, s: a.alter("queue://orders", expiry_queue=Queue("other"))
    ),
    "pause('topic://prices')": lambda a, s: a.pause(Topic("prices")),
    "delete_destination('queue://orders', true)": lambda a, s: a.delete("queue://orders", force=True),
}


@pytest.fixture
def sql(administration: Administration, jmsql_clean_url: str) -> Iterator[psycopg.Connection]:
    """A connection of somebody who knows SQL alone, to a store with two queues and a topic with a subscription."""
    prepare(administration)
    with psycopg.connect(jmsql_clean_url, autocommit=True) as connection:
        yield connection


def prepare(administration: Administration) -> None:
    administration.create_queue("orders")
    administration.create_queue("other")
    administration.create_topic("prices")
    administration.subscribe("prices", "all", shared=True)


def contents(sql: psycopg.Connection) -> list[Any]:
    return [
        *sql.execute(f"select {COLUMNS} from jmsql.messages order by sequence".encode()),
        *sql.execute("select kind, destination, settings from jmsql.destinations order by kind, destination"),
    ]


FUNCTIONS = sorted({case.sql.partition("(")[0] for case in REFUSED})


@pytest.mark.parametrize("function", FUNCTIONS)
def test_wrong_arguments_are_refused_with_an_sqlstate_and_by_python(
    sql: psycopg.Connection, administration: Administration, session: Session, function: str
) -> None:
    before = contents(sql)
    accepted = []
    for case in REFUSED:
        if case.sql.startswith(f"{function}("):
            if (state := state_of(sql, case.sql)) != case.state:
                accepted.append((case.sql[:200], state))
            if case.python is not None and not is_refused(partial(case.python, administration, session)):
                accepted.append((case.sql[:200], "accepted by Python"))
    assert accepted == []
    assert contents(sql) == before


def state_of(sql: psycopg.Connection, call: str) -> str | None:
    """Return the SQLSTATE with which a function fails, or None."""
    try:
        sql.execute(f"select jmsql.{call}".encode())
    except psycopg.Error as error:
        return error.sqlstate
    return None


def is_refused(call: Callable[[], object]) -> bool:
    try:
        call()
    except (JMSException, ValueError, TypeError):
        return True
    return False


@pytest.mark.parametrize(("call", "python"), [pytest.param(*each, id=each[0][:80]) for each in ACCEPTED.items()])
def test_sql_functions_have_the_effects_of_their_python_methods(
    sql: psycopg.Connection, administration: Administration, session: Session, call: str, python: Python
) -> None:
    untouched = contents(sql)
    sql.execute("begin")
    sql.execute(f"select jmsql.{call}".encode())
    of_sql = contents(sql)
    sql.execute("rollback")
    assert contents(sql) == untouched
    python(administration, session)
    assert contents(sql) == of_sql


def test_an_infinite_time_to_live_is_for_ever(sql: psycopg.Connection) -> None:
    if sql.info.server_version < 170000:
        with pytest.raises(psycopg.errors.InvalidDatetimeFormat):
            sql.execute("select interval 'infinity'")
        return
    sql.execute("select jmsql.send('orders', 'x', time_to_live => 'infinity')")
    assert sql.execute("select expires_at, state from jmsql.messages").fetchall() == [(None, "ready")]
    for wrong in ("time_to_live => '-infinity'", "delivery_delay => 'infinity'", "delivery_delay => '-infinity'"):
        assert state_of(sql, f"send('orders', 'x', {wrong})") == WRONG_VALUE


def test_a_message_beyond_the_largest_is_refused(sql: psycopg.Connection) -> None:
    assert state_of(sql, "send('orders', repeat('x', 256 * 1024 * 1024 + 1))") == WRONG_VALUE


def test_each_function_has_its_wrong_arguments_here(sql: psycopg.Connection) -> None:
    functions = sql.execute(
        "select distinct proname::text from pg_proc where pronamespace = 'jmsql'::regnamespace and pronargs > 0"
    )
    assert sorted(name for (name,) in functions) == FUNCTIONS


def test_a_topic_is_made_by_a_send_only_where_automatic_creation_is_on(
    sql: psycopg.Connection, administration: Administration
) -> None:
    sql.execute("select jmsql.send('topic://news', 'x')")
    assert administration.destination("topic://news").kind == "topic"
    administration.set_automatic_creation(enabled=False)
    try:
        assert {state_of(sql, f"send('{each}', 'x')") for each in ("topic://others", "others")} == {NO_DESTINATION}
    finally:
        administration.set_automatic_creation(enabled=True)
