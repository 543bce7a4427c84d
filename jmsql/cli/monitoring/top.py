"""`jmsql top`."""

from __future__ import annotations

import os
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from datetime import datetime
from functools import partial
from typing import Annotated, NamedTuple

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from jmsql.cli.options import Exact, Pattern, Schema, Url, open_database
from jmsql.cli.output import console, json_text, print_json, shown_number, table, write
from jmsql.client._sync.link.opening import open_runner
from jmsql.concurrency.readiness import wait_until_ready
from jmsql.exceptions import JMSException
from jmsql.store.administration import overview
from jmsql.store.administration.diagnosis import NO_LOCK, TOO_LONG
from jmsql.store.administration.limits import LimitNow, limits_now
from jmsql.store.administration.looks import COUNTED
from jmsql.store.administration.measurement import LONGEST_LOOK, STATES, StoreMeasurement
from jmsql.store.administration.now import ConsumerNow, Rates, consumers_now
from jmsql.store.administration.overview import DestinationOverview, Memory, OverviewOrder
from jmsql.store.administration.running import RunningMessage, running
from jmsql.store.errors import is_connection_lost
from jmsql.store.wire._sync.runner import PsycopgRunner
from jmsql.values.clock import monotonic
from jmsql.values.counting import counted


class Keyboard:
    """The terminal that the standard input is, if it is one."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def wait(self, seconds: float) -> str | None:
        """Wait so long for a key, and return it."""
        descriptors = [] if self._descriptor is None else [self._descriptor]
        pressed = wait_until_ready(descriptors, seconds)
        if self._descriptor is None or not pressed:
            return None
        key = os.read(self._descriptor, 1)
        if not key:  # the terminal is gone
            self._descriptor = None
            return None
        return key.decode(errors="replace")


@contextmanager
def keyboard() -> Iterator[Keyboard]:
    """Read keys as they are pressed, without showing them, for as long as the block lasts. Ctrl-C still interrupts."""
    if not sys.stdin.isatty():
        yield Keyboard(None)
        return
    descriptor = sys.stdin.fileno()
    former = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield Keyboard(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, former)


_REST = 4.0
"""How many times as long as a look took, the store is left alone after it."""

_LONG = 60.0
_CONSUMERS = 20
"""The most consumers shown."""
_LIMITS = 20
"""The most limits shown."""
_RUNNING = 20
"""The most messages shown with their progress."""
_NUMBERS = ("ready", "claimed", "waiting", "delayed", "in/s", "out/s", "back/s", "redelivered", "consumers", "oldest")
_SPARE = ("subscription", "redelivered", "back/s", "delayed", "waiting", "claimed", "oldest", "consumers")
_ORDER_KEYS = {order.value[0]: order for order in OverviewOrder}


def top(
    pattern: Pattern = None,
    interval: Annotated[
        float, typer.Option("--interval", "-i", min=0.1, max=86_400, metavar="SECONDS", help="How often to look.")
    ] = 2.0,
    sort: Annotated[OverviewOrder, typer.Option(help="The order.")] = OverviewOrder.busy,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many destinations to show.")] = 50,
    exact: Exact = False,
    once: Annotated[bool, typer.Option("--once", help="Look twice, print the result and exit.")] = False,
    url: Url = None,
    schema: Schema = "jmsql",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON: a line for each look, or one document with --once.")
    ] = False,
) -> None:
    """Watch the queues and subscriptions: the messages that wait in each, the rates in and out, and the consumers.

    In a terminal q ends it, as Ctrl-C does, and b, d, a, n sort by rate, depth, age and name. Without a terminal it
    prints a table for each look.

    Messages are counted up to 1,000, so that a poll costs little for any depth: 1,000+ stands for more. Where
    thousands of queues hold messages, the order by depth is complete after several looks. With --exact all messages are
    read, and the store is left alone for four times as long as that took.

    Below them stand the 20 slowest consumers: the connection, the number of messages that it holds, for how long, how
    many deliveries it ends in a second, and when it has ended the last one. Then up to 20 messages that are being
    handled and whose handlers report their progress, and up to 20 limits of listeners, those that hold messages back
    first.

    Rates count acknowledgements, as clients report them, and arrivals, which follow from the depth.

    Example: `jmsql top 'orders.%' --interval 1 --sort age`
    """
    database = open_database(url, schema)
    connect = partial(open_runner, database.url, schema, statement_timeout=LONGEST_LOOK)
    with closing(_View(connect, interval, sort, limit, pattern, count_limit=None if exact else COUNTED)) as view:
        _watch(view, once=once, as_json=as_json)


def _watch(view: _View, *, once: bool, as_json: bool) -> None:
    with keyboard() as keys:
        try:
            if once:
                _show_once(view, keys, as_json=as_json)
            elif as_json:
                for _ in view.looks(keys):
                    if view.problem is None:
                        write(json_text(view.document()).encode() + b"\n")
                        sys.stdout.flush()
                    else:
                        typer.echo(_said_of(view.problem), err=True)
            else:
                _show(view, keys)
        except KeyboardInterrupt:  # the usual way to end it
            return


def _show_once(view: _View, keys: Keyboard, *, as_json: bool) -> None:
    for number, _ in enumerate(view.looks(keys)):
        if view.problem is not None:
            raise view.problem
        if number == 1:
            break
    else:
        return  # the user has pressed q
    if as_json:
        print_json(view.document())
    else:
        console().print(view.render())


def _show(view: _View, keys: Keyboard) -> None:
    screen = console()
    live = Live(console=screen, screen=True, auto_refresh=False) if screen.is_terminal else None
    with live or nullcontext():
        for _ in view.looks(keys):
            if live is None and view.problem is not None:
                typer.echo(_said_of(view.problem), err=True)
            elif live is None:
                screen.print(view.render())
                screen.print()
            else:
                live.update(view.render(), refresh=True)


class _Look(NamedTuple):
    """The state of the store at a moment of the server's time."""

    store: StoreMeasurement
    destinations: list[DestinationOverview]
    consumers: list[ConsumerNow]
    running: list[RunningMessage]
    limits: list[LimitNow]


