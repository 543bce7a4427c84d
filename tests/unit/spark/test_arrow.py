from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from json import dumps
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    IntegerType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    TimeType,
    VariantType,
)

from jmsql import JMSException
from jmsql.messages import Byte, Float, Long, Value
from jmsql.messages.types.typed_json import write_object
from jmsql.spark.columns.arrow import Shaper
from jmsql.spark.columns.schema import check_read_schema, shaper
from jmsql.spark.options import Options
from jmsql.spark.writing.outgoing import OutgoingMessages
from jmsql.values.postgresql_text import to_postgresql
from tests.unit.messages.rows import as_jsonb_prints
from tests.unit.spark.test_outgoing import PROPERTY
from tests.unreadable_messages import NESTED

PROPERTIES = StructType(
    [
        StructField(
            "properties",
            MapType(
                StringType(),
                StructType.fromJson(
                    {
                        "type": "struct",
                        "fields": [
                            {"name": name, "type": kind, "nullable": True, "metadata": {}}
                            for name, kind in (
                                ("type", "string"),
                                ("boolean", "boolean"),
                                ("long", "long"),
                                ("double", "double"),
                                ("string", "string"),
                            )
                        ],
                    }
                ),
            ),
        )
    ]
)


def read(*rows: tuple[str | None, str | None]) -> list[dict[str, Any]]:
    schema = pa.schema([("properties", pa.string()), ("property_types", pa.string())])
    batch = pa.RecordBatch.from_pylist([{"properties": text, "property_types": types} for text, types in rows], schema)
    (shaped,) = shaper(PROPERTIES, Options.read({})).shape([batch])
    return [dict(row["properties"]) for row in shaped.to_pylist()]


def value(kind: str, **given: object) -> dict[str, object]:
    return {"type": kind, "boolean": None, "long": None, "double": None, "string": None, **given}


def json(text: str) -> dict[str, object]:
    return value("json", string=text)


PLAIN = ('{"a": 1, "b": 5000000000, "c": 1.0, "d": true, "e": "x"}', None)
PLAIN_VALUES = {
    "a": value("int", long=1),
    "b": value("long", long=5_000_000_000),
    "c": value("double", double=1.0),
    "d": value("boolean", boolean=True),
    "e": value("string", string="x"),
}


@pytest.mark.parametrize(
    ("other", "read_as"),
    [
        ((None, None), {}),
        (('{"n": 1}', '{"n": "byte"}'), {"n": value("byte", long=1)}),
        (('{"n": ["NaN"]}', '{"n": "float", "z": "null"}'), {"n": value("float", double=None), "z": value("null")}),
        (('{"n": "\ufffe0"}', None), {"n": value("string", string="\0")}),
        (('{"n": "["}', None), {"n": value("string", string="[")}),
        (('{"n": "\ufffe\U0010f800"}', None), {"n": value("string", string="?")}),
        # Stored by other programs.
        (
            ('{"a": 1, "n": {"b": [1.5, "\ufffe0"]}}', None),
            {"a": value("int", long=1), "n": json('{"b": [1.5, "\\u0000"]}')},
        ),
        (('{"a": 1, "n": 9223372036854775808}', None), {"a": value("int", long=1), "n": json("9223372036854775808")}),
        (('{"a": 1, "n": "x"}', '{"a": "byte", "n": "byte"}'), {"a": value("byte", long=1), "n": json('"x"')}),
        (
            ('{"a": 1, "n": 1}', '{"a": 5, "n": "novel", "z": "null"}'),
            {"a": json("1"), "n": json("1"), "z": value("null")},
        ),
        (('{"a": 1, "n": "x"}', '{"n": "bytes"}'), {"a": value("int", long=1), "n": json('"x"')}),
        (
            ('{"n": "eA==", "c": "x"}', '{"n": "bytes", "c": "char"}'),
            {"n": value("bytes", string="eA=="), "c": value("char", string="x")},
        ),
        ((f'{{"a": 1, "n": {NESTED}}}', None), {"": json(f'{{"a": 1, "n": {NESTED}}}')}),
    ],
)
def test_properties_are_the_same_with_whatever_else_they_are_read(
    other: tuple[str | None, str | None], read_as: dict[str, Any]
) -> None:
    first, second = read(PLAIN, other)
    assert first == PLAIN_VALUES
    for found in second.values():
        if found["double"] is not None and found["double"] != found["double"]:
            found["double"] = None  # NaN
    assert second == read_as


names = st.sampled_from(["color", "weight", "Größe", "$", "_x", "JMSXGroupID"])
plain_values = st.one_of(
    st.booleans(),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**63), 2**63 - 1).map(Long),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=10),
    st.sampled_from(["2026-11-21", "2026-11-21T08:00:00Z", "1", '"weight": 1,', "[", "null"]),
)
all_values = plain_values | st.one_of(
    st.none(), st.integers(-128, 127).map(Byte), st.floats(width=32).map(Float), st.floats()
)


