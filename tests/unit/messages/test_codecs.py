from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum, Flag, auto
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pytest

from jmsql.exceptions import MessageFormatException
from jmsql.messages import ObjectMessage, register_codec, register_type
from jmsql.messages.codecs.object_json import decode_object
from jmsql.messages.codecs.pickled_types import register_pickled_type
from jmsql.messages.codecs.registry import codec_named
from jmsql.messages.codecs.type_check import simple
from tests.unit.messages.rows import received


@register_type
class Color(Enum):
    BLUE = "blue"


@register_type
class Access(Flag):
    READ = auto()
    WRITE = auto()


@register_type(name="test line")
@dataclass(frozen=True, slots=True)
class Line:
    sku: str
    price: Decimal


@register_type
@dataclass
class Order:
    number: int
    lines: list[Line]
    color: Color = Color.BLUE
    placed: dt.datetime | None = None
    total: Decimal = field(init=False)

    def __post_init__(self) -> None:
        if self.number < 0:
            raise ValueError("a number is not negative")
        self.total = sum((line.price for line in self.lines), Decimal(0))


@register_type
class Address(pydantic.BaseModel):
    street: str = pydantic.Field(alias="streetName")
    since: dt.date
    weight: float


@register_type
class Customer(pydantic.BaseModel):
    home: Address
    tags: set[str]


@register_type
class Point(msgspec.Struct, rename="camel", tag=True):
    x_value: float
    raw: bytes
    when: dt.datetime
    names: tuple[str, ...] = ()


def copied(value: Any) -> Any:
    return received(ObjectMessage(value)).object


