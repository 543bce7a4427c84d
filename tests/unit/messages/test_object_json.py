from __future__ import annotations

import datetime as dt
import json
import math
import re
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jmsql.exceptions import MessageFormatException, MessageNotWriteableException
from jmsql.messages import Byte, Char, Float, Long, ObjectMessage, Short
from jmsql.messages.codecs.object_json import decode_object, encode_object
from tests.unit.messages.rows import as_jsonb_prints, received

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(st.characters() | st.sampled_from("\0\ud800\ufffe")),
    st.binary(),
    st.binary().map(bytearray),
    st.decimals(allow_nan=False),
    st.uuids(),
    st.datetimes(timezones=st.none() | st.just(dt.UTC)),
    st.dates(),
    st.times(),
    st.timedeltas(),
)
keys = st.one_of(st.text(), st.integers(), st.booleans(), st.none(), st.just("$type"), st.tuples(st.integers()))
objects = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner),
        st.lists(inner).map(tuple),
        st.dictionaries(keys, inner),
        st.sets(st.integers() | st.text()),
        st.frozensets(st.integers() | st.text()),
    ),
)


def copied(value: object) -> Any:
    return decode_object(as_jsonb_prints(encode_object(value)))


@given(objects)
def test_objects_of_standard_classes_survive_jsonb(value: object) -> None:
    result = copied(value)
    assert result == value
    assert types(result) == types(value)


def types(value: object) -> object:
    if isinstance(value, dict):
        return {key: types(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return type(value), [types(element) for element in value]
    return type(value), math.copysign(1, value) if isinstance(value, float) else None


def repr_of(value: object) -> str:
    return hex(value)[:20] + hex(value)[-20:] if isinstance(value, int) else repr(value)


@pytest.mark.parametrize(
    "value", [math.inf, -math.inf, -0.0, 1e300, 5e-324, 10**400, -(2**20_000), [math.inf]], ids=repr_of
)
def test_extreme_numbers_survive(value: object) -> None:
    result = copied(value)
    assert result == value
    assert repr_of(result) == repr_of(value)


def test_nan_survives() -> None:
    assert math.isnan(copied(math.nan))
    assert math.isnan(copied([math.nan])[0])
    assert copied(Decimal("NaN")).is_nan()


def test_envelope_is_plain_json_where_json_can_say_it() -> None:
    assert json.loads(encode_object({"number": 7, "lines": [{"sku": "x", "weight": 1.5}], "note": None})) == {
        "type": "dict",
        "version": 1,
        "data": {"number": 7, "lines": [{"sku": "x", "weight": 1.5}], "note": None},
    }
    assert json.loads(encode_object(Decimal("1.10"))) == {"type": "decimal", "version": 1, "data": "1.10"}


def test_values_of_other_classes_are_named_where_they_stand() -> None:
    text = encode_object({"id": UUID(int=0), "due": dt.date(2024, 2, 29)})
    assert json.loads(text)["data"] == {
        "id": {"$type": "uuid", "$value": "00000000-0000-0000-0000-000000000000"},
        "due": {"$type": "date", "$value": "2024-02-29"},
    }


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (Byte(-1), int),
        (Short(2), int),
        (Long(3), int),
        (Float(0.1), float),
        (Float(math.inf), float),
        (Char("\0"), str),
    ],
    ids=repr,
)
def test_values_read_from_a_map_may_stand_in_an_object(value: object, kind: type) -> None:
    """What `get_body(dict)` gives can be sent on with a list beside it."""
    for read in (copied(value), copied({"a": [value]})["a"][0]):
        assert read == value
        assert type(read) is kind


def test_object_that_contains_itself_is_refused() -> None:
    cycle: list[object] = []
    cycle.append({"again": (cycle, cycle)})
    with pytest.raises(MessageFormatException, match="contains itself"):
        ObjectMessage(cycle)


def test_object_that_occurs_twice_is_not_taken_for_a_cycle() -> None:
    shared = [1]
    assert copied([shared, shared]) == [[1], [1]]


