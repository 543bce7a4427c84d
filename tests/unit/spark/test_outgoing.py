from __future__ import annotations

import datetime as dt
import json
import uuid
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jmsql import InvalidDestinationException, JMSException, MessageFormatException
from jmsql.messages import Byte, Float, Long
from jmsql.messages.types.typed_json import read_object, write_object
from jmsql.spark.writing.outgoing import OUTGOING_SCHEMA, OutgoingMessages
from jmsql.spark.writing.task import binary_encoder
from jmsql.values.postgresql_text import from_postgresql

PROPERTY = pa.struct(
    [
        ("type", pa.string()),
        ("boolean", pa.bool_()),
        ("long", pa.int64()),
        ("double", pa.float64()),
        ("string", pa.string()),
    ]
)
TYPES = {
    "priority": pa.int32(),
    "expires_at": pa.timestamp("us", "UTC"),
    "delivery_time": pa.timestamp("us", "UTC"),
    "properties": pa.map_(pa.string(), PROPERTY),
    "bytes_body": pa.binary(),
}


def convert(
    *rows: dict[str, Any], destination: str | None = "queue://orders", **types: pa.DataType
) -> list[dict[str, Any]]:
    names = list(dict.fromkeys(name for row in rows for name in row))
    schema = pa.schema([(name, {**TYPES, **types}.get(name, pa.string())) for name in names])
    messages = OutgoingMessages(destination).convert(pa.RecordBatch.from_pylist(list(rows), schema))
    encoder = binary_encoder(OUTGOING_SCHEMA)
    assert encoder.write_header() + encoder.write_batch(messages) + encoder.finish()
    converted: list[dict[str, Any]] = messages.to_pylist()
    return converted


def typed(kind: str, **value: object) -> dict[str, object]:
    return {"type": kind, **value}


def test_row_with_a_text_has_the_headers_of_a_plain_send() -> None:
    (row,) = convert({"text_body": "two kites"})
    del row["jms_message_id"]
    assert {name: value for name, value in row.items() if value is not None} == {
        "position": 0,
        "destination": "queue://orders",
        "inverse_priority": 5,
        "jms_delivery_mode": 2,
        "message_type": "TextMessage",
        "text_body": "two kites",
    }


def test_headers_come_from_their_columns() -> None:
    (row,) = convert(
        {
            "text_body": "a NUL: \0",
            "destination": "topic://prices",
            "priority": 9,
            "delivery_mode": "NON_PERSISTENT",
            "expires_at": dt.datetime(2030, 1, 1, tzinfo=dt.UTC),
            "correlation_id": "c\0",
            "reply_to": "queue://replies",
            "jms_type": "greeting",
        },
        destination=None,
    )
    assert row["destination"] == "topic://prices"
    assert (row["inverse_priority"], row["jms_delivery_mode"]) == (0, 1)
    assert row["jms_expiration"] == 1_893_456_000_000
    assert row["text_body"] == "a NUL: \ufffe0"
    assert (row["jms_correlation_id"], row["jms_reply_to"], row["jms_type"]) == (
        "c\ufffe0",
        "queue://replies",
        "greeting",
    )


@pytest.mark.parametrize(
    ("row", "kind"),
    [
        ({"text_body": "t", "bytes_body": None}, "TextMessage"),
        ({"bytes_body": b"b"}, "BytesMessage"),
        ({"json_body": ' {"n": 1}'}, "MapMessage"),
        ({"json_body": " [1]"}, "StreamMessage"),
        ({"priority": 4}, "Message"),
        ({"type": "BytesMessage"}, "BytesMessage"),
        ({"type": "ObjectMessage", "json_body": "{}"}, "ObjectMessage"),
    ],
)
def test_kind_of_message_follows_from_its_body_or_is_given(row: dict[str, Any], kind: str) -> None:
    assert convert(row)[0]["message_type"] == kind


def test_bodies_of_maps_and_streams_keep_the_types_of_their_values() -> None:
    first, second = convert(
        {"json_body": '{"n": 1, "x": 1e3, "c": "q"}', "body_types": '{"n": "short", "c": "char"}'},
        {"json_body": "[5, 2.5]", "body_types": '{"0": "byte"}'},
    )
    assert first["json_body"] == '{"n": 1, "x": 1000.0, "c": "q"}'
    assert json.loads(first["body_types"]) == {"n": "short", "c": "char"}
    assert (second["json_body"], json.loads(second["body_types"])) == ("[5, 2.5]", {"0": "byte"})