@pytest.mark.parametrize(
    "value",
    [
        Color.BLUE,
        Access.READ | Access.WRITE,
        Line("bolt", Decimal("0.10")),
        Order(
            7,
            [Line("bolt", Decimal("0.10")), Line("nut", Decimal("0.05"))],
            placed=dt.datetime(2024, 2, 29, tzinfo=dt.UTC),
        ),
        Address(streetName="High Street", since=dt.date(2020, 1, 1), weight=float("inf")),
        Customer(home=Address(streetName="\0", since=dt.date(2020, 1, 1), weight=1.0), tags={"a", "b"}),
        Point(-0.0, b"\xff", dt.datetime(2024, 2, 29, tzinfo=dt.UTC), ("a",)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_object_of_a_registered_class_travels(value: object) -> None:
    for original in (value, [value], {"key": (value,)}):
        result = copied(original)
        assert result == original
    assert type(copied(value)) is type(value)


def test_subclass_is_registered_by_itself() -> None:
    class Special(Order):
        pass

    with pytest.raises(MessageFormatException, match="register_type"):
        ObjectMessage(Special(1, []))


def test_constructor_s_own_check_is_kept_when_reading() -> None:
    name = f"{Order.__module__}.{Order.__qualname__}"
    with pytest.raises(MessageFormatException, match="a number is not negative") as caught:
        decode_object(f'{{"type": "{name}", "version": 1, "data": {{"number": -1, "lines": []}}}}')
    assert isinstance(caught.value.__cause__, ValueError)


def test_missing_fields_take_their_defaults() -> None:
    name = f"{Order.__module__}.{Order.__qualname__}"
    assert decode_object(f'{{"type": "{name}", "version": 1, "data": {{"number": 1, "lines": []}}}}') == Order(1, [])


@register_type(name="test versioned", version=3, upgrade=lambda data, version: {"name": f"{data['title']}/{version}"})
@dataclass
class Versioned:
    name: str


@pytest.mark.parametrize("version", [1, 2])
def test_older_version_is_upgraded(version: int) -> None:
    text = f'{{"type": "test versioned", "version": {version}, "data": {{"title": "old"}}}}'
    assert decode_object(text) == Versioned(f"old/{version}")
    nested = f'[{{"$type": "test versioned", "$version": {version}, "$value": {{"title": "old"}}}}]'
    assert decode_object(f'{{"type": "list", "version": 1, "data": {nested}}}') == [Versioned(f"old/{version}")]
    assert copied([Versioned("new")]) == [Versioned("new")]


def test_newer_version_is_refused() -> None:
    with pytest.raises(MessageFormatException, match="version 4 of 'test versioned', and version 3 is registered"):
        decode_object('{"type": "test versioned", "version": 4, "data": {"name": "new"}}')


class Celsius:
    def __init__(self, degrees: float) -> None:
        self.degrees = degrees


def test_any_class_travels_with_a_codec_of_its_own() -> None:
    register_codec(Celsius, name="celsius", encode=lambda value: value.degrees, decode=Celsius)
    assert copied(Celsius(21.5)).degrees == 21.5
    assert copied([Celsius(-0.0)])[0].degrees == 0


def test_codec_that_fails_is_a_message_format_exception() -> None:
    class Stubborn:
        def __init__(self, data: object = None) -> None:
            self.data = data

    register_codec(Stubborn, encode=lambda value: 1 / 0, decode=Stubborn)
    with pytest.raises(MessageFormatException, match="cannot be encoded"):
        ObjectMessage(Stubborn())


def test_a_time_whose_zone_has_no_offset_without_a_date_is_refused() -> None:
    with pytest.raises(MessageFormatException, match=r"Europe/Berlin has no offset without a date"):
        ObjectMessage(dt.time(2, 30, tzinfo=ZoneInfo("Europe/Berlin")))
    with pytest.raises(TypeError, match=r"Europe/Berlin has no offset without a date"):
        simple({"opens": dt.time(2, 30, tzinfo=ZoneInfo("Europe/Berlin"))})
    fixed = dt.time(2, 30, tzinfo=dt.timezone(dt.timedelta(hours=1)))
    assert received(ObjectMessage(fixed)).get_object() == fixed


def test_class_that_does_not_describe_itself_needs_a_codec() -> None:
    with pytest.raises(TypeError, match="register_codec"):
        register_type(object)


def test_two_classes_do_not_share_a_name() -> None:
    with pytest.raises(ValueError, match=r"give .* another"):
        register_type(Order, name="test line")
    with pytest.raises(ValueError, match=r"give .* another"):
        register_type(Order, name="dict")


def test_standard_classes_are_not_registered_again() -> None:
    with pytest.raises(ValueError, match="without being registered"):
        register_codec(dict, name="my dict", encode=list, decode=dict)


def test_class_may_be_registered_again() -> None:
    register_type(Color)
    assert codec_named(f"{__name__}.Color").type is Color


class Node:
    def __init__(self, name: str, other: object = None) -> None:
        self.name = name
        self.other = other


class Leaf:
    pass


class Unlisted:
    pass


def test_pickled_object_travels() -> None:
    register_pickled_type(Node, allow=[Leaf], name="test node")
    node = Node("root", [Leaf(), {"a": Node("child")}])
    result = copied(node)
    assert result.name == "root"
    assert isinstance(result.other[0], Leaf)
    assert result.other[1]["a"].name == "child"


@pytest.mark.parametrize("hidden", [Unlisted(), print, dt.date(2024, 1, 1)])
def test_pickle_finds_no_class_that_was_not_allowed(hidden: object) -> None:
    register_pickled_type(Node, allow=[Leaf], name="test node")
    message = ObjectMessage(Node("root", hidden))
    with pytest.raises(MessageFormatException, match="which is not allowed here"):
        _ = message.object


def test_pickle_of_another_class_is_not_passed_off() -> None:
    register_pickled_type(Node, allow=[Leaf], name="test node")
    codec = codec_named("test node")
    import pickle

    with pytest.raises(MessageFormatException, match="is not of the type Node"):
        codec.rebuild(pickle.dumps(Leaf()), 1)


def test_object_that_cannot_be_pickled_is_refused() -> None:
    register_pickled_type(Node, allow=[Leaf], name="test node")
    with pytest.raises(MessageFormatException, match="cannot be encoded"):
        ObjectMessage(Node("root", lambda: None))
