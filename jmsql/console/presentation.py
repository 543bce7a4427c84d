"""How values look in a page: everything that came from elsewhere is text, and nothing in it is invisible."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import pairwise
from urllib.parse import urlencode

from markupsafe import Markup, escape

from jmsql import BytesMessage, MapMessage, Message, MessageFormatException, StreamMessage
from jmsql.console.rates import Rate
from jmsql.messages.types.values import type_name
from jmsql.store.administration.batches import BatchSummary
from jmsql.store.administration.looks import Content
from jmsql.values.postgresql_text import from_postgresql

_BIDIRECTIONAL = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_KEPT = frozenset("\n\t")
_CODE = re.compile(r"""`((?:'[^']*'|"[^"]*"|[^`'"])*)`""")  # in quotes, such as a queue's name, it may have backticks
NOTHING = "\N{EN DASH}"
"""Stands where there is no value."""
_LONGEST_LINE_OF_HEX = 4096


def visible(text: object) -> str:
    """Return a text whose control characters, and those that turn the direction of text, can be seen."""
    written = str(text)
    if written.isprintable():
        return written
    return "".join(map(_visible, written))


def _visible(character: str) -> str:
    if character in _KEPT:
        return character
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    is_hidden = unicodedata.category(character) in {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}
    if is_hidden or character in _BIDIRECTIONAL or code & 0xFFFE == 0xFFFE:
        return f"[U+{code:04X}]"
    return character


def number(value: float | None) -> str:
    """Return a number that is easy to read."""
    if value is None:
        return NOTHING
    return f"{value:,.0f}"