class _View:
    """Looks at the store again and again, also after the database did not answer for a while."""

    def __init__(
        self,
        connect: Callable[[], PsycopgRunner],
        interval: float,
        order: OverviewOrder,
        limit: int,
        pattern: str | None,
        *,
        count_limit: int | None,
    ) -> None:
        self._connect = connect
        self._runner: PsycopgRunner | None = None
        self.problem: JMSException | None = None
        """The error of the last look. None: it has succeeded."""
        self._interval = interval
        self._order = order
        self._limit = limit
        self._pattern = pattern
        self._count_limit = count_limit
        self._memory = Memory()
        self._rates = Rates()
        self._now: _Look | None = None

    def looks(self, keys: Keyboard) -> Iterator[None]:
        """Yield after each look, and whenever there is something else to be shown; end with the key q."""
        while True:
            started = monotonic()
            try:
                if self._runner is None:
                    self._runner = self._connect()
                self._now = self._look(self._runner)
                self.problem = None
            except JMSException as error:
                self.close()
                # An error of the first look tells of a wrong URL, say.
                if self._now is None or not _may_pass(error):
                    raise
                self.problem = error
            finished = monotonic()
            yield
            due = max(started + self._interval, finished + _REST * (finished - started))
            while (remaining := due - monotonic()) > 0:
                key = (keys.wait(remaining) or "").lower()
                if key == "q":
                    return
                if key in _ORDER_KEYS and _ORDER_KEYS[key] is not self._order:
                    self._order = _ORDER_KEYS[key]
                    break

    def close(self) -> None:
        """Close the connection; the next look opens another."""
        if self._runner is not None:
            self._runner.close()
            self._runner = None

    def _look(self, runner: PsycopgRunner) -> _Look:
        store = runner.run(overview.store())
        found = overview.overview(
            self._limit,
            self._order,
            self._memory,
            count_limit=self._count_limit,
            like=self._pattern,
            moment=store.server_time,
        )
        destinations = runner.run(found)
        # Chosen by a pattern after the slowest were found.
        most = _CONSUMERS if self._pattern is None else _CONSUMERS * 50
        consumers = self._rates.of(runner.run(consumers_now(most, like=self._pattern)))[:_CONSUMERS]
        handled = runner.run(running(_RUNNING, like=self._pattern))
        limits = runner.run(limits_now(_LIMITS, like=self._pattern))
        return _Look(store, destinations, consumers, handled, limits)

    def document(self) -> dict[str, object]:
        """Return the result, for JSON."""
        assert self._now is not None
        return {
            "store": self._now.store._asdict(),
            "destinations": [_document(each, self._now.store.server_time) for each in self._now.destinations],
            "consumers_now": [_consumer_document(each, self._now.store.server_time) for each in self._now.consumers],
            "running": [_running_document(each, self._now.store.server_time) for each in self._now.running],
            "limits": [each._asdict() for each in self._now.limits],
        }

    def render(self) -> RenderableType:
        """Return the result, for people."""
        assert self._now is not None
        found = self._now.destinations
        headline = _headline(self._now.store)
        if self.problem is not None:
            headline = Text(_said_of(self.problem), "bold red").append("\n").append_text(headline)
        if not found:
            nothing = (
                "There is no queue and no topic yet."
                if self._pattern is None
                else f"No name is like {self._pattern!r}; % stands for any text."
            )
            return Group(headline, Text(nothing))
        paused = ("paused",) * any(each.paused for each in found)
        listing = table("destination", "subscription", *_NUMBERS, *paused, numbers=_NUMBERS, spare=_SPARE)
        for each in found:
            cells = _cells(each, self._now.store.server_time)
            listing.add_row(*cells, *("yes" if each.paused else "" for _ in paused))
        parts: list[RenderableType] = [headline, Text(), listing]
        if self._now.consumers:
            parts += [Text(), _consumers_table(self._now.consumers, self._now.store.server_time)]
        if self._now.running:
            parts += [Text(), _running_table(self._now.running, self._now.store.server_time)]
        if self._now.limits:
            parts += [Text(), _limits_table(self._now.limits, self._now.store.server_time)]
        return Group(*parts)


