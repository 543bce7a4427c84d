"""Random selectors that are valid by construction, and random messages for them, both full of edge values.

Numbers and strings come from small sets, so that equal values meet often; each name has a type that it holds most of
the time, and any other now and then.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from random import Random

from jmsql.messages import Byte, DeliveryMode, Float, Long, Message, PropertyValue, Short
from jmsql.selectors.expressions import ArithmeticOperator, ComparisonOperator

BOOLEAN_NAMES = ("flag", "on")
NUMBER_NAMES = ("n", "count", "_weight", "$price")
STRING_NAMES = ("color", "s", "größe", "名前", "JMSXGroupID")
OTHER_NAMES = ("any", "missing", "JMSXDeliveryCount")
PROPERTY_NAMES = (*BOOLEAN_NAMES, *NUMBER_NAMES, *STRING_NAMES, *OTHER_NAMES)

LONGS = (0, 1, -1, 2, 3, 5, 7, 10, -10, 2**31 - 1, -(2**31), 2**53 - 1, 2**53, 2**53 + 1, 2**62, 2**63 - 1, -(2**63))
DOUBLES = (
    *(0.0, 1.0, -1.0, 0.5, 2.0, 0.1, 0.2, 0.3, -2.5, 1e10, 1e-10, 1e23, 1e300, -1e300, 1e154, 1e-154, 1e-160),
    *(float(2**53), float(2**53 + 2), 2.0**62, 2.0**63, -(2.0**63), 2.0**-537, 2.0**-538, 2.0**512, 2.0**1023),
    *(sys.float_info.max, -sys.float_info.max, sys.float_info.min, 4.9e-324, -4.9e-324),
)
SPECIAL_DOUBLES = (math.nan, math.inf, -math.inf, -0.0)
FLOATS = (0.1, 0.5, 1.0, 3.4028234663852886e38, 1e-45, -2.5)
STRINGS = (
    *("", " ", "red", "RED", "blue", "bluE", "it's", "''", '"red"', "a%b", "a_b", "a\\b", "ab", "a", "b", "%", "_"),
    *("\\", "{a,b}", "NULL", "true", "1", "2.5", "NaN", "\n", "a\nb", "\t", "\0", "a\0b", "0", "\ud800", "\udfff"),
    *("\ufffe", "\ufffe0", "a\ufffeb", "\ufffe\ufffe", "é", "e\u0301", "😀", "\ud83d\ude00", "\uffff", "PERSISTENT"),
)
PATTERN_PARTS = ("%", "%", "_", "_", "a", "b", "re", "0", "\0", "\ufffe", "\ud800", "😀", "\n", "\\", "'", ".", "*")
MESSAGE_IDS = tuple(f"ID:00000000-0000-4000-8000-{number:012x}" for number in range(3))

COMPARISONS: tuple[ComparisonOperator, ...] = ("=", "<>", "<", "<=", ">", ">=")
ARITHMETIC: tuple[ArithmeticOperator, ...] = ("+", "-", "*", "/")


def random_value(random: Random) -> PropertyValue:
    """A property value of any type, with null among them."""
    return random.choice((_boolean, _number, _string, lambda _: None))(random)


def _boolean(random: Random) -> bool:
    return random.random() < 0.5


def _number(random: Random) -> int | float:
    kind = random.randrange(7)
    if kind == 0:
        return Byte(random.choice((-128, -1, 0, 1, 127)))
    if kind == 1:
        return Short(random.choice((-(2**15), 0, 5, 2**15 - 1)))
    if kind == 2:
        return Long(random.choice(LONGS))
    if kind == 3:
        return Float(random.choice((*FLOATS, *SPECIAL_DOUBLES)))
    if kind == 4:
        return random.choice(SPECIAL_DOUBLES)
    return random.choice(LONGS if kind == 5 else DOUBLES)


def _string(random: Random) -> str:
    if random.random() < 0.8:
        return random.choice(STRINGS)
    return "".join(random.choices(PATTERN_PARTS, k=random.randrange(6)))


def random_message(random: Random) -> Message:
    """A message with random properties and the headers that a selector can name."""
    message = Message()
    for name in PROPERTY_NAMES:
        draw = random.random()
        if name in ("missing", "JMSXDeliveryCount") or draw < 0.15:
            continue
        if name == "any" or (draw < 0.25 and name != "JMSXGroupID"):
            value = random_value(random)
        elif name in BOOLEAN_NAMES:
            value = _boolean(random)
        else:
            value = _number(random) if name in NUMBER_NAMES else _string(random)
        message.set_object_property(name, value)
    message.jms_message_id = random.choice((None, *MESSAGE_IDS))
    message.jms_timestamp = random.choice((0, 1, 1_700_000_000_000))
    message.jms_priority = random.randrange(10)
    message.jms_delivery_mode = random.choice(list(DeliveryMode))
    message.jms_correlation_id = random.choice((None, _string(random)))
    message.jms_type = random.choice((None, _string(random)))
    return message


@dataclass
class SelectorGenerator:
    """Writes random selectors."""

    random: Random

    def selector(self) -> str:
        return self.condition(self.random.choice((0, 0, 1, 1, 2, 3)))

    def condition(self, depth: int) -> str:
        """A condition with at most `depth` levels of logical operators."""
        if depth > 0:
            choice = self.random.randrange(4)
            if choice == 0:
                return f"{self._word('not')} {self._bracketed(self.condition(depth - 1))}"
            if choice == 1:
                left, right = (self._bracketed(self.condition(depth - 1)) for _ in range(2))
                return f"{left} {self.random.choice(('=', '<>'))} {right}"
            operands = (self._bracketed(self.condition(depth - 1)) for _ in range(self.random.randrange(2, 5)))
            return f" {self._word('and' if choice == 2 else 'or')} ".join(operands)
        return self.random.choice(
            (
                self._number_comparison,
                self._number_comparison,
                self._simple_number_comparison,
                self._simple_number_comparison,
                self._equality,
                self._equality,
                self._between,
                self._in,
                self._like,
                self._like,
                self._is_null,
                self._boolean,
                self._header_test,
            )
        )()

    def number(self, depth: int) -> str:
        """A number with at most `depth` levels of arithmetic."""
        choice = self.random.randrange(8)
        if depth == 0 or choice < 3:
            return self.random.choice((self._number_literal, self._number_literal, self._number_name, self._any_name))()
        if choice == 3:
            return f"{self.random.choice('+-')} {self._bracketed(self.number(depth - 1))}"
        operator = self.random.choice(ARITHMETIC)
        return f"{self._bracketed(self.number(depth - 1))} {operator} {self._bracketed(self.number(depth - 1))}"

    def _word(self, word: str) -> str:
        return self.random.choice((word, word.upper(), word.title()))

    def _not(self) -> str:
        return self._word("not") + " " if self.random.random() < 0.4 else ""

    def _bracketed(self, text: str) -> str:
        return f"({text})"

    def _comparison_operator(self) -> str:
        return self.random.choice(COMPARISONS)

    def _number_comparison(self) -> str:
        depth = self.random.randrange(4)
        return f"{self.number(depth)} {self._comparison_operator()} {self.number(self.random.randrange(3))}"

    def _simple_number_comparison(self) -> str:
        operands = [self._number_name(), self._number_literal()]
        self.random.shuffle(operands)
        return f" {self._comparison_operator()} ".join(operands)

    def _equality(self) -> str:
        left = self.random.choice((self._string_name, self._boolean_name, self._any_name))()
        kinds = [self._string_literal, self._string_literal, self._any_name]
        if not left.startswith("JMS"):
            kinds.append(self._boolean)
        operands = [left, self.random.choice(kinds)()]
        self.random.shuffle(operands)
        return f" {self.random.choice(('=', '<>'))} ".join(operands)

    def _between(self) -> str:
        if self.random.random() < 0.6:
            operands = self._number_name(), self._number_literal(), self._number_literal()
        else:
            operands = self.number(1), self.number(1), self.number(1)
        return f"{operands[0]} {self._not()}between {operands[1]} and {operands[2]}"

    def _in(self) -> str:
        strings = ", ".join(self._string_literal() for _ in range(self.random.randrange(1, 12)))
        return f"{self._string_name()} {self._not()}in ({strings})"

    def _like(self) -> str:
        parts = self.random.choices(PATTERN_PARTS, k=self.random.randrange(5))
        escape = ""
        if self.random.random() < 0.3:
            character = self.random.choice("!\\%_\0😀")
            parts = [part for part in parts if part != character]
            parts.insert(self.random.randrange(len(parts) + 1), character + self.random.choice(("%", "_", character)))
            escape = f" escape {quoted(character)}"
        return f"{self._string_name()} {self._not()}like {quoted(''.join(parts))}{escape}"

    def _is_null(self) -> str:
        name = self.random.choice((*PROPERTY_NAMES, "JMSMessageID", "JMSTimestamp", "JMSCorrelationID", "JMSType"))
        return f"{name} is {self._not()}null"

    def _boolean(self) -> str:
        return self.random.choice(("true", "FALSE", self._boolean_name(), self.random.choice(PROPERTY_NAMES)))

    def _header_test(self) -> str:
        equality = self.random.choice(("=", "<>"))
        return self.random.choice(
            (
                f"JMSMessageID {equality} {quoted(self.random.choice((*MESSAGE_IDS, MESSAGE_IDS[0].upper(), 'ID:')))}",
                f"JMSMessageID {self._not()}in ('x', {quoted(self.random.choice(MESSAGE_IDS))})",
                f"JMSMessageID {equality} JMSType",
                f"JMSDeliveryMode {equality} {self.random.choice(('color', chr(39) + 'PERSISTENT' + chr(39)))}",
                f"JMSDeliveryMode {self._not()}like 'NON%'",
                f"JMSDeliveryMode {self._not()}in ('NON_PERSISTENT')",
                f"JMSCorrelationID {equality} {self._string_literal()}",
                f"JMSType {self._comparison_operator()[:1].translate({60: 61, 62: 61})} {self._string_name()}",
                f"JMSPriority {self._comparison_operator()} {self.number(1)}",
                f"JMSTimestamp {self._comparison_operator()} {self._number_literal()}",
                f"JMSTimestamp {self._not()}between 0 and JMSPriority",
            )
        )

    def _number_name(self) -> str:
        return self.random.choice((*NUMBER_NAMES, "JMSPriority"))

    def _string_name(self) -> str:
        return self.random.choice((*STRING_NAMES, *STRING_NAMES, "any", "n", "missing", "JMSType", "JMSCorrelationID"))

    def _boolean_name(self) -> str:
        return self.random.choice(BOOLEAN_NAMES)

    def _any_name(self) -> str:
        return self.random.choice(PROPERTY_NAMES)

    def _string_literal(self) -> str:
        return quoted(_string(self.random))

    def _number_literal(self) -> str:
        if self.random.random() < 0.5:
            value = self.random.choice(LONGS)
            return self.random.choice((str(value), f"{value}L", f"-{value}" if value > 0 else f"{value}"))
        approximate = self.random.choice((*DOUBLES, -0.0))
        return self.random.choice((repr(approximate), f"{approximate!r}D", f"-{approximate!r}"))


def quoted(text: str) -> str:
    """Write a string literal."""
    return "'" + text.replace("'", "''") + "'"
