from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jmsql.values.identifiers import IDENTIFIER_CANDIDATE, RESERVED_WORDS, is_identifier


@pytest.mark.parametrize(
    "name", ["a", "_", "$", "A1", "naïve", "日本語", "€uro", "a\u0301", "a‿b", "Ⅷ", "a\0", "a\u200db"]
)
def test_java_identifier_is_one(name: str) -> None:
    assert is_identifier(name)


@pytest.mark.parametrize("name", ["", "1a", "a b", "a.b", "a-b", "a\n", "\u0301", "\0a", "a\ud800", "½", "a\u2028"])
def test_anything_else_is_none(name: str) -> None:
    assert not is_identifier(name)


@pytest.mark.parametrize("word", sorted(RESERVED_WORDS))
def test_reserved_word_is_none_in_any_case(word: str) -> None:
    assert not is_identifier(word)
    assert not is_identifier(word.lower())
    assert not is_identifier(word.title())
    assert is_identifier(word + "_")


@given(st.text())
def test_scanner_finds_every_identifier_whole(name: str) -> None:
    if is_identifier(name):
        assert re.fullmatch(IDENTIFIER_CANDIDATE, name)