def _may_pass(error: JMSException) -> bool:
    return is_connection_lost(error) or error.error_code in {NO_LOCK, TOO_LONG}


def _said_of(problem: JMSException) -> str:
    return f"No figures, trying again: {problem}"


def _headline(store: StoreMeasurement) -> Text:
    text = Text(f"{datetime.fromtimestamp(store.server_time).astimezone():%H:%M:%S}  ")
    text.append(f"{counted(store.connected_clients, 'client')} connected")
    if store.gone_clients:
        text.append(f", {store.gone_clients:,} gone", "bold red")
    text.append(f"  {counted(store.holding_transactions, 'transaction')} open")
    if store.holding_transactions:
        longest = store.longest_transaction_seconds
        text.append(f", the oldest for {_duration(longest)}", "bold red" if longest > _LONG else "")
    if store.prepared_transactions:
        text.append(
            f"  {store.prepared_transactions:,} prepared, the oldest for {_duration(store.longest_prepared_seconds)}",
            "bold red" if store.longest_prepared_seconds > _LONG else "",
        )
    return text


def _cells(each: DestinationOverview, now: float) -> list[str]:
    name = each.destination.name if each.kind == "queue" else each.destination.uri
    if each.kind == "topic":
        return [name, "", "", "", "", "", _rate(each.incoming), *[""] * 5]
    subscription = each.subscription or ("" if each.kind == "queue" else "(not durable)")
    if each.client_id is not None:
        subscription += f" of {each.client_id}"
    return [
        name,
        subscription,
        *(shown_number(count) for count in (each.ready, each.claimed, each.waiting, each.delayed)),
        *map(_rate, (each.incoming, each.outgoing, each.returned)),
        shown_number(each.redelivered),
        f"{each.consumers:,}",
        "" if each.oldest is None else _duration(_seconds_since(each.oldest, now)),
    ]


