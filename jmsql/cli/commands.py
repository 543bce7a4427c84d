"""The subcommands: each one's line in the list, and the module to load when it is called."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any, NamedTuple

import typer

from jmsql.cli.help import explain_plainly
from jmsql.cli.parameters import convert_only_what_needs_it


class Listed(NamedTuple):
    """A subcommand as the list of them shows it.

    Args:
        place: Its module, and the name of the function or of the group of commands there.
        summary: The first paragraph of its help.
    """

    place: str
    summary: str


COMMANDS = {
    "migrate": Listed(
        "administration:migrate",
        "Create the schema in the database, or migrate it to the version of this release.",
    ),
    "send": Listed(
        "messages.send:send", "Send messages to a queue, created if missing, or to the subscriptions of a topic."
    ),
    "receive": Listed(
        "messages.receive:receive", "Dequeue messages of a queue, or of a subscription to a topic, and print them."
    ),
    "browse": Listed(
        "messages.browse:browse",
        "Show the messages of a queue, or of a durable subscription to a topic, in the order of their delivery.",
    ),
    "show": Listed(
        "messages.browse:show",
        "Show one message whole: its headers, properties and body, where it is, and where its delivery stands.",
    ),
    "search": Listed(
        "messages.searching:search",
        "Search the messages of all queues and subscriptions, by identifier, group, type, property or selector.",
    ),
    "queues": Listed("destinations.queues:queues", "List the queues, and the number of messages in each state."),
    "subscriptions": Listed(
        "destinations.subscriptions:subscriptions",
        "List the subscriptions to topics, and the number of messages in each state.",
    ),
    "subscribe": Listed(
        "destinations.subscriptions:subscribe",
        "Make a durable subscription, which collects messages before its first consumer comes.",
    ),
    "unsubscribe": Listed(
        "destinations.subscriptions:unsubscribe", "End a durable subscription, and delete the messages that wait in it."
    ),
    "clients": Listed(
        "destinations.queues:clients", "List the connections of clients, and how many messages each has claimed."
    ),
    "move": Listed("messages.removal:move", "Move the messages of a queue to another queue."),
    "pause": Listed(
        "destinations.destination:pause",
        "Stop the delivery of messages from a queue, or from all subscriptions of a topic. They still collect.",
    ),
    "resume": Listed("destinations.destination:resume", "Resume the delivery of messages after a pause."),
    "purge": Listed("messages.removal:purge", "Delete the messages of a queue for good."),
    "deliver": Listed(
        "messages.removal:deliver",
        "Deliver messages of a queue now that wait for a retry, or for their delivery time.",
    ),
    "cancel": Listed(
        "messages.cancelling:cancel",
        "Cancel messages, which are given by their identifiers, also while they are handled.",
    ),
    "dead-letters": Listed(
        "messages.dead_letters:dead_letters",
        "List dead letters: messages whose delivery failed too often, or that have expired. The newest comes first.",
    ),
    "retry": Listed(
        "messages.dead_letters:retry", "Move dead letters back to where they come from, in one transaction."
    ),
    "worker": Listed("worker:worker", "Handle messages with the listeners of an application."),
    "top": Listed(
        "monitoring.top:top",
        "Watch the queues and subscriptions: the messages that wait in each, the rates in and out, and the consumers.",
    ),
    "metrics": Listed(
        "monitoring.metrics:metrics",
        "Show the metrics of the store to Prometheus: those that need no connected client.",
    ),
    "activity": Listed(
        "monitoring.activity:activity",
        "List administrators' actions: role, time, action and number of messages; the messages themselves with --json.",
    ),
    "rates": Listed(
        "monitoring.rates:rates",
        "List past rates of destinations: messages in and out, failures, time in queue and time of handling.",
    ),
    "doctor": Listed(
        "monitoring.doctor:doctor",
        "Examine the database: the schema, who holds messages, who receives, and all that keeps vacuum from its work.",
    ),
    "console": Listed(
        "monitoring.console:console",
        "Show messages and problems in a browser, with actions to solve them.",
    ),
    "archive": Listed(
        "history.archive:archive",
        "Write the history to Parquet files, by destination and day: those added since the last run, each once.",
    ),
    "statistics": Listed(
        "history.statistics:statistics",
        "Compute statistics of the history: a Spark job, with a report in HTML.",
    ),
    "destination": Listed(
        "destinations.destination:application",
        "Make, change and delete queues and topics, and see their settings.",
    ),
    "history": Listed(
        "history.history:application",
        "See the messages that have left destinations with history, send them again, and remove them.",
    ),
    "schedule": Listed(
        "schedules:application", "Make, pause and explain schedules, which send a message at each of their ticks."
    ),
    "batch": Listed("batches:application", "See batches and their progress, and end or delete one that was left open."),
    "result": Listed(
        "results:application", "List the stored results of messages that have ended, and see that of one message."
    ),
    "selector": Listed("destinations.selectors:application", "See how a selector runs in PostgreSQL."),
    "roles": Listed(
        "administration:roles", "Make the roles that have access to all destinations, and see who has access to which."
    ),
    "binding": Listed(
        "administration:bindings", "Keep connection factories and destinations in the database, for `jmsql.lookup`."
    ),
}
"""The subcommands, in the order of the list."""


@cache
def load_command(name: str) -> Any:
    """Load a subcommand, or a group of them."""
    module, _, attribute = COMMANDS[name].place.partition(":")
    found = getattr(importlib.import_module(f"jmsql.cli.{module}"), attribute)
    parent = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)
    if isinstance(found, typer.Typer):
        parent.add_typer(found, name=name)
    else:
        parent.command(name)(found)
    command = typer.main.get_group(parent).commands[name]
    convert_only_what_needs_it(command)
    explain_plainly(command)
    return command
