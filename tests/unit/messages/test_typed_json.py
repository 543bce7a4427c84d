from __future__ import annotations

import json
import math
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jmsql.exceptions import MessageFormatException
from jmsql.messages import Byte, Char, Float, Long, Short, Value
from jmsql.messages.types.typed_json import read_array, read_object, write_array, write_object
from tests.unit.messages.rows import as_jsonb_prints

texts = st.text(st.characters() | st.sampled_from('\0\ud800\udfff\ufffe"\\'))
values: st.SearchStrategy[Value] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**7), 2**7 - 1).map(Byte),
    st.integers(-(2**15), 2**15 - 1).map(Short),
    st.characters(max_codepoint=0xFFFF).map(Char),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**63), 2**63 - 1).map(Long),
    st.floats(width=32).map(Float),
    st.floats(),
    texts,
    st.binary(),
)


def printed(texts: tuple[str, str | None]) -> tuple[str, str | None]:
    return as_jsonb_prints(texts[0]), None if texts[1] is None else as_jsonb_prints(texts[1])


def identity(value: Value) -> tuple[type, object]:
    """What must not change: the exact class, and every bit."""
    return type(value), struct.pack(">d", value) if isinstance(value, float) and not math.isnan(value) else repr(value)


@given(st.dictionaries(texts, values))
def test_named_values_survive_jsonb(members: dict[str, Value]) -> None:
    result = read_object(*printed(write_object(members)))
    assert {name: identity(value) for name, value in result.items()} == {
        name: identity(value) for name, value in members.items()
    }


@given(st.dictionaries(texts, values))
def test_named_values_with_nulls_apart_survive_jsonb(members: dict[str, Value]) -> None:
    result = read_object(*printed(write_object(members, omit_nulls=True)))
    assert {name: identity(value) for name, value in result.items()} == {
        name: identity(value) for name, value in members.items()
    }


@given(st.lists(values))
def test_rows_of_values_survive_jsonb(row: list[Value]) -> None:
    assert list(map(identity, read_array(*printed(write_array(row))))) == list(map(identity, row))


def test_json_says_the_types_that_it_can() -> None:
    text, types = write_object({"a": True, "b": "text", "c": 5, "d": 2**40, "e": 5.0, "f": 1e16, "g": 1e-7})
    assert text == (
        '{"a": true, "b": "text", "c": 5, "d": 1099511627776, "e": 5.0, "f": 10000000000000000.0, "g": 0.0000001}'
    )
    assert types is None


def test_types_that_json_cannot_say_stand_beside_it() -> None:
    text, types = write_object(
        {"a": Byte(1), "b": Short(2), "c": Long(3), "d": Long(2**31), "e": Float(0.1), "f": Char("c"), "g": b"bytes"}
    )
    assert json.loads(text) == {"a": 1, "b": 2, "c": 3, "d": 2**31, "e": 0.10000000149011612, "f": "c", "g": "Ynl0ZXM="}
    assert types is not None
    assert json.loads(types) == {"a": "byte", "b": "short", "c": "long", "e": "float", "f": "char", "g": "bytes"}


def test_numbers_that_json_does_not_have_stand_in_arrays() -> None:
    text, types = write_array([float("nan"), float("inf"), float("-inf"), -0.0, Float(float("nan"))])
    assert text == '[["NaN"], ["Infinity"], ["-Infinity"], ["-0.0"], ["NaN"]]'
    assert types == '{"4": "float"}'


def test_null_property_is_missing_to_sql() -> None:
    assert write_object({"a": None, "b": 1}, omit_nulls=True) == ('{"b": 1}', '{"a": "null"}')


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("[", None),
        ("[]", None),
        ("1", None),
        ('{"a": {}}', None),
        ('{"a": [1]}', None),
        ('{"a": ["x"]}', None),
        ('{"a": 300}', '{"a": "byte"}'),
        ('{"a": 1}', '{"a": "unheard of"}'),
        ('{"a": "x"}', '{"a": "long"}'),
        ('{"a": 1}', "[]"),
        ('{"a": 9223372036854775808}', None),
        ('{"a": "&"}', '{"a": "bytes"}'),
        ("[" * 100_000, None),
    ],
)
def test_json_that_was_written_by_others_and_makes_no_sense_is_refused(text: str, types: str | None) -> None:
    with pytest.raises(MessageFormatException):
        read_object(text, types)
