"""Pages of charts: messages in and out, the time in the queue, the time of handling, and failures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from markupsafe import Markup
from starlette.exceptions import HTTPException

from jmsql.console.access import Level
from jmsql.console.database import Database
from jmsql.console.poller import Poller
from jmsql.console.presentation import NOTHING, number, rate, visible
from jmsql.console.views import Reply, RouteRow, View
from jmsql.store.administration import looks
from jmsql.store.administration.past_rates import PastRates, Slot, past_rates

_WIDTH, _HEIGHT = 600, 100


class Span(NamedTuple):
    """A time that a chart shows, and the duration of its slots in seconds."""

    name: str
    label: str
    seconds: int
    slots: int
    each: str


SPANS = (
    Span("15m", "15 minutes", 60, 15, "minute"),
    Span("8h", "8 hours", 600, 48, "10 minutes"),
    Span("week", "a week", 10_800, 56, "3 hours"),
)


class Chart(NamedTuple):
    """A chart with its labels, which stand beside the drawing, and its numbers for those who cannot see it."""

    title: str
    latest: str
    top: str
    drawing: Markup
    keys: list[tuple[str, str]]
    """The classes and names of its lines, if there are several."""
    columns: list[str]
    rows: list[tuple[datetime, list[str]]]


class RatePages:
    """Makes the pages of charts."""

    def __init__(self, database: Database, poller: Poller) -> None:
        self._database = database
        self._poller = poller

    def routes(self) -> Iterator[RouteRow]:
        """Return the pages: address, function, the level that a visitor needs, and True if it is for forms."""
        yield "/rates", self.all, Level.LOOK, False
        yield "/destinations/{queue}/rates", self.destination, Level.LOOK, False
        yield "/topics/{topic}/rates", self.topic, Level.LOOK, False

    def all(self, view: View) -> Reply:
        """Show the rates of all destinations together."""
        return self._charts(view, 0, None, "/", "All destinations")

    def destination(self, view: View) -> Reply:
        """Show the rates of a queue or subscription."""
        look = self._database.read(looks.destination(view.small_number("queue")))
        if look is None:
            raise HTTPException(404)
        name = (look.subscription or "not durable") if look.is_subscription else look.name
        kind = f"Subscription to {look.name}" if look.is_subscription else "Queue"
        return self._charts(view, look.queue_id, kind, f"/destinations/{look.queue_id}", name or "")

    def topic(self, view: View) -> Reply:
        """Show the rates of a topic."""
        topic = self._database.read(looks.topic(view.small_number("topic")))
        if topic is None:
            raise HTTPException(404)
        return self._charts(view, -topic.topic_id, "Topic", f"/topics/{topic.topic_id}", topic.name)

    def _charts(self, view: View, destination: int, kind: str | None, address: str, name: str) -> Reply:
        wanted = view.query.get("span") or SPANS[0].name
        span = next((each for each in SPANS if each.name == wanted), None)
        if span is None:
            raise HTTPException(400, f"There is no such span. There are {', '.join(each.name for each in SPANS)}.")
        past, start = self._poller.shared(("rates", destination, span), lambda: self._past(destination, span))
        values: dict[str, Any] = {
            "charts": _drawn(past.slots, span, start, is_topic=destination < 0),
            "days": past.days,
            "is_empty": not any(each.sent or each.acknowledged or each.rolled_back for each in past.slots),
            "span": span,
            "spans": SPANS,
            "starts_at": datetime.fromtimestamp(start, UTC),
            "ends_at": datetime.fromtimestamp(start + span.seconds * span.slots, UTC),
            "kind": kind,
            "name": name,
            "address": address,
            "title": f"Rates of {visible(name)}",
        }
        return Reply("rates.html", values)

    def _past(self, destination: int, span: Span) -> tuple[PastRates, float]:
        start = (self._database.now() // span.seconds + 1 - span.slots) * span.seconds
        return self._database.read(past_rates(destination, start, span.seconds, span.slots)), start


class _Line(NamedTuple):
    name: str
    css: str
    values: list[float | None]


def _drawn(slots: Sequence[Slot], span: Span, start: float, *, is_topic: bool) -> list[Chart]:
    times = [datetime.fromtimestamp(start + place * span.seconds, UTC) for place in range(span.slots)]

    def chart(title: str, lines: list[_Line], write: Callable[[float | None], str]) -> Chart:
        return _chart(title, lines, write, times, span)

    came = _Line("in", "in", [each.sent / span.seconds for each in slots])
    went = _Line("out", "out", [each.acknowledged / span.seconds for each in slots])
    if is_topic:  # its subscriptions deliver, and it does not
        return [chart("Published, a second", [came], rate)]
    return [
        chart("In and out, a second", [came, went], rate),
        chart("Failed deliveries", [_Line("failed", "bad", [each.rolled_back or None for each in slots])], number),
        chart("Time in the queue", [_Line("mean", "in", [each.time_in_queue for each in slots])], seconds),
        chart("Time of handling", [_Line("mean", "out", [each.handling_time for each in slots])], seconds),
    ]


def _chart(
    title: str, lines: list[_Line], write: Callable[[float | None], str], times: list[datetime], span: Span
) -> Chart:
    most = max((value for line in lines for value in line.values if value is not None), default=0.0)
    top = _ceiling(most)
    several = len(lines) > 1
    last = [next((each for each in reversed(line.values) if each), None) for line in lines]
    latest = ", ".join(
        f"{line.name} {write(value)}" if several else write(value) for line, value in zip(lines, last, strict=True)
    )
    said = f"at most {write(most)}, last {latest}" if most else "nothing"
    drawing = Markup('<svg viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">{}</svg>').format(
        _WIDTH, _HEIGHT, f"{title}, each {span.each} of {span.label}: {said}", _shapes(lines, top)
    )
    return Chart(
        title,
        f"last {latest}" if most else "nothing",
        write(top) if most else NOTHING,
        drawing,
        [(line.css, line.name) for line in lines] if several else [],
        [line.name for line in lines],
        [(when, [write(line.values[place]) for line in lines]) for place, when in enumerate(times)],
    )


def _shapes(lines: list[_Line], top: float) -> Markup:
    """Return bars, or with several lines steps, which do not hide each other."""
    width = _WIDTH / len(lines[0].values)
    found = []
    for line in lines:
        heights = [0.0 if value is None or not top else value / top * (_HEIGHT - 2) for value in line.values]
        if len(lines) == 1:
            found += [
                Markup('<rect class="{}" x="{}" y="{}" width="{}" height="{}"/>').format(
                    line.css, f"{place * width + 1:.1f}", f"{_HEIGHT - height:.1f}", f"{width - 2:.1f}", f"{height:.1f}"
                )
                for place, height in enumerate(heights)
                if height
            ]
        else:
            points = " ".join(
                f"{x:.1f},{_HEIGHT - 1 - height:.1f}"
                for place, height in enumerate(heights)
                for x in (place * width, (place + 1) * width)
            )
            found.append(Markup('<polyline class="{}" points="{}"/>').format(line.css, points))
    return Markup("").join(found)


def _ceiling(value: float) -> float:
    """Return the next number of 1, 2 or 5 times a power of ten."""
    if value <= 0:
        return 0.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(factor * power for factor in (1, 2, 5, 10) if value <= factor * power * 1.0000001)


def seconds(value: float | None) -> str:
    """Return a duration that is easy to read."""
    if value is None:
        return NOTHING
    for limit, factor, unit in ((1, 1000, "ms"), (120, 1, "s"), (7200, 1 / 60, "min"), (172_800, 1 / 3600, "h")):
        if value < limit:
            shown = value * factor
            return f"{shown:.3g} {unit}" if shown < 1000 else f"{shown:,.0f} {unit}"
    return f"{value / 86400:.3g} d"