def rows_of(values: st.SearchStrategy[Value]) -> st.SearchStrategy[list[dict[str, Value]]]:
    return st.lists(st.dictionaries(names, values, max_size=4), min_size=1, max_size=6)


@settings(deadline=None)
@given(st.sampled_from([plain_values, all_values]).flatmap(rows_of))
def test_properties_that_are_parsed_at_once_are_those_that_are_read_one_by_one(rows: list[dict[str, Value]]) -> None:
    texts = [write_object(row, omit_nulls=True) for row in rows]
    printed = [(None if text == "{}" else as_jsonb_prints(text), types) for text, types in texts]
    one_by_one = [read((text, types or "{}"))[0] for text, types in printed]  # given types, it takes the slow way
    assert [sorted(row.items()) for row in map(shown, read(*printed))] == [
        sorted(row.items()) for row in map(shown, one_by_one)
    ]


def shown(properties: dict[str, Any]) -> dict[str, str]:
    """Text that tells all values apart, and NaN from nothing else."""
    return {name: repr(found) for name, found in properties.items()}


some_text = st.text(st.characters(exclude_characters="\\"))
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | some_text,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(some_text, inner, max_size=2),
    max_leaves=3,
)
any_types = st.sampled_from(["byte", "short", "long", "float", "char", "bytes", "null", "novel"]) | anything


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.dictionaries(names | st.just("\ud800"), anything), st.dictionaries(names, any_types)), min_size=1
    )
)
def test_values_stored_by_other_programs_are_read(rows: list[tuple[dict[str, Any], dict[str, Any]]]) -> None:
    found = read(*((stored(properties), stored(types)) for properties, types in rows))
    for (properties, types), row in zip(rows, found, strict=True):
        there = {name.replace("\ud800", "?") for name, value in properties.items() if value is not None}
        assert there <= row.keys() <= {*properties, *types, "?"}


def stored(members: dict[str, Any]) -> str | None:
    """PostgreSQL's text of an object with any characters."""
    text = dumps(members, ensure_ascii=False).replace("\\u0000", "\0")
    return as_jsonb_prints(to_postgresql(text)) if members else None


def test_texts_that_look_like_times_stay_as_they_are_in_every_slice() -> None:
    rows: list[tuple[str | None, str | None]] = [(f'{{"day": "2026-11-{n % 28 + 1:02}"}}', None) for n in range(9000)]
    assert [row["day"]["string"] for row in read(*rows)] == [f"2026-11-{n % 28 + 1:02}" for n in range(9000)]


def test_properties_may_stay_the_json_that_they_are() -> None:
    shape_json = shaper(StructType([StructField("properties", StringType())]), Options.read({}))
    batch = pa.RecordBatch.from_pydict({"properties": ['{"n": 1, "t": "a NUL: \ufffe0"}', None]})
    (shaped,) = shape_json.shape([batch])
    assert shape_json.columns == ("properties",)
    assert shaped.column("properties").to_pylist() == ['{"n": 1, "t": "a NUL: \0"}', None]