def rate(value: float | None) -> str:
    """Return messages a second."""
    if not value:
        return "0"
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def duration(seconds: float | None, *, in_seconds: bool = False) -> str:
    """Return how long something takes, roughly; with `in_seconds`, seconds below a minute."""
    if seconds is None:
        return NOTHING
    minutes = int(seconds // 60)
    if minutes < 1:
        return f"{int(seconds)} s" if in_seconds else "under 1 min"
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes // 1440} d {minutes % 1440 // 60} h"


def size(count: int) -> str:
    """Return how many bytes there are."""
    if count < 1024:
        return f"{count} B"
    return f"{count / 1024:,.1f} KiB" if count < 1024 * 1024 else f"{count / 1024 / 1024:,.1f} MiB"


def moment(value: datetime | int | None) -> Markup:
    """Return a time, in UTC until the page's script shows it in the time zone of the reader."""
    if value is None or value == 0:
        return escape(NOTHING)
    when = datetime.fromtimestamp(value / 1000, UTC) if isinstance(value, int) else value.astimezone(UTC)
    utc = f"{when:%Y-%m-%d %H:%M:%S} UTC"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(f"{when:%Y-%m-%dT%H:%M:%SZ}", utc, utc)


def age(value: datetime | int | None, now: float, *, in_seconds: bool = False) -> Markup:
    """Return how long ago something was, with the time itself at hand.

    Seconds would make a page differ at each look, which then is sent again: only pages of current work show them.
    """
    if value is None or value == 0:
        return escape(NOTHING)
    when = datetime.fromtimestamp(value / 1000, UTC) if isinstance(value, int) else value.astimezone(UTC)
    shown = duration(max(0.0, now - when.timestamp()), in_seconds=in_seconds)
    return Markup('<time datetime="{}" title="{}" data-age>{}</time>').format(
        f"{when:%Y-%m-%dT%H:%M:%SZ}", f"{when:%Y-%m-%d %H:%M:%S} UTC", shown
    )


_WIDTH, _HEIGHT = 90, 22


def sparkline(past: list[Rate], name: str) -> Markup:
    """Draw the rates of the last quarter of an hour."""
    most = max((max(each) for each in past), default=0.0)
    label = f"{visible(name)}: the last 15 minutes, at most {rate(most)} a second"
    if most == 0:
        label = f"{visible(name)}: nothing came or went in the last 15 minutes"

    def points(values: list[float]) -> str:
        scale = (_HEIGHT - 2) / most if most else 0.0
        return " ".join(f"{x},{_HEIGHT - 1 - value * scale:.1f}" for x, value in enumerate(values))

    return Markup(
        '<svg class="{}" viewBox="0 0 {} {}" role="img" aria-label="{}" preserveAspectRatio="none">'
        '<polyline class="in" points="{}"/><polyline class="out" points="{}"/></svg>'
    ).format(
        "spark" if most else "spark still",
        _WIDTH - 1,
        _HEIGHT,
        label,
        points([each.incoming for each in past]),
        points([each.outgoing for each in past]),
    )


def batch_bar(batch: BatchSummary) -> Markup:
    """Draw the parts of a batch's messages that are done, have failed, have ended otherwise, and wait."""
    ended_otherwise = batch.expired + batch.cancelled
    parts = {"done": batch.done, "failed": batch.failed, "otherwise": ended_otherwise}
    bars, x = [], 0.0
    for name, count in parts.items():
        width = 100 * count / batch.total if batch.total else 0.0
        if width:
            bars.append(Markup('<rect class="{}" x="{:.2f}" width="{:.2f}" height="8"/>').format(name, x, width))
        x += width
    label = (
        f"{batch.done:,} done, {batch.failed:,} failed, {ended_otherwise:,} expired or cancelled, "
        f"{batch.waiting:,} waiting"
    )
    return Markup(
        '<svg class="bar" viewBox="0 0 100 8" role="img" aria-label="{}" preserveAspectRatio="none">{}</svg>'
    ).format(label, Markup("").join(bars))


def group_query(group: str) -> str:
    """Return the query of a queue's page that shows the messages of a group."""
    quoted = group.replace("'", "''")
    return urlencode({"selector": f"JMSXGroupID = '{quoted}'"})


def advice(text: str) -> Markup:
    """Return advice, with commands as code."""
    parts = _CODE.split(visible(text))
    shown = [
        escape(part) if index % 2 == 0 else Markup("<code>{}</code>").format(part) for index, part in enumerate(parts)
    ]
    return Markup("").join(shown)


def typed_properties(message: Message) -> list[tuple[str, str, str]]:
    """Return the names, types and values of a message's properties.

    Raises:
        MessageFormatException: They cannot be read.
    """
    names = sorted(name for name in message.properties if name != "JMSXDeliveryCount")
    return [(name, _type(message.properties[name]), _value(message.properties[name])) for name in names]


def _type(value: object) -> str:
    try:
        return type_name(value).partition(" ")[2]
    except TypeError:
        return type(value).__name__


def _value(value: object) -> str:
    if isinstance(value, bytes):
        return value.hex(" ")
    return str(value).lower() if isinstance(value, bool) else str(value)


class Body:
    """A body as a page shows it: `form` says how: "none", "text", "json", "map", "stream" or "hex".

    Args:
        content: The stored content.
        message: The message that was read from it; None: it is too long.
    """

    def __init__(self, content: Content | None, message: Message | None) -> None:
        self.size = 0 if content is None else content.size
        self.is_cut = content is not None and message is None
        self.entries: list[tuple[str, str, str]] = []
        self.text = ""
        self.form = "none"
        self.problem: str | None = None
        if content is None:
            return
        try:
            self._read(content, message)
        except (MessageFormatException, ValueError) as error:
            self.problem = str(error)
            self.form, self.text = "text", from_postgresql(content.text or content.json or "")

    def _read(self, content: Content, message: Message | None) -> None:
        if content.text is not None:
            self.form, self.text = "text", from_postgresql(content.text)
            pretty = None if self.is_cut else indented(self.text)
            if pretty is not None:
                self.form, self.text = "json", pretty
        elif content.bytes is not None:
            self.form, self.text = "hex", hexadecimal(content.bytes[:_LONGEST_LINE_OF_HEX])
            self.is_cut = self.is_cut or len(content.bytes) > _LONGEST_LINE_OF_HEX
        elif isinstance(message, MapMessage):
            self.form = "map"
            self.entries = [(name, _type(message[name]), _value(message[name])) for name in message.map_names]
        elif isinstance(message, StreamMessage):
            self.form = "stream"
            values = json.loads(content.json or "[]")
            self.entries = [(str(place), "", from_postgresql(_value(value))) for place, value in enumerate(values, 1)]
        elif content.json is not None:
            pretty = None if self.is_cut else indented(content.json)
            self.form, self.text = ("json", pretty) if pretty is not None else ("text", content.json)
            self.text = from_postgresql(self.text)
        elif isinstance(message, BytesMessage):
            self.form = "hex"


def indented(text: str) -> str | None:
    """Return a JSON document with its lines indented, or None if the text is no object and no array."""
    if text.lstrip()[:1] not in {"{", "["}:
        return None
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    return "".join(_with_space(_TOKEN.findall(text)))


_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


def _with_space(parts: list[str]) -> Iterator[str]:
    """Yield the parts as they are written, numbers too, with white space between them."""
    depth = 0
    for part, following in pairwise([*parts, ""]):
        if part in {"{", "["}:
            depth += 1
            yield part if following in {"}", "]"} else part + "\n" + "  " * depth
        elif part in {"}", "]"}:
            depth -= 1
            yield part
        elif part == ",":
            yield ",\n" + "  " * depth
        else:
            yield ": " if part == ":" else part
        if part not in {"{", "[", ",", ":"} and following in {"}", "]"}:
            yield "\n" + "  " * (depth - 1)


def hexadecimal(content: bytes) -> str:
    """Return bytes in lines of sixteen, with the place before and the characters behind."""
    lines = []
    for start in range(0, len(content), 16):
        part = content[start : start + 16]
        characters = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in part)
        lines.append(f"{start:08x}  {part[:8].hex(' '):<23}  {part[8:].hex(' '):<23}  {characters}")
    return "\n".join(lines)
