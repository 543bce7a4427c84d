"""`jmsql top`."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import datetime
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from jmsql.cli.monitoring.rates import DestinationRates, Look, Order, Rates
from jmsql.cli.options import Schema, Url, open_database
from jmsql.cli.output import console, json_text, print_json, shown_number, table, write
from jmsql.client._sync.link.opening import open_runner
from jmsql.store.administration import measurement
from jmsql.store.administration.measurement import LONGEST_LOOK, StoreMeasurement
from jmsql.store.wire._sync.runner import Runner
from jmsql.values.counting import counted


class Keyboard:
    """The terminal that the standard input is, if it is one.

    Args:
        descriptor: Its file descriptor; None: there is no terminal.
    """

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def wait(self, seconds: float) -> str | None:
        """Wait so long for a key, and return it."""
        descriptors = [] if self._descriptor is None else [self._descriptor]
        pressed, _, _ = select.select(descriptors, [], [], seconds)
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
_NUMBERS = ("ready", "claimed", "waiting", "delayed", "in/s", "out/s", "back/s", "redelivered", "consumers", "oldest")
_SPARE = ("subscription", "redelivered", "back/s", "delayed", "waiting", "claimed", "oldest", "consumers")
_ORDER_KEYS = {order.value[0]: order for order in Order}


def top(
    interval: Annotated[
        float, typer.Option("--interval", "-i", min=0.1, metavar="SECONDS", help="How often to look.")
    ] = 2.0,
    sort: Annotated[Order, typer.Option(help="What comes first.")] = Order.busy,
    once: Annotated[bool, typer.Option("--once", help="Look twice, print the result and exit.")] = False,
    url: Url = None,
    schema: Schema = "jmsql",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON: a line for each look, or one document with --once.")
    ] = False,
) -> None:
    """Watch the queues and subscriptions: the messages that wait in each, the rates in and out, and the consumers.

    In a terminal q ends it, as Ctrl-C does, and b, d, a, n sort by business, depth, age and name. Without a terminal it
    prints a table for each look. A look counts all messages: after one that takes long the store is left alone for four
    times as long.

    Rates are of what clients have acknowledged, and of what must have come in for what is there.

    Example: `jmsql top --interval 1 --sort age`
    """
    database = open_database(url, schema)
    with open_runner(database.url, schema, statement_timeout=LONGEST_LOOK) as runner, keyboard() as keys:
        view = _View(runner, interval, sort)
        try:
            if once:
                _show_once(view, keys, as_json=as_json)
            elif as_json:
                for _ in view.looks(keys):
                    write(json_text(view.document()).encode() + b"\n")
                    sys.stdout.flush()
            else:
                _show(view, keys)
        except KeyboardInterrupt:  # the usual way to end it
            return


def _show_once(view: _View, keys: Keyboard, *, as_json: bool) -> None:
    for number, _ in enumerate(view.looks(keys)):
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
            if live is None:
                screen.print(view.render())
                screen.print()
            else:
                live.update(view.render(), refresh=True)


class _View:
    """Looks at the store again and again."""

    def __init__(self, runner: Runner, interval: float, order: Order) -> None:
        self._runner = runner
        self._interval = interval
        self._order = order
        self._rates = Rates()
        self._now: Look | None = None

    def looks(self, keys: Keyboard) -> Iterator[None]:
        """Yield after each look, and whenever there is something else to be shown; end with the key q."""
        while True:
            started = time.monotonic()
            self._now = Look(self._runner.run(measurement.store), self._runner.run(measurement.destinations))
            self._rates.see(self._now)
            finished = time.monotonic()
            yield
            due = max(started + self._interval, finished + _REST * (finished - started))
            while (remaining := due - time.monotonic()) > 0:
                key = (keys.wait(remaining) or "").lower()
                if key == "q":
                    return
                if key in _ORDER_KEYS:
                    self._order = _ORDER_KEYS[key]
                    yield

    def document(self) -> dict[str, object]:
        """Return the result, for JSON."""
        assert self._now is not None
        return {
            "store": self._now.store._asdict(),
            "destinations": [each.document() for each in self._rates.sorted(self._order)],
        }

    def render(self) -> RenderableType:
        """Return the result, for people."""
        assert self._now is not None
        moved = self._rates.sorted(self._order)
        if not moved:
            return Group(_headline(self._now.store), Text("There is no queue and no topic yet."))
        paused = ("paused",) * any(each.now.paused for each in moved)
        listing = table("destination", "subscription", *_NUMBERS, *paused, numbers=_NUMBERS, spare=_SPARE)
        for each in moved:
            listing.add_row(*_cells(each), *("yes" if each.now.paused else "" for _ in paused))
        return Group(_headline(self._now.store), Text(), listing)


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


def _cells(moved: DestinationRates) -> list[str]:
    each = moved.now
    name = each.destination if each.kind == "queue" else f"topic://{each.destination}"
    if each.kind == "topic":
        return [name, "", "", "", "", "", _rate(moved.in_rate), *[""] * 5]
    subscription = each.subscription or ("" if each.kind == "queue" else "(not durable)")
    if each.client_id is not None:
        subscription += f" of {each.client_id}"
    return [
        name,
        subscription,
        *(
            shown_number(count if each.browsable else None)
            for count in (each.ready, each.claimed, each.waiting, each.delayed)
        ),
        *map(_rate, (moved.in_rate, moved.out_rate, moved.rolled_back_rate)),
        shown_number(each.redelivered if each.browsable else None),
        f"{each.consumers:,}",
        "" if each.oldest_seconds is None else _duration(each.oldest_seconds),
    ]


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:,.0f}" if rate >= 10 or rate == 0 else f"{rate:.1f}"


def _duration(seconds: float) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds / size)} {unit}"
    return f"{seconds:.0f} s"
