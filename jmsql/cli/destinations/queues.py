"""`jmsql queues` and `jmsql clients`."""

from __future__ import annotations

from jmsql.cli.options import Json, Schema, Url, open_database
from jmsql.cli.output import age, print_rows, remark, shown_number, without_guesses, working


def queues(url: Url = None, schema: Schema = "jmsql", as_json: Json = False) -> None:
    """List the queues, and the number of messages in each state.

    Ready messages can be received; claimed ones are held by a client; waiting ones were released by a listener that
    failed and pause before their next delivery; delayed ones wait for their delivery time; expired ones are about to
    be removed. What an open transaction has received counts as ready until it commits.

    A paused queue takes messages and delivers none; the column is there if one is paused. Where the role may not look,
    the table has question marks, and JSON has null.

    Example: `jmsql queues --json`
    """
    numbers = ("ready", "claimed", "waiting", "delayed", "expired", "redelivered")
    with open_database(url, schema).administration() as administration, working("Counting ..."):
        summaries = without_guesses(administration.queues(), numbers)
    paused = ("paused",) * any(each.paused for each in summaries)
    print_rows(
        summaries,
        lambda each: (
            each.queue,
            *(shown_number(getattr(each, name)) for name in numbers),
            age(each.oldest_sent_at),
            *("yes" if each.paused else "" for _ in paused),
            each.expiry_queue,
        ),
        *("queue", *numbers, "oldest", *paused, "expiry queue"),
        numbers=(*numbers, "oldest"),
        spare=("expiry queue", "redelivered", "expired", "delayed", "waiting", "claimed", "oldest"),
        nothing="There is no queue yet. The first send to a queue makes it.",
        as_json=as_json,
    )
    if not as_json:
        remark(summaries)


def clients(url: Url = None, schema: Schema = "jmsql", as_json: Json = False) -> None:
    """List the connections of clients, and how many messages each has claimed.

    Example: `jmsql clients`
    """
    with open_database(url, schema).administration() as administration:
        summaries = administration.clients()
    print_rows(
        summaries,
        lambda each: (
            *(str(each.connection_id), each.client_id, each.user_name, each.host, str(each.process_id)),
            *(age(each.started_at), "yes" if each.connected else "no", f"{each.claimed:,}"),
        ),
        *("connection", "client id", "user", "host", "process", "since", "alive", "claimed"),
        numbers=("claimed",),
        spare=("client id", "host", "since", "process"),
        nothing="No client is connected.",
        as_json=as_json,
    )
