"""No selector's SQL raises, whatever the selector's size and the table's content."""

from __future__ import annotations

from random import Random

import pytest

from jmsql.messages import Message
from jmsql.selectors import Selector, SelectorSQL
from jmsql.selectors.builder import MAXIMUM_PATTERN, MAXIMUM_WILDCARDS
from jmsql.selectors.checker import MAXIMUM_DEPTH
from jmsql.selectors.parser import MAXIMUM_LENGTH
from tests.integration.selectors.conftest import MessageTable
from tests.integration.selectors.generation import PROPERTY_NAMES, SelectorGenerator, quoted

pytestmark = pytest.mark.usefixtures("maintenance_suspended")

FOREIGN_JSON = (
    *("null", "{}", "[]", "[[]]", '["foo"]', '["NaN", 1]', '{"a": 1}', '["Infinity"]', "[1]", "[null]", '"\\u0001"'),
    *("1e400", "-1e400", "1e-400", "-1e-400", "1e131071", "1e-16383", "9223372036854775808", "-9223372036854775809"),
    *(
        "1.7976931348623158e308",
        "1.7976931348623159e308",
        "0.0",
        "-0.0",
        "0.10000000000000000555",
        "1234567890123456.5",
    ),
)


def test_properties_that_no_producer_writes_raise_nothing(message_table: MessageTable) -> None:
    """A trigger or another language may have written them."""
    random = Random(1)
    for _ in range(200):
        members = (f'"{name}": {random.choice(FOREIGN_JSON)}' for name in PROPERTY_NAMES)
        message_table.insert_properties("{" + ", ".join(members) + "}")
    message_table.insert_properties("{}")
    generator = SelectorGenerator(random)
    for _ in range(300):
        message_table.evaluate(generator.selector())


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("(" * 500 + "n = 1" + ")" * 500, id="500 parentheses"),
        pytest.param("(" * 30_000 + "n = 1" + ")" * 30_000, id="30,000 parentheses"),
        pytest.param(" or ".join(["n = 2"] * 7000 + ["n = 1"]), id="chain of OR"),
        pytest.param(" and ".join(["n=1"] * 8100), id="chain of AND"),
        pytest.param("n = 1 and color not in (" + ",".join(["''"] * 20_000) + ")", id="long list"),
        pytest.param(f"n = 1 and color <> {quoted('x' * 65_000)}", id="long string"),
        pytest.param("n" * 60_000 + " is null", id="long name"),
        pytest.param("not " * (2 * ((MAXIMUM_DEPTH - 2) // 2)) + "n = 1", id="deepest NOT"),
        pytest.param("n = " + "-" * (MAXIMUM_DEPTH - 2) + "n", id="deepest sign"),
        pytest.param(f"{MAXIMUM_DEPTH - 1} = n" + " + n" * (MAXIMUM_DEPTH - 2), id="deepest sum"),
        pytest.param("n = 1 and s is not null or " + "n + n = 3 or " * 4000 + "n = 1", id="many functions"),
    ],
)
def test_the_largest_selectors_work(message_table: MessageTable, text: str) -> None:
    message = Message()
    message.set_int_property("n", 1)
    message.set_string_property("color", "blue")
    message_table.insert(message)
    selector = Selector.parse(text)
    assert selector is not None
    assert len(text) <= MAXIMUM_LENGTH
    assert message_table.evaluate(text) == [True]
    assert selector.matches(message)


PATTERNS = (
    "%a" * (MAXIMUM_WILDCARDS - 1) + "%b",
    "%ab" * (MAXIMUM_WILDCARDS - 1) + "%c",
    "%a" + "_" * (MAXIMUM_WILDCARDS - 2) + "b%",
    "%" + "".join("a_%" for _ in range(MAXIMUM_WILDCARDS // 2 - 1)),
    "_" * MAXIMUM_WILDCARDS,
    "\0" * (MAXIMUM_PATTERN - 2),
    "%" + "ab" * (MAXIMUM_PATTERN // 2 - 2) + "%",
    "%_" * (MAXIMUM_WILDCARDS // 2) + "\ufffe" * (MAXIMUM_PATTERN - MAXIMUM_WILDCARDS - 2),
    "".join(chr(0x4E00 + number) for number in range(MAXIMUM_PATTERN - 2)),
    "%" + "%".join(chr(0xD800 + number) * 20 for number in range(MAXIMUM_WILDCARDS - 6)),
)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_largest_patterns_work(message_table: MessageTable, pattern: str) -> None:
    """On ordinary text, and on text with characters that are written in two; never trying all ways to match."""
    message_table.connection.execute("set local statement_timeout = '30s'")
    selector = Selector.parse(f"s like {quoted(pattern)}")
    assert selector is not None
    filled = pattern.replace("%", "").replace("_", "x")
    texts = (filled, filled + "y", filled + "\0", "\0" + filled, filled * 50, "a" * 100_000, "\0" * 10_000, "")
    expected = []
    for text in texts:
        message = Message()
        message.set_string_property("s", text)
        message_table.insert(message)
        expected.append(selector.matches(message))
    assert message_table.evaluate(selector.text) == expected
    assert expected[0]


def test_a_condition_has_more_literals_than_a_statement_has_parameters(message_table: MessageTable) -> None:
    """As the selectors of many subscriptions together have."""
    for number in (1, 69_999, 70_000):
        message_table.insert_properties({"n": number, "s": "it's"})
    count = 70_000
    comparisons = (f"m.properties->'n' = %(selector_{number})s::jsonb" for number in range(count))
    many: dict[str, object] = {f"selector_{number}": str(number) for number in range(count)}
    others = {f"selector_{count}": "s", f"selector_{count + 1}": "{it's,x}"}
    chosen = f"m.properties->>%(selector_{count})s::text = any (%(selector_{count + 1})s::text[])"
    packed = SelectorSQL(f"(({' or '.join(comparisons)}) and {chosen})", many | others).packed()
    assert message_table.evaluate_sql(packed) == [True, True, False]


def test_a_condition_can_be_prepared(message_table: MessageTable) -> None:
    """All types are stated, so that the server need not guess them from a first use."""
    random = Random(2)
    generator = SelectorGenerator(random)
    for number in range(100):
        selector = Selector.parse(generator.selector())
        assert selector is not None
        sql = message_table.condition(selector)
        placeholders = {name: f"${position}" for position, name in enumerate(sql.parameters, 1)}
        statement = f"prepare p{number} as select from message m where {sql.condition % placeholders}"
        with message_table.connection.transaction():
            message_table.connection.execute(f'set local search_path = "{message_table.schema}_internal"')
            message_table.connection.execute(statement)


def test_no_function_depends_on_the_search_path(message_table: MessageTable) -> None:
    message = Message()
    message.set_int_property("n", 2)
    message_table.insert(message)
    message_table.connection.execute("set local search_path = pg_temp")
    assert message_table.evaluate("n * 2.5 / 3 - 1 < n + 9 and -n <> +n") == [True]


def test_results_do_not_depend_on_how_numbers_are_shown(message_table: MessageTable) -> None:
    """The setting extra_float_digits would else round what one function hands to the next."""
    message = Message()
    message.set_double_property("x", 0.1)
    message_table.insert(message)
    message_table.connection.execute("set local extra_float_digits = -15")
    assert message_table.evaluate("x + 0.2 = 0.30000000000000004 and x + 0.2 <> 0.3") == [True]


def test_an_index_on_a_property_serves_an_equality(message_table: MessageTable) -> None:
    connection = message_table.connection
    connection.execute(f"create index on \"{message_table.schema}_internal\".message ((properties->'color'))")
    connection.execute("set local enable_seqscan = off")
    for text in ("color = 'blue'", "color in ('blue', 'red')", "color = 5", "color > 5 and color < 9", "color"):
        selector = Selector.parse(text)
        assert selector is not None
        sql = message_table.condition(selector)
        query = f'explain select from "{message_table.schema}_internal".message m where {sql.condition}'
        plan = "\n".join(row[0] for row in connection.execute(query, sql.parameters))
        assert "Index Cond" in plan, plan