def _document(each: DestinationOverview, now: float) -> dict[str, object]:
    counts = {name: getattr(each, name) for name in (*STATES, "redelivered")}
    return {
        "kind": each.kind,
        "destination": each.destination.name,
        "subscription": each.subscription,
        "client_id": each.client_id,
        **{name: None if count is None else count.number for name, count in counts.items()},
        "depth": None if each.messages is None else each.messages.number,
        "more": each.messages is not None and each.messages.has_more,
        "oldest_seconds": None if each.oldest is None else _seconds_since(each.oldest, now),
        "oldest_claim_seconds": None if each.oldest_claim is None else _seconds_since(each.oldest_claim, now),
        "consumers": each.consumers,
        "sent": each.sent,
        "acknowledged": each.acknowledged,
        "rolled_back": each.rolled_back,
        "redeliveries": each.redeliveries,
        "time_in_queue_seconds": each.time_in_queue,
        "calls": each.calls,
        "handling_seconds": each.handling_time,
        "in_per_second": each.incoming,
        "out_per_second": each.outgoing,
        "rolled_back_per_second": each.returned,
        "paused": each.paused,
        "browsable": each.browsable,
    }


def _name(each: ConsumerNow | RunningMessage | LimitNow) -> str:
    return each.destination if each.subscription is None else f"{each.destination}, {each.subscription}"


def _consumers_table(consumers: list[ConsumerNow], now: float) -> RenderableType:
    listing = table(
        *("connection", "receives from", "listener", "process", "holds", "longest", "ended/s", "last", "done"),
        numbers=("connection", "holds", "longest", "ended/s", "last", "done"),
        spare=("listener", "process", "done"),
    )
    for each in consumers:
        listing.add_row(
            *(
                str(each.connection_id),
                _name(each),
                each.listeners or "",
                "gone" if each.host is None else f"{each.process_id} on {each.host}",
            ),
            f"{each.held:,}" if each.held else "",
            "" if each.held_since is None else _duration(_seconds_since(each.held_since, now)),
            _rate(each.per_second),
            "" if each.last_at is None else _duration(_seconds_since(each.last_at, now)),
            "" if each.progress is None else f"{each.progress:.0%}",
        )
    return listing


def _consumer_document(each: ConsumerNow, now: float) -> dict[str, object]:
    return {
        "connection": each.connection_id,
        "client_id": each.client_id,
        "host": each.host,
        "process": each.process_id,
        "destination": each.destination,
        "subscription": each.subscription,
        "listeners": each.listeners,
        "consumers": each.consumers,
        "held": each.held,
        "held_seconds": None if each.held_since is None else _seconds_since(each.held_since, now),
        "message_id": each.message_id,
        "progress": each.progress,
        "ended_per_second": each.per_second,
        "seconds_since_last": None if each.last_at is None else _seconds_since(each.last_at, now),
    }


def _running_table(running: list[RunningMessage], now: float) -> RenderableType:
    listing = table("handled now", "message", "for", "done", "note", numbers=("for", "done"), spare=("message", "note"))
    for each in running:
        done = "" if each.progress is None else f"{each.progress:.0%}"
        listing.add_row(_name(each), each.message_id, _duration(_seconds_since(each.claimed_at, now)), done, each.note)
    return listing


def _limits_table(limits: list[LimitNow], now: float) -> RenderableType:
    listing = table(
        *("limit", "of", "listener", "used", "waiting", "next start in", "values"),
        numbers=("used", "waiting", "next start in", "values"),
        spare=("listener", "values"),
    )
    for each in limits:
        listing.add_row(
            *(each.rule, _name(each), each.listeners or "", f"{each.used:,}"),
            "?" if each.waiting is None else f"{each.waiting:,}",
            "" if each.free_at is None else f"{max(0.0, each.free_at.timestamp() - now):.1f} s",
            "" if each.by is None else f"{each.met:,} of {each.values:,}",
        )
    return listing


def _running_document(each: RunningMessage, now: float) -> dict[str, object]:
    return {
        "destination": each.destination,
        "subscription": each.subscription,
        "message_id": each.message_id,
        "progress": each.progress,
        "note": each.note,
        "seconds": _seconds_since(each.claimed_at, now),
    }


def _seconds_since(moment: datetime, now: float) -> float:
    return max(0.0, now - moment.timestamp())


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:,.0f}" if rate >= 10 or rate == 0 else f"{rate:.1f}"


def _duration(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds / size)} {unit}"
    return f"{seconds:.0f} s"