def test_properties_keep_their_types() -> None:
    properties = [
        ("byte", typed("byte", long=1)),
        ("long", typed("long", long=2)),
        ("float", typed("float", double=0.5)),
        ("double", typed("double", double=1.0)),
        ("yes", typed("boolean", boolean=True)),
        ("name", typed("string", string="kite")),
        ("no", typed("null")),
    ]
    first, second = convert({"properties": properties}, {"properties": None})
    assert json.loads(first["properties"]) == {
        "byte": 1,
        "long": 2,
        "float": 0.5,
        "double": 1.0,
        "yes": True,
        "name": "kite",
    }
    assert json.loads(first["property_types"]) == {"byte": "byte", "long": "long", "float": "float", "no": "null"}
    assert (second["properties"], second["property_types"]) == (None, None)


def test_properties_may_be_plain_strings() -> None:
    (row,) = convert({"properties": [("color", "blue")]}, properties=pa.map_(pa.string(), pa.string()))
    assert row["properties"] == '{"color": "blue"}'


plain_text = st.text(st.characters(codec="ascii", min_codepoint=32, exclude_characters='"\\'), max_size=5)
some_text = st.text(st.characters(codec="utf-8") | st.sampled_from('\0\ufffe"\\\n'), max_size=5)
names = st.sampled_from(["color", "weight", "Größe", "JMSXGroupID", "JMS_vendor", "$"])
texts = plain_text | some_text
values = st.one_of(
    texts.map(lambda text: typed("string", string=text)),
    st.booleans().map(lambda value: typed("boolean", boolean=value)),
    st.integers(-(2**31), 2**31 - 1).map(lambda value: typed("int", long=value)),
)
other_values = st.one_of(
    st.integers(-(2**63), 2**63 - 1).map(lambda value: typed("long", long=value)),
    st.floats(allow_nan=False).map(lambda value: typed("double", double=value)),
    st.just(typed("null")),
)


def without_group_numbers(rows: list[dict[str, Any] | None]) -> list[dict[str, Any] | None]:
    """Leave out groups whose id is no text, which are refused."""
    return [
        row and {name: value for name, value in row.items() if name != "JMSXGroupID" or value["type"] == "string"}
        for row in rows
    ]


def maps_of(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[dict[str, Any] | None]]:
    return st.lists(st.none() | st.dictionaries(names, values, max_size=4), min_size=1, max_size=6)


def converted_properties(rows: list[dict[str, Any] | None], *, plain: bool) -> list[tuple[str, str]]:
    kind = pa.map_(pa.string(), pa.string() if plain else PROPERTY)
    messages = convert(*({"properties": None if row is None else list(row.items())} for row in rows), properties=kind)
    return [(row["properties"], row["property_types"]) for row in messages]


@settings(deadline=None)
@given(st.one_of(maps_of(plain_text), maps_of(texts)))
def test_plain_properties_are_converted_together_as_they_are_alone(rows: list[dict[str, Any] | None]) -> None:
    # A row that needs escapes makes all be written one by one.
    one_by_one = converted_properties([*rows, {"color": '"'}], plain=True)[:-1]
    assert converted_properties(rows, plain=True) == one_by_one


@settings(deadline=None)
@given(st.one_of(maps_of(values), maps_of(values | other_values)).map(without_group_numbers))
def test_typed_properties_are_converted_together_as_they_are_alone(rows: list[dict[str, Any] | None]) -> None:
    one_by_one = converted_properties([*rows, {"color": typed("null")}], plain=False)[:-1]
    assert converted_properties(rows, plain=False) == one_by_one


json_values = st.one_of(
    st.booleans(), st.none(), st.text(max_size=4), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False)
)
objects = st.none() | st.dictionaries(names, json_values, max_size=4)


def converted_texts(rows: list[str | None], types: list[str | None]) -> list[tuple[str | None, str | None]]:
    messages = convert(
        *({"properties": text, "property_types": stated} for text, stated in zip(rows, types, strict=True)),
        properties=pa.string(),
    )
    return [(row["properties"], row["property_types"]) for row in messages]