@pytest.mark.parametrize("wrap", [lambda inner: [inner], lambda inner: (inner,), lambda inner: {"a": inner}])
def test_object_nested_too_deeply_is_refused(wrap: Any) -> None:
    deep: object = None
    for _ in range(40):
        deep = wrap(deep)
    assert copied(deep) == deep
    for _ in range(100_000):
        deep = wrap(deep)
    with pytest.raises(MessageFormatException, match="nested"):
        ObjectMessage(deep)


@pytest.mark.parametrize("value", [object(), 1j, range(3), [object()], {"a": lambda: None}, ValueError, ...])
def test_object_of_a_class_that_is_not_registered_is_refused(value: object) -> None:
    with pytest.raises(MessageFormatException, match="register_type"):
        ObjectMessage(value)


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{}",
        "1",
        '{"type": "dict", "version": 1}',
        '{"type": "dict", "version": 2, "data": {}}',
        '{"type": "dict", "version": "x", "data": {}}',
        '{"type": ["dict"], "version": 1, "data": {}}',
        '{"type": "os.system", "version": 1, "data": "true"}',
        '{"type": "list", "version": 1, "data": [{"$type": "os.system", "$value": "true"}]}',
        '{"type": "list", "version": 1, "data": [{"$type": "decimal"}]}',
        '{"type": "decimal", "version": 1, "data": "x"}',
        '{"type": "set", "version": 1, "data": [[]]}',
        '{"type": "uuid", "version": 1, "data": 5}',
    ],
)
def test_body_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(MessageFormatException):
        decode_object(text)


def test_type_that_is_not_allowed_is_named_with_advice() -> None:
    with pytest.raises(
        MessageFormatException, match=r"'shop\.Order', which this program does not allow: .*register_type"
    ):
        decode_object('{"type": "shop.Order", "version": 1, "data": {}}')


def test_received_object_is_read_only_until_cleared() -> None:
    message = received(ObjectMessage([1]))
    with pytest.raises(MessageNotWriteableException):
        message.object = [2]
    assert message.object == [1]
    message.clear_body()
    assert message.object is None
    message.object = [2]
    assert received(message).object == [2]


def test_refused_object_leaves_the_one_before() -> None:
    message = ObjectMessage([1])
    with pytest.raises(MessageFormatException):
        message.object = object()
    assert message.object == [1]


class Kite:
    """A class whose objects no message may hold."""


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"kite": Kite()}, "['kite']"),
        ({"a": 1, "lines": [{"goods": "x"}, {"goods": Kite()}]}, "['lines'][1]['goods']"),
        ([1, (2, Kite())], "[1][1]"),
        ({7: {None: Kite()}}, "[7][None]"),
        ({"x": {(1, 2): [Kite()]}}, "['x'][(1, 2)][0]"),
        ({"set": {Kite: 1}}, "['set'][<class"),
        ({"a" * 1000: Kite()}, "['aaaaaaa"),
    ],
)
def test_a_value_that_cannot_be_encoded_is_named_with_its_place(body: object, place: str) -> None:
    with pytest.raises(MessageFormatException, match=f"^At {re.escape(place)}") as caught:
        ObjectMessage(body)
    assert "register" in str(caught.value)
    assert len(str(caught.value)) < 600
    assert isinstance(caught.value.__cause__, MessageFormatException)


def test_the_place_of_a_cycle_and_of_a_deep_value_is_short() -> None:
    deep: object = 1
    for _ in range(300):
        deep = {"deeper": deep}
    cycle: dict[str, object] = {}
    cycle["again"] = cycle
    with pytest.raises(MessageFormatException, match=r"^At (\['deeper'\]){8}…: The object is nested too deeply"):
        ObjectMessage(deep)
    with pytest.raises(MessageFormatException, match=r"^At \['again'\]: The object contains itself"):
        ObjectMessage(cycle)
