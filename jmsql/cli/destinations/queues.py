"""`jmsql queues` and `jmsql clients`."""

from __future__ import annotations

from jmsql.cli.options import Json, Schema, Url, open_database
from jmsql.cli.terminal.output import age, console, print_json, print_table, table, working

__all__ = ["clients", "queues"]


def queues(url: Url = None, schema: Schema = "jmsql", as_json: Json = False) -> None:
    """List the queues, and how many messages of each state they hold.

    Ready messages can be received; claimed ones are held by a client; waiting ones were released by a listener that
    failed and pause before their next delivery; delayed ones wait for their delivery time; expired ones are about to
    be removed. What an open transaction has received counts as ready until it commits.

    Example: `jmsql queues --json`
    """
    with open_database(url, schema).administration() as administration, working("Counting ..."):
        summaries = administration.queues()
    if as_json:
        print_json([summary._asdict() for summary in summaries])
        return
    if not summaries:
        console().print("There is no queue yet. The first send to a queue makes it.")
        return
    numbers = ("ready", "claimed", "waiting", "delayed", "expired", "redelivered")
    listing = table(
        "queue",
        *numbers,
        "oldest",
        "expiry queue",
        numbers=(*numbers, "oldest"),
        spare=("expiry queue", "redelivered", "expired", "delayed", "waiting", "claimed", "oldest"),
    )
    for each in summaries:
        counts = (each.ready, each.claimed, each.waiting, each.delayed, each.expired, each.redelivered)
        listing.add_row(each.queue, *(f"{count:,}" for count in counts), age(each.oldest_sent_at), each.expiry_queue)
    print_table(listing)


def clients(url: Url = None, schema: Schema = "jmsql", as_json: Json = False) -> None:
    """List the connections of clients, and how many messages each has claimed.

    Example: `jmsql clients`
    """
    with open_database(url, schema).administration() as administration:
        summaries = administration.clients()
    if as_json:
        print_json([summary._asdict() for summary in summaries])
        return
    if not summaries:
        console().print("No client is connected.")
        return
    listing = table(
        "connection",
        "client id",
        "user",
        "host",
        "process",
        "since",
        "alive",
        "claimed",
        numbers=("claimed",),
        spare=("client id", "host", "since", "process"),
    )
    for each in summaries:
        listing.add_row(
            str(each.connection_id),
            each.client_id,
            each.user_name,
            each.host,
            str(each.process_id),
            age(each.started_at),
            "yes" if each.connected else "no",
            f"{each.claimed:,}",
        )
    print_table(listing)