@settings(deadline=None)
@given(st.lists(objects, min_size=1, max_size=6), st.booleans())
def test_properties_as_json_are_those_that_a_client_would_set(
    rows: list[dict[str, Any] | None],
    raw: bool,
) -> None:
    rows = [row and {name: value for name, value in row.items() if name != "JMSXGroupID"} for row in rows]
    texts = [None if row is None else json.dumps(row, ensure_ascii=not raw) for row in rows]
    for row, (text, types) in zip(rows, converted_texts(texts, [None] * len(rows)), strict=True):
        found = read_object(text, types)
        assert {name: (value, value is True) for name, value in found.items()} == {
            name: (value, value is True) for name, value in (row or {}).items()
        }
        assert (text, types) != ("{}", None)


def test_properties_as_json_keep_the_types_that_a_read_tells_beside_them() -> None:
    values = {
        "byte": Byte(1),
        "float": Float(0.5),
        "no": None,
        "far": float("inf"),
        "text": "\0\ufffe",
        "n": Long(2**40),
    }
    text, types = write_object(values, omit_nulls=True)
    read = [from_postgresql(text), '{"a": 1}', None]
    (first, first_types), second, third = converted_texts(read, [types, None, None])
    assert first is not None
    assert {name: (type(value), value) for name, value in read_object(first, first_types).items()} == {
        name: (type(value), value) for name, value in values.items()
    }
    assert (second, third) == (('{"a": 1}', None), (None, None))


@pytest.mark.parametrize(
    ("text", "types", "words"),
    [
        ('{"n": {"deep": 1}}', None, "'properties' holds no properties: .*'n'"),
        ('{"n": [1]}', None, "'properties' holds no properties"),
        ('{"n": 1', None, "'properties' holds no properties"),
        ('{"n": 1}}\n{"row": {"m": 1}', None, "'properties' holds no properties"),
        ("[]", None, "'properties' holds no properties"),
        ("1", None, "'properties' holds no properties"),
        ("", None, "'properties' holds no properties"),
        ('{"not a name": 1}', None, "'properties', 'not a name'"),
        ('{"JMSXDeliveryCount": 1}', None, "'properties', 'JMSXDeliveryCount'"),
        ('{"JMSXGroupID": 1}', None, "'properties', 'JMSXGroupID'"),
        ('{"n": 9223372036854775808}', None, "'properties'"),
        ('{"n": 1000}', '{"n": "byte"}', "'properties'"),
        ('{"n": 1}', '{"n": "decimal"}', "'properties'"),
        ('{"n": 1}', "{", "'properties'"),
    ],
)
def test_text_that_holds_no_properties_is_refused(text: str, types: str | None, words: str) -> None:
    for others in ([], ['{"a": 1}'], ["{}", '{"row": 1}']):
        with pytest.raises(MessageFormatException, match=words):
            converted_texts([*others, text], [*(None for _ in others), types])


def test_each_message_has_an_id_of_its_own_as_the_server_would_make_it() -> None:
    ids = [uuid.UUID(bytes=row["jms_message_id"]) for row in convert(*({"text_body": "x"} for _ in range(1000)))]
    assert {(found.version, found.variant) for found in ids} == {(4, uuid.RFC_4122)}
    assert len(set(ids)) == 1000


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"priority": 10}, "'priority' holds 10"),
        ({"delivery_mode": "durable"}, "'delivery_mode' holds 'durable'"),
        ({"text_body": "a", "bytes_body": b"b"}, "several bodies"),
        ({"type": "TextMessage", "bytes_body": b"b"}, "of the type TextMessage has a bytes_body"),
        ({"type": "Textmessage"}, "'type' holds 'Textmessage'"),
        ({"destination": "temp-queue://x"}, "'destination' says 'temp-queue://x'"),
        ({"destination": "orders"}, "'destination': 'orders' is not a destination"),
        ({"reply_to": "orders"}, "'reply_to': 'orders' is not a destination"),
        ({"expires_at": dt.datetime(1969, 12, 31, tzinfo=dt.UTC)}, "'expires_at' holds the timestamp 1969-12-31"),
        ({"delivery_time": dt.datetime(1970, 1, 1, tzinfo=dt.UTC)}, "'delivery_time' holds the timestamp 1970-01-01"),
    ],
)
def test_row_that_is_no_message_is_refused_by_the_name_of_the_column(row: dict[str, Any], words: str) -> None:
    with pytest.raises(JMSException, match=words):
        convert(row)


