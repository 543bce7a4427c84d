"""`jmsql queues` and `jmsql clients`."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jmsql.cli.options import Exact, Json, Pattern, Schema, Url, open_database
from jmsql.cli.output import age, print_json, print_rows, remark, remark_more, shown_number, working

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from jmsql.store.administration.overview import DestinationOverview

_STATES = ("ready", "claimed", "waiting", "delayed", "expired", "redelivered")
_COUNTED = 1000
_NO_QUEUE = "There is no queue yet. The first send to a queue makes it."


class Order(StrEnum):
    """The order of the list."""

    name = "name"
    age = "age"
    depth = "depth"


def queues(
    pattern: Pattern = None,
    sort: Annotated[Order, typer.Option(help="The order: by name, by the oldest message, by depth.")] = Order.name,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="How many queues to list.")] = 100,
    exact: Exact = False,
    url: Url = None,
    schema: Schema = "jmsql",
    as_json: Json = False,
) -> None:
    """List the queues, and the number of messages in each state.

    Ready messages can be received; claimed ones are held by a client; waiting ones were released by a listener that
    failed and pause before their next delivery; delayed ones wait for their delivery time; expired ones are about to
    be removed. A message that an open transaction has received counts as ready until the commit.

    Messages are counted up to 1,000 in each queue, so that it costs little for any depth: 1,000+ stands for more, and
    in JSON `more` is true. With --exact all messages are read.

    A paused queue takes messages and delivers none; the column is there if one is paused. Where the role may not look,
    the table has question marks, and JSON has null.

    Examples:
    - `jmsql queues 'orders.%' --sort age`
    - `jmsql queues --exact --json`
    """
    database = open_database(url, schema)
    now = database.clock()
    with database.administration() as administration, working("Counting ..."):
        found = administration.overview(
            limit + 1, sort.value, count_limit=None if exact else _COUNTED, like=pattern, kind="queue"
        )
    listed = found[:limit]
    if as_json:
        print_json([_document(each) for each in listed])
    else:
        _print(listed, pattern, now)
    remark_more(len(found), limit, ", and a pattern those that match it")


def _print(listed: list[DestinationOverview], pattern: str | None, now: Callable[[], datetime]) -> None:
    paused = ("paused",) * any(each.paused for each in listed)
    print_rows(
        listed,
        lambda each: (
            each.destination.name,
            *(shown_number(getattr(each, name)) for name in _STATES),
            age(each.oldest, now),
            *("yes" if each.paused else "" for _ in paused),
            f"{each.consumers:,}",
        ),
        *("queue", *_STATES, "oldest", *paused, "consumers"),
        numbers=(*_STATES, "oldest", "consumers"),
        spare=("consumers", "redelivered", "expired", "delayed", "waiting", "claimed", "oldest"),
        nothing=_NO_QUEUE if pattern is None else f"No queue has a name like {pattern!r}; % stands for any text.",
        as_json=False,
    )
    remark(listed)


def _document(each: DestinationOverview) -> dict[str, Any]:
    counts = {name: getattr(each, name) for name in _STATES}
    return {
        "queue": each.destination.name,
        **{name: None if count is None else count.number for name, count in counts.items()},
        "more": each.messages is not None and each.messages.has_more,
        "oldest": each.oldest,
        "consumers": each.consumers,
        "paused": each.paused,
        "browsable": each.browsable,
    }


def clients(url: Url = None, schema: Schema = "jmsql", as_json: Json = False) -> None:
    """List the connections of clients, and how many messages each has claimed.

    Example: `jmsql clients`
    """
    database = open_database(url, schema)
    now = database.clock()
    with database.administration() as administration:
        summaries = administration.clients()
    print_rows(
        summaries,
        lambda each: (
            *(str(each.connection_id), each.client_id, each.user_name, each.host, str(each.process_id)),
            *(age(each.started_at, now), "yes" if each.connected else "no", f"{each.claimed:,}"),
        ),
        *("connection", "client id", "user", "host", "process", "since", "alive", "claimed"),
        numbers=("claimed",),
        spare=("client id", "host", "since", "process"),
        nothing="No client is connected.",
        as_json=as_json,
    )