def test_milliseconds_become_times_and_those_that_spark_does_not_have_its_last() -> None:
    schema = StructType([StructField("expires_at", TimestampType())])
    batch = pa.RecordBatch.from_pydict({"expires_at": pa.array([0, 1_893_456_000_001, None, 2**62], pa.int64())})
    (shaped,) = shaper(schema, Options.read({})).shape([batch])
    microseconds = shaped.column("expires_at").cast(pa.int64()).to_pylist()
    assert microseconds == [0, 1_893_456_000_001_000, None, (2**63 - 1) // 1000 * 1000]


@pytest.mark.parametrize("kind", [pa.uuid(), pa.binary(16)], ids=str)
@given(values=st.lists(st.none() | st.uuids()), cut=st.tuples(st.integers(0, 3), st.integers(0, 3)))
def test_uuids_become_identifiers_of_messages(
    kind: pa.DataType, values: list[uuid.UUID | None], cut: tuple[int, int]
) -> None:
    content = pa.array([None if value is None else value.bytes for value in values], pa.binary(16)).cast(kind)
    shape_identifiers = Shaper(pa.schema({"message_id": pa.string()}))
    batch = pa.RecordBatch.from_pydict({"message_id": content}).slice(*cut)
    found = [row["message_id"] for shaped in shape_identifiers.shape([batch]) for row in shaped.to_pylist()]
    assert found == [None if value is None else f"ID:{value}" for value in values[cut[0] :][: cut[1]]]


def test_destination_that_all_messages_share_is_not_read() -> None:
    schema = pa.schema({"destination": pa.string(), "sequence": pa.int64()})
    shape_orders = Shaper(schema, "queue://orders")
    (shaped,) = shape_orders.shape([pa.RecordBatch.from_pydict({"sequence": [1, 2]})])
    assert shape_orders.columns == ("sequence",)
    assert shaped.column("destination").to_pylist() == ["queue://orders"] * 2
    alone = Shaper(pa.schema({"destination": pa.string()}), "queue://orders")
    assert alone.columns == ("destination",)  # a query has one column at the least


def test_bodies_are_parsed_though_some_are_no_objects() -> None:
    schema = StructType([StructField("body", StructType([StructField("n", IntegerType())]))])
    bodies = ['{"n": 1}', "no", None, '{"n": "x"}', '{"m": 2}', "{} {}", "", '{"n":\n3}']
    batch = pa.RecordBatch.from_pylist([{"body": body} for body in bodies], pa.schema([("body", pa.string())]))
    (shaped,) = shaper(schema, Options.read({})).shape([batch])
    found = [row["body"] for row in shaped.to_pylist()]
    assert found == [{"n": 1}, None, None, None, {"n": None}, None, None, {"n": 3}]


def test_decimals_with_more_digits_than_the_schema_has_do_not_fit() -> None:
    schema = StructType([StructField("body", StructType([StructField("n", DecimalType(38, 10))]))])
    numbers = ["1.5", "12345678901234567890123456789.5", "1234567890123456789012345678.5", "2"]
    batch = pa.RecordBatch.from_pydict({"body": [f'{{"n": {number}}}' for number in numbers]})
    (shaped,) = shaper(schema, Options.read({})).shape([batch])
    shaped.validate(full=True)
    found = [row["body"] for row in shaped.to_pylist()]
    assert found == [None if number == numbers[1] else {"n": Decimal(number)} for number in numbers]


_DAYS = StructType([StructField("day", DateType())])
_days = st.fixed_dictionaries({"day": st.none() | st.dates()})
_bodies = st.fixed_dictionaries({"day": st.none() | st.dates(), "others": st.none() | st.lists(st.none() | _days)})


def parsed(bodies: list[str], kind: StructType) -> list[Any]:
    """Return bodies as a read parses them."""
    batch = pa.RecordBatch.from_pydict({"body": bodies})
    (shaped,) = shaper(StructType([StructField("body", kind)]), Options.read({})).shape([batch])
    shaped.validate(full=True)
    return [row["body"] for row in shaped.to_pylist()]


@given(bodies=st.lists(_bodies, min_size=1))
def test_dates_are_parsed_also_in_lists(bodies: list[dict[str, Any]]) -> None:
    kind = StructType([*_DAYS.fields, StructField("others", ArrayType(_DAYS))])
    assert parsed([dumps(body, default=dt.date.isoformat) for body in bodies], kind) == bodies


def test_texts_that_are_no_dates_do_not_fit() -> None:
    days = ['"2026-11-21"', '"2026-02-30"', '"tomorrow"', "5", "null"]
    found = parsed([f'{{"day": {day}}}' for day in days], _DAYS)
    assert found == [{"day": dt.date(2026, 11, 21)}, None, None, None, {"day": None}]


@pytest.mark.parametrize(
    "kind",
    [BinaryType(), DayTimeIntervalType(), MapType(StringType(), StringType()), TimeType(), VariantType()],
    ids=str,
)
def test_schema_of_a_body_takes_no_types_into_which_json_is_not_parsed(kind: DataType) -> None:
    body = StructType([StructField("list", ArrayType(StructType([StructField("a", kind)])))])
    with pytest.raises(JMSException, match="Option 'bodySchema': JSON is not parsed into "):
        check_read_schema(StructType([StructField("body", body)]), Options.read({}))


_DOUBLED = StructType([StructField("n", IntegerType()), StructField("n", IntegerType())])


@pytest.mark.parametrize("kind", [None, _DOUBLED, StructType([StructField("a", ArrayType(_DOUBLED))])])
def test_schema_that_names_a_column_twice_is_refused(kind: StructType | None) -> None:
    schema = _DOUBLED if kind is None else StructType([StructField("body", kind)])
    with pytest.raises(JMSException, match="names the column 'n' twice"):
        check_read_schema(schema, Options.read({}))


def test_nul_in_json_is_written_so_that_parsers_read_it() -> None:
    names = ("properties", "json_body", "text_body")
    texts = pa.RecordBatch.from_pydict({name: ['{"s": "a\ufffe0"}'] for name in names})
    (shaped,) = Shaper(pa.schema(dict.fromkeys(names, pa.string())), strict_json=True).shape([texts])
    written = '{"s": "a\\u0000"}'
    assert shaped.to_pylist() == [{"properties": written, "json_body": written, "text_body": '{"s": "a\0"}'}]
    schema = StructType([StructField("body", StructType([StructField("s", StringType())]))])
    (shaped,) = shaper(schema, Options.read({})).shape([texts.select(["json_body"]).rename_columns(["body"])])
    assert shaped.to_pylist() == [{"body": {"s": "a\0"}}]


def test_read_messages_can_be_staged() -> None:
    schema = pa.schema([("properties", pa.map_(pa.string(), PROPERTY))])
    (properties,) = read(PLAIN)
    batch = pa.RecordBatch.from_pylist([{"properties": list(properties.items())}], schema)
    (row,) = OutgoingMessages("queue://orders").convert(batch).to_pylist()
    assert (row["properties"], row["property_types"]) == PLAIN
