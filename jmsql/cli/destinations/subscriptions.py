"""`jmsql subscriptions`, `jmsql subscribe` and `jmsql unsubscribe`."""

from __future__ import annotations

from typing import Annotated

import typer

from jmsql.cli.messages.sources import ClientId, Shared, Source
from jmsql.cli.options import Json, Schema, Selector, Url, check_selector, open_database
from jmsql.cli.output import age, answer, console, print_rows, remark, shown_number, without_guesses, working


def _check_name(name: str) -> str:
    if not name:
        raise typer.BadParameter("A subscription's name has at least one character.")
    return name


def subscriptions(url: Url = None, schema: Schema = "jmsql", as_json: Json = False) -> None:
    """List the subscriptions to topics, and the number of messages in each state.

    The states are the same as for `jmsql queues`. A durable subscription without consumers keeps collecting until
    `jmsql unsubscribe` ends it.

    Example: `jmsql subscriptions --json`
    """
    kinds = ("durable", "shared", "no local")
    messages = ("ready", "claimed", "waiting", "expired", "redelivered")
    numbers = ("consumers", *messages)
    database = open_database(url, schema)
    now = database.clock()
    with database.administration() as administration, working("Counting ..."):
        summaries = without_guesses(administration.subscriptions(), messages)
    paused = ("paused",) * any(each.paused for each in summaries)
    print_rows(
        summaries,
        lambda each: (
            *(each.topic, each.subscription, each.client_id),
            ", ".join(kind for kind in kinds if getattr(each, kind.replace(" ", "_"))),
            *(shown_number(getattr(each, name)) for name in numbers),
            age(each.oldest_sent_at, now),
            *("yes" if each.paused else "" for _ in paused),
            each.selector,
        ),
        *("topic", "subscription", "client id", "kind", *numbers, "oldest", *paused, "selector"),
        numbers=(*numbers, "oldest"),
        spare=("redelivered", "expired", "waiting", "claimed", "kind", "consumers", "oldest"),
        nothing="There is no subscription. Messages that are published on a topic now reach no consumer.",
        as_json=as_json,
    )
    if not as_json:
        remark(summaries)


def subscribe(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="topic://NAME, or NAME.", show_default=False)],
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="The name of the subscription.", callback=_check_name, show_default=False),
    ],
    selector: Selector = None,
    client_id: ClientId = None,
    shared: Shared = False,
    no_local: Annotated[bool, typer.Option("--no-local", help="Leave out messages of this client.")] = False,
    url: Url = None,
    schema: Schema = "jmsql",
    as_json: Json = False,
) -> None:
    """Make a durable subscription, which collects messages before its first consumer comes.

    It belongs to the client --client-id, or is shared. One that is there already is left as it is.

    Example: `jmsql subscribe topic://prices audit --client-id warehouse --selector "region = 'north'"`
    """
    source = Source.read(topic if "://" in topic else f"topic://{topic}", name, client_id, shared=shared)
    source.require_owner()
    check_selector(selector)
    with open_database(url, schema).administration() as administration:
        made = administration.subscribe(
            source.destination.uri, name, selector, client_id=client_id, shared=shared, no_local=no_local
        )
        summary = administration.subscription(name, client_id)
    document = {} if summary is None else summary._asdict() | {"made": made}
    done = "Made" if made else "There already is"
    answer(document, f"{done} the durable subscription {name!r} to {source.destination}.", as_json=as_json)


def unsubscribe(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The name of the subscription.", show_default=False)],
    client_id: ClientId = None,
    url: Url = None,
    schema: Schema = "jmsql",
) -> None:
    """End a durable subscription, and delete the messages that wait in it.

    It must have no consumer. `jmsql subscriptions` lists the names and client identifiers.

    Example: `jmsql unsubscribe audit --client-id warehouse`
    """
    with open_database(url, schema).administration() as administration:
        administration.unsubscribe(name, client_id)
    console().print(f"Ended the durable subscription {name!r}.", markup=False)
