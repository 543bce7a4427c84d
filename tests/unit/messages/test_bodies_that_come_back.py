"""Objects that are sent as JSON come back the same, or are refused where they are sent."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import math
import sys
from decimal import Decimal
from typing import Any, Optional

import msgspec
import pydantic
import pytest

from jmsql.client._sync.connection.simplified import message_of
from jmsql.exceptions import MessageFormatException
from jmsql.messages.codecs.schemas import CheckedSchema, MsgspecSchema, PydanticSchema, Schema
from jmsql.messages.types.typed_json import parse_strict_json


class Color(enum.Enum):
    RED = 1


class Item(pydantic.BaseModel):
    name: str = ""


class Special(Item):
    size: int = 2


class Order(pydantic.BaseModel):
    number: int = 0
    price: float | None = None
    items: list[Item] = []
    colors: dict[Color, int] = {}
    places: dict[tuple[int, int], str] = {}
    amount: Decimal = Decimal(0)
    secret: pydantic.SecretStr | None = None
    anything: Any = None


class Aliased(pydantic.BaseModel):
    number: int = pydantic.Field(serialization_alias="orderNumber")
    hidden: int = pydantic.Field(default=1, exclude=True)


class Exact(pydantic.BaseModel, extra="forbid"):
    number: int = 1

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def double(self) -> int:
        return 2 * self.number


class Measured(pydantic.BaseModel, ser_json_inf_nan="strings"):
    value: float = 0.0
    note: str | None = None


class Unequal:
    """Has no equality, and is written by a serializer."""


class Foreign(pydantic.BaseModel, arbitrary_types_allowed=True):
    at: dt.datetime = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
    what: Unequal = pydantic.Field(default_factory=Unequal, exclude=True)
    _created: float = pydantic.PrivateAttr(default_factory=lambda: math.nan)


class Parcel(msgspec.Struct):
    weight: Optional[float] = None  # noqa: UP045 - as programs have it that know Python 3.9
    parts: list[float] = []


@dataclasses.dataclass
class Refund:
    amount: float | None = None
    later: int = dataclasses.field(init=False, default=7)
    number: int = 0


def changed(refund: Refund) -> Refund:
    refund.later = 9
    return refund


REFUSED: list[tuple[object, str]] = [
    (Order(price=math.inf), "come back the same: price differs. JSON has no inf and nan"),
    (Order(price=math.nan), "come back the same: price differs. JSON has no inf and nan"),
    (Order(anything=[{"a": -math.inf}]), r"anything\[0\].a differs. JSON has no inf and nan"),
    (Order(items=[Item(), Special(size=9)]), r"come back the same: items\[1\].size differs"),
    (Order(colors={Color.RED: 1}), r"could not be read again: .*colors"),
    (Order(places={(1, 2): "a"}), r"could not be read again: .*places"),
    (Order(secret=pydantic.SecretStr("a")), "come back the same: secret differs"),
    (Order(number=10**4400), "could not be read again"),
    (Exact(), r"could not be read again: .*double: Extra inputs are not permitted"),
    (Parcel(weight=math.inf), "JSON has no inf and nan"),
    (Parcel(parts=[1.0, math.nan]), "JSON has no inf and nan"),
    (Refund(math.inf), "JSON has no inf and nan"),
    (changed(Refund()), "come back the same: later differs"),
    (Refund(number=10**4400), "could not be read again"),
]
SENT: list[object] = [
    Order(),
    Order(number=10**4299, price=-0.0, items=[Item(name="null")], amount=Decimal("1E400")),
    Aliased(number=1, hidden=5),
    Measured(value=math.inf),
    Measured(value=math.nan),
    Foreign(),
    Parcel(1.5, [2.0]),
    Refund(1.5),
]


@pytest.mark.parametrize(("value", "why"), REFUSED, ids=range(len(REFUSED)))
def test_a_value_that_would_not_come_back_is_refused(value: object, why: str) -> None:
    with pytest.raises(MessageFormatException, match=why):
        _schema(value).encode(value)


@pytest.mark.parametrize("value", SENT, ids=range(len(SENT)))
def test_anything_else_is_sent(value: object) -> None:
    schema = _schema(value)
    assert schema.encode(value) == schema.encode(value)


def _schema(value: object) -> Schema:
    """Return a schema that has written nothing."""
    return MsgspecSchema(type(value)) if isinstance(value, msgspec.Struct) else PydanticSchema(type(value))


@pytest.mark.parametrize("value", [value for value, _ in REFUSED if isinstance(value, Refund)], ids=range(3))
def test_dataclasses_are_refused_without_a_library(value: object) -> None:
    with pytest.raises(MessageFormatException):
        CheckedSchema(Refund).encode(value)


def test_inf_and_long_integers_are_refused_after_others_of_the_class() -> None:
    """The first object of a class is read again, and of later ones those that are suspect."""
    message_of(Order(price=1.0))
    for value in (Order(price=math.inf), Order(number=10**4300)):
        with pytest.raises(MessageFormatException):
            message_of(value)
    message_of(Order(number=10**4299))


@pytest.mark.parametrize("number", ["1E400", "1e-400", "12345678901234567890.5", '"1E400"', "1.5", "100"])
def test_numbers_are_exact_for_decimals(number: str) -> None:
    assert PydanticSchema(Order).decode(f'{{"amount": {number}}}'.encode()) == Order(amount=Decimal(number.strip('"')))


@pytest.mark.parametrize("text", ["NaN", '{"a": Infinity}', "[-Infinity]"])
def test_nan_is_not_json(text: str) -> None:
    with pytest.raises(ValueError, match="is no number of JSON's"):
        parse_strict_json(text.encode())


def test_integers_have_as_many_digits_as_python_reads() -> None:
    assert sys.int_info.default_max_str_digits == 4300
