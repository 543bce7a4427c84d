"""Parsing: from the text of a selector to its expression."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import cast

from lark import Lark, Token
from lark.exceptions import UnexpectedCharacters, UnexpectedToken

from jmsql.selectors.builder import ExpressionBuilder
from jmsql.selectors.checker import check_depth
from jmsql.selectors.errors import SelectorError
from jmsql.selectors.expressions import Expression
from jmsql.values.identifiers import IDENTIFIER_CANDIDATE, RESERVED_WORDS, is_identifier

MAXIMUM_LENGTH = 65_536
"""How many characters a selector may have."""

_VALUE_STARTS = frozenset(("NAME", "NUMBER", "STRING"))
_OPERATORS = frozenset(("EQUAL", "PLUS", "_AND", "_OR"))
_SIGNS = {"LPAR": "'('", "RPAR": "')'", "COMMA": "','", "STRING": "a string in quotes", "$END": "the end"}


def parse(text: str) -> Expression:
    """Parse a selector.

    Returns:
        A condition.

    Raises:
        SelectorError: The text is no selector.
    """
    if len(text) > MAXIMUM_LENGTH:
        raise SelectorError(f"it is longer than {MAXIMUM_LENGTH} characters", MAXIMUM_LENGTH)
    try:
        selector = cast(Expression, _parser().parse(text))
    except UnexpectedCharacters as error:
        raise _unexpected_character(text, cast(int, error.pos_in_stream)) from error
    except UnexpectedToken as error:
        raise _unexpected_token(text, error) from error
    check_depth(selector)
    return selector


@cache
def _parser() -> Lark:
    grammar = resources.files(__package__).joinpath("grammar.lark").read_text("utf-8")
    return Lark(
        grammar.replace("IDENTIFIER_CANDIDATE", IDENTIFIER_CANDIDATE),
        parser="lalr",
        lexer="basic",
        transformer=ExpressionBuilder(),
        lexer_callbacks={"NAME": _name_or_keyword},
    )


def _name_or_keyword(token: Token) -> Token:
    word = token.upper()
    if token.isascii() and word in RESERVED_WORDS:
        token.type = "BOOLEAN" if word in ("TRUE", "FALSE") else f"_{word}"
    elif not is_identifier(str(token)):
        raise SelectorError("this is not an identifier: letters, '_', '$' and digits make one", token.start_pos or 0)
    return token


def _unexpected_character(text: str, position: int) -> SelectorError:
    match text[position]:
        case "'":
            return SelectorError("the string that starts here has no closing quote", position)
        case '"':
            return SelectorError("strings stand in single quotes, and names in none", position)
        case _:
            return SelectorError("this character has no meaning outside a string", position)


def _unexpected_token(text: str, error: UnexpectedToken) -> SelectorError:
    wanted = _wanted(error.accepts or error.expected)
    if error.token.type == "$END":
        return SelectorError(f"the selector ends where {wanted} belongs", len(text))
    return SelectorError(f"{str(error.token)[:40]!r} stands where {wanted} belongs", error.token.start_pos or 0)


def _wanted(accepted: set[str]) -> str:
    if accepted >= _VALUE_STARTS:
        return "a value"
    wanted = [name for token, name in _SIGNS.items() if token in accepted]
    if accepted & _OPERATORS:
        wanted.append("an operator")
    else:
        wanted.extend(sorted(token[1:] for token in accepted if token.startswith("_")))
    return " or ".join(wanted)
