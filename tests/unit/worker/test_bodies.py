"""Bodies of messages as the annotations of handlers describe them."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json
import sys
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, Literal

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typing_extensions import TypedDict

from jmsql import (
    BytesMessage,
    MapMessage,
    Message,
    MessageFormatException,
    ObjectMessage,
    StreamMessage,
    TextMessage,
    register_type,
)
from jmsql.client._sync.connection.simplified import message_of
from jmsql.messages import Byte, Long
from jmsql.messages.codecs.schemas import CheckedSchema, MsgspecSchema, PydanticSchema, Schema
from jmsql.worker.handlers.bodies import body_reader


class Color(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Line:
    goods: str
    price: Decimal = Decimal(0)


@dataclasses.dataclass
class Order:
    number: int
    lines: list[Line] = dataclasses.field(default_factory=list)
    color: Color | None = None


@dataclasses.dataclass
class Refund:
    number: int


@register_type(name="body test registered")
@dataclasses.dataclass
class Registered:
    number: int


class Entries(TypedDict):
    number: int


class Model(pydantic.BaseModel, populate_by_name=True):
    number: int = pydantic.Field(alias="Number")
    price: Decimal = Decimal(0)


def model(number: int, price: Decimal = Decimal(0)) -> Model:
    return Model.model_validate({"Number": number, "price": price})


class Struct(msgspec.Struct, rename="camel"):
    order_number: int
    price: Decimal = Decimal(0)


def text(value: object) -> TextMessage:
    return TextMessage(json.dumps(value))


def in_bytes(value: object) -> BytesMessage:
    message = BytesMessage()
    message.write_bytes(json.dumps(value, ensure_ascii=False).encode())
    message.reset()
    return message


def in_map(value: dict[str, Any]) -> MapMessage:
    message = MapMessage()
    for name, member in value.items():
        message.set_object(name, member)
    return message


FORMS = pytest.mark.parametrize("form", [text, in_bytes, in_map, ObjectMessage])
CASES = pytest.mark.parametrize(
    ("annotation", "data", "body"),
    [
        (Refund, {"number": 3}, Refund(3)),
        (Model, {"Number": 3, "price": "1.50"}, model(3, Decimal("1.50"))),
        (Struct, {"orderNumber": 3, "price": "1.50"}, Struct(3, Decimal("1.50"))),
        (Registered, {"number": 3}, Registered(3)),
        (dict[str, int], {"number": 3}, {"number": 3}),
        (Model | None, {"Number": 3}, model(3)),
        (Entries, {"number": 3}, {"number": 3}),
    ],
    ids=["dataclass", "pydantic", "msgspec", "registered", "dict", "optional", "TypedDict"],
)


@FORMS
@CASES
def test_the_annotation_is_the_schema(
    form: Callable[[Any], Message], annotation: Any, data: dict[str, Any], body: object
) -> None:
    assert body_reader(annotation)(form(data)) == body


@pytest.mark.parametrize("form", [text, in_bytes, ObjectMessage])
@pytest.mark.parametrize(
    ("annotation", "data", "body"),
    [
        (Order, {"number": 1, "lines": [{"goods": "kite"}], "color": "red"}, Order(1, [Line("kite")], Color.RED)),
        (list[Refund], [{"number": 1}, {"number": 2}], [Refund(1), Refund(2)]),
        (list[Struct], [{"orderNumber": 1}], [Struct(1)]),
        (dict[str, list[Model]], {"new": [{"Number": 1}]}, {"new": [model(1)]}),
        (tuple[int, str], [1, "x"], (1, "x")),
        (int, 5, 5),
        (dt.date, "2026-11-24", dt.date(2026, 11, 24)),
        (Annotated[list[int], pydantic.Field(min_length=1)], [1], [1]),
    ],
    ids=str,
)
def test_nested_and_generic_types(form: Callable[[Any], Message], annotation: Any, data: Any, body: object) -> None:
    assert body_reader(annotation)(form(data)) == body


def test_an_object_that_is_one_comes_as_it_is() -> None:
    assert body_reader(Registered)(ObjectMessage(Registered(3))) == Registered(3)
    assert body_reader(list[Registered])(ObjectMessage([Registered(3)])) == [Registered(3)]


def test_jms_type_chooses_of_classes_and_nothing_else() -> None:
    read = body_reader(Order | Refund)
    message = text({"number": 1})
    assert read(message) == Order(1)
    message.jms_type = "Refund"
    assert read(message) == Refund(1)
    message.jms_type = "subprocess.Popen"
    assert read(message) == Order(1)
    assert type(body_reader(Refund)(message)) is Refund


def test_nothing_is_imported_by_a_name_in_a_message() -> None:
    name = "this_module_does_not_exist"
    message = TextMessage(json.dumps({"$type": f"{name}.Order", "type": f"{name}.Order", "number": 1}))
    message.jms_type = f"{name}.Order"
    read = body_reader(Refund)
    read(text({"number": 1}))  # the library loads some of its own modules at the first message
    before = set(sys.modules)
    assert read(message) == Refund(1)
    assert set(sys.modules) - before == set()


@pytest.mark.parametrize(
    ("annotation", "message", "reason"),
    [
        (Refund, text({"number": "x"}), r"The body is not Refund: number: Input should be a valid integer"),
        (Model, text({}), r"The body is not Model: Number: Field required\."),
        (
            Struct,
            text({"orderNumber": "x"}),
            r"The body is not Struct: Expected `int`, got `str` - at `\$\.orderNumber`",
        ),
        (Refund, TextMessage("{"), "The body is not Refund: Invalid JSON"),
        (Struct, TextMessage("{"), "The body is not Struct: "),
        (Refund, TextMessage("\ud800"), "The body is not Refund"),
        (Refund, TextMessage("[" * 100_000), "The body is not Refund"),
        (Refund, TextMessage(), "takes Refund, and the message has no body"),
        (Refund, Message(), "takes Refund, and the message has no body"),
        (Refund, StreamMessage(), "StreamMessage"),
        (Refund, ObjectMessage([1]), "The body is not Refund"),
        (dict, in_bytes([1]), "The body of this BytesMessage is JSON, but no object"),
    ],
    ids=range(12),
)
def test_an_unreadable_body_is_an_error_with_its_place_and_no_value(
    annotation: Any, message: Message, reason: str
) -> None:
    with pytest.raises(MessageFormatException, match=reason) as raised:
        body_reader(annotation)(message)
    assert raised.value.__cause__ is None or isinstance(raised.value.__cause__, ValueError)


def test_the_errors_show_no_values() -> None:
    for annotation in (Refund, Model, Struct):
        with pytest.raises(MessageFormatException) as raised:
            body_reader(annotation)(text({"number": "secret", "Number": "secret", "orderNumber": "secret"}))
        assert "secret" not in str(raised.value)


NO_BODIES = {"texts or bytes": str | bytes, "text or dataclass": str | Refund, "no type": object()}


@pytest.mark.parametrize("annotation", NO_BODIES.values(), ids=NO_BODIES)
def test_an_annotation_that_no_body_has_is_refused(annotation: Any) -> None:
    with pytest.raises(TypeError):
        body_reader(annotation)


numbers = st.integers(min_value=-(2**200), max_value=2**200)
decimals = st.decimals(allow_nan=False, allow_infinity=False, places=25, min_value=-(10**20), max_value=10**20)


@dataclasses.dataclass
class Amount:
    units: int
    price: Decimal


class AmountModel(pydantic.BaseModel):
    units: int
    price: Decimal


class AmountStruct(msgspec.Struct):
    units: int
    price: Decimal


@given(numbers, decimals)
def test_numbers_are_exact_whatever_reads_them(units: int, price: Decimal) -> None:
    for schema in (
        PydanticSchema(AmountModel),
        PydanticSchema(Amount),
        MsgspecSchema(AmountStruct),
        CheckedSchema(Amount),
    ):
        for data in (f'{{"units": {units}, "price": {price:f}}}', f'{{"units": {units}, "price": "{price:f}"}}'):
            amount: Any = schema.decode(data.encode())
            assert (amount.units, amount.price) == (units, price)


@given(numbers, decimals)
def test_a_body_comes_as_it_was_sent(units: int, price: Decimal) -> None:
    for body in (Amount(units, price), AmountModel(units=units, price=price), AmountStruct(units, price)):
        message = message_of(body)
        assert isinstance(message, TextMessage)
        assert message.jms_type == type(body).__name__
        assert body_reader(type(body))(message) == body


def test_registered_objects_go_as_objects() -> None:
    message = message_of(Registered(1))
    assert isinstance(message, ObjectMessage)
    assert message.jms_type is None


def test_aliases_are_those_of_the_library() -> None:
    assert json.loads(message_of(model(1)).get_body(str) or "") == {"Number": 1, "price": "0"}
    assert json.loads(message_of(Struct(1)).get_body(str) or "") == {"orderNumber": 1, "price": "0"}


@dataclasses.dataclass
class Everything:
    number: float
    text: str | None
    kind: Literal["new", "old"]
    content: bytes
    at: dt.datetime
    pause: dt.timedelta
    identifier: uuid.UUID
    pair: tuple[int, str]
    several: tuple[int, ...]
    names: set[str]
    by_name: dict[str, Line]
    color: Color
    anything: Any = None
    parent: Everything | None = None


EVERYTHING = Everything(
    1.5,
    None,
    "new",
    b"\0\xff",
    dt.datetime(2026, 11, 24, tzinfo=dt.UTC),
    dt.timedelta(seconds=1.5),
    uuid.UUID(int=1),
    (1, "x"),
    (1, 2),
    {"x"},
    {"a": Line("kite", Decimal("1.10"))},
    Color.RED,
    {"x": [1]},
)


def test_without_a_library_the_annotations_are_checked() -> None:
    schema = CheckedSchema(Everything)
    child = dataclasses.replace(EVERYTHING, parent=EVERYTHING)
    assert schema.decode(schema.encode(child).encode()) == child
    assert CheckedSchema(list[Refund]).decode(b'[{"number": 1, "unknown": 2}]') == [Refund(1)]


@pytest.mark.parametrize(
    ("annotation", "data", "reason"),
    [
        (Order, {"number": True}, r"\.number: expected int, got a boolean"),
        (Order, {"number": 1, "lines": [{"goods": 5}]}, r"\.lines\[0\]\.goods: expected str, got an int"),
        (Order, {"number": 1, "lines": [{"goods": "x", "price": "y"}]}, "price: this text is not Decimal"),
        (Order, {"number": 1, "color": "blue"}, r"\.color: expected"),
        (Order, {}, "number is missing"),
        (Order, [], "expected Order, got"),
        (tuple[int, int], [1], "expected 2 values"),
        (Literal["a"], "b", "this is none of the values of"),
        (dict[str, int], {"a": "b"}, r"\['a'\]: expected int"),
    ],
    ids=range(9),
)
def test_a_body_of_another_type_than_the_annotation_is_refused(annotation: Any, data: object, reason: str) -> None:
    with pytest.raises(MessageFormatException, match=reason):
        CheckedSchema(annotation).decode(json.dumps(data).encode())


def test_a_class_without_a_form_is_refused_without_a_library() -> None:
    with pytest.raises(TypeError, match="neither a dataclass nor a type of Python's"):
        CheckedSchema(list[Schema])
    with pytest.raises(MessageFormatException, match="cannot be written as JSON: it holds"):
        CheckedSchema(Everything).encode(dataclasses.replace(EVERYTHING, anything=object()))


def test_values_of_a_map_are_pythons_own() -> None:
    read = body_reader(dict[str, Any] | None)
    assert read(in_map({"a": Byte(1), "b": Long(2)})) == {"a": 1, "b": 2}
    body: Any = body_reader(dict[str, int])(in_map({"a": Byte(1), "b": Long(2)}))
    assert {type(member) for member in body.values()} == {int}