@pytest.mark.parametrize(
    ("microseconds", "shown"), [(-(10**17), "-1199"), (253_402_214_400_000_000, "9999-12-31"), (2**63 - 1, "29424")]
)
def test_time_that_the_database_does_not_take_is_refused_by_the_name_of_the_column(
    microseconds: int, shown: str
) -> None:
    times = pa.array([microseconds], pa.timestamp("us", "UTC"))
    rows = pa.RecordBatch.from_arrays([pa.array(["a"]), times], names=["text_body", "expires_at"])
    with pytest.raises(JMSException, match=f"'expires_at' holds the timestamp {shown}"):
        OutgoingMessages("queue://orders").convert(rows)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"json_body": '{"n": {"deep": 1}}'}, "'json_body' holds no body of a MapMessage"),
        ({"json_body": "[1"}, "'json_body' holds no body of a StreamMessage"),
        ({"properties": [("not a name", typed("int", long=1))]}, "'properties', 'not a name'"),
        ({"properties": [("n", typed("byte", long=1000))]}, "'properties', 'n'.*byte"),
        ({"properties": [("n", typed("decimal"))]}, "'properties', 'n'.*the type is one of"),
        ({"properties": [("n", typed("int", long=2**31))]}, "'properties', 'n'.*does not fit the JMS type int"),
        *(
            ({"properties": [("n", typed(kind))]}, f"'properties', 'n': the type is {kind}, but the field .* is null")
            for kind in ("boolean", "byte", "short", "int", "long", "float", "double", "string")
        ),
        ({"properties": [("", typed("int", long=1))]}, "'properties', ''"),
        ({"type": "ObjectMessage", "json_body": "[1]"}, "'json_body' holds no body of an ObjectMessage"),
        ({"type": "ObjectMessage", "json_body": "{"}, "'json_body' holds no body of an ObjectMessage"),
        ({"type": "ObjectMessage", "json_body": r'{"a": "\u0000"}'}, "'json_body' holds no body of an ObjectMessage"),
    ],
)
def test_content_of_the_wrong_form_is_refused(row: dict[str, Any], words: str) -> None:
    with pytest.raises(MessageFormatException, match=words):
        convert(row)


def test_column_and_option_that_differ_are_refused() -> None:
    (row,) = convert({"destination": "queue://orders", "text_body": "a"})
    assert row["destination"] == "queue://orders"
    with pytest.raises(JMSException, match="'destination' says 'queue://orders', and an option 'queue://copies'"):
        convert({"destination": "queue://orders", "text_body": "a"}, destination="queue://copies")


def test_row_that_goes_nowhere_is_refused() -> None:
    with pytest.raises(JMSException, match="'destination' is null in a row"):
        convert({"destination": None, "text_body": "a"}, destination=None)
    with pytest.raises(InvalidDestinationException):
        convert({"destination": "orders", "text_body": "a"})


def test_rows_that_are_no_messages_go_to_the_queue_of_bad_records_in_their_place() -> None:
    rows = pa.RecordBatch.from_pydict(
        {
            "text_body": pa.array([b"a", b"b", b"\xff", b"d", b"e"]).view(pa.string()),
            "priority": pa.array([4, 12, 4, 4, 4], pa.int32()),
            "properties": [None, None, None, '{"n": [1]}', '{"n": 1}'],
        }
    )
    with pytest.raises(JMSException, match="'text_body' holds a text that is not UTF-8"):
        OutgoingMessages("queue://orders").convert(rows)
    outgoing = OutgoingMessages("queue://orders", "queue://bad")
    found = outgoing.convert(rows).to_pylist()
    assert [(row["position"], row["destination"]) for row in found] == [
        (0, "queue://orders"),
        (1, "queue://bad"),
        (2, "queue://bad"),
        (3, "queue://bad"),
        (4, "queue://orders"),
    ]
    bad = found[1:4]
    assert [json.loads(row["text_body"])["priority"] for row in bad] == [12, 4, 4]
    errors = [json.loads(row["properties"])["error"] for row in bad]
    assert errors[0] == "The column 'priority' holds 12; priorities are 0 to 9."
    assert errors[1] == "The column 'text_body' holds a text that is not UTF-8."
    assert errors[2].startswith("The column 'properties' holds no properties")
    assert outgoing.convert(rows.slice(0, 1)).to_pylist()[0]["position"] == 5
