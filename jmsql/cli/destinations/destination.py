"""`jmsql destination`: queues and topics, made, changed and deleted."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, cast

import typer

from jmsql.cli.destinations.selectors import index
from jmsql.cli.options import Json, Schema, Url, Yes, command_group, confirm, open_database, read_destination
from jmsql.cli.output import answer, console, print_json, print_rows, print_table, table
from jmsql.exceptions import JMSSecurityException
from jmsql.store.destinations.access import AccessSummary
from jmsql.store.destinations.destination_settings import DestinationSettings, DestinationSummary

application = command_group(
    "Make, change and delete queues and topics, and see their settings.\n\n"
    "Example: `jmsql destination set orders --expiry-queue expired`"
)


class Switch(StrEnum):
    """On or off."""

    on = "on"
    off = "off"


application.command()(index)

Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="A queue's name, or queue://NAME or topic://NAME.", show_default=False),
]


@application.command()
def create(name: Name, url: Url = None, schema: Schema = "jmsql", as_json: Json = False) -> None:
    """Make a queue or a topic, if it is not there.

    `jmsql destination set` then changes how it works.

    Example: `jmsql destination create topic://prices`
    """
    destination = read_destination(name)
    with open_database(url, schema).administration() as administration:
        made = administration.create(destination)
        summary = administration.destination(destination)
    done = "Made" if made else "There already is"
    answer(summary._asdict() | {"made": made}, f"{done} {destination}.", as_json=as_json)


@application.command("set")
def set_settings(
    name: Name,
    expiry_queue: Annotated[
        str | None, typer.Option(metavar="QUEUE", help="Where messages go that expire.", show_default=False)
    ] = None,
    maximum_deliveries: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="The number of failed deliveries after which a message moves to the dead-letter queue.",
            show_default=False,
        ),
    ] = None,
    redelivery_delay: Annotated[
        float | None,
        typer.Option(
            min=0, metavar="SECONDS", help="The pause before the first redelivery, 0 for none.", show_default=False
        ),
    ] = None,
    redelivery_multiplier: Annotated[
        float | None, typer.Option(min=1, help="The factor by which each further pause is longer.", show_default=False)
    ] = None,
    maximum_redelivery_delay: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="The longest pause.", show_default=False)
    ] = None,
    redelivery_jitter: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="The share by which pauses vary at random.", show_default=False),
    ] = None,
    dead_letter_queue: Annotated[
        str | None,
        typer.Option(metavar="QUEUE", help="Where messages go at last, instead of DLQ.", show_default=False),
    ] = None,
    visibility_timeout: Annotated[
        float | None,
        typer.Option(
            min=1,
            metavar="SECONDS",
            help="After this time, messages that are not acknowledged outside of transactions go to other consumers.",
            show_default=False,
        ),
    ] = None,
    deduplication_window: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="For how long a deduplication id counts, instead of a day; 0: not at all.",
            show_default=False,
        ),
    ] = None,
    history: Annotated[
        bool | None,
        typer.Option(
            "--history/--no-history", help="Keep messages that have left it in the history.", show_default=False
        ),
    ] = None,
    history_days: Annotated[
        int | None,
        typer.Option(metavar="DAYS", min=1, help="How many days they stay in the history.", show_default=False),
    ] = None,
    reset: Annotated[
        list[str] | None,
        typer.Option(metavar="SETTING", help="Set this to its default, such as expiry-queue.", show_default=False),
    ] = None,
    url: Url = None,
    schema: Schema = "jmsql",
    as_json: Json = False,
) -> None:
    """Change settings of a queue, or of a topic and all its subscriptions. Other settings stay.

    Example: `jmsql destination set orders --maximum-deliveries 5 --redelivery-delay 1 --redelivery-multiplier 2`
    """
    destination = read_destination(name)
    given = {
        "expiry_queue": expiry_queue,
        "maximum_deliveries": maximum_deliveries,
        "redelivery_delay": redelivery_delay,
        "redelivery_multiplier": redelivery_multiplier,
        "maximum_redelivery_delay": maximum_redelivery_delay,
        "redelivery_jitter": redelivery_jitter,
        "dead_letter_queue": dead_letter_queue,
        "visibility_timeout": visibility_timeout,
        "deduplication_window": deduplication_window,
        "history": history,
        "history_days": history_days,
    }
    defaults: dict[str, object] = dict.fromkeys(setting.replace("-", "_") for setting in reset or ())
    changed = defaults | {name: value for name, value in given.items() if value is not None}
    if not changed:
        raise typer.BadParameter("No setting is given. --help lists the settings.")
    with open_database(url, schema).administration() as administration:
        if not changed.keys() <= DestinationSettings.__annotations__.keys():
            administration.reset(destination, *defaults)  # raises an error that lists the settings
        administration.alter(destination, **cast("DestinationSettings", changed))
        summary = administration.destination(destination)
        grants = administration.grants(destination)
    _show(summary, grants, as_json=as_json)


@application.command()
def show(name: Name, url: Url = None, schema: Schema = "jmsql", as_json: Json = False) -> None:
    """Show the settings of a queue or a topic.

    Example: `jmsql destination show orders`
    """
    destination = read_destination(name)
    grants: list[AccessSummary] | None = None
    with open_database(url, schema).administration() as administration:
        summary = administration.destination(destination)
        try:
            grants = administration.grants(destination)
        except JMSSecurityException:
            typer.echo("Only an administrator sees the access of roles.", err=True)
    _show(summary, grants, as_json=as_json)


@application.command("list")
def list_destinations(url: Url = None, schema: Schema = "jmsql", as_json: Json = False) -> None:
    """List the queues and topics, with their settings.

    `jmsql queues` and `jmsql subscriptions` show how many messages there are.

    Example: `jmsql destination list --json`
    """
    with open_database(url, schema).administration() as administration:
        summaries = administration.destinations()
    print_rows(
        summaries,
        lambda each: (
            f"temporary {each.kind}" if each.temporary else each.kind,
            each.destination,
            ", ".join(f"{name} {value}" for name, value in _settings(each)),
        ),
        *("kind", "destination", "settings"),
        nothing="There is no destination yet. The first send to a queue makes it.",
        as_json=as_json,
    )


@application.command()
def pause(name: Name, url: Url = None, schema: Schema = "jmsql", as_json: Json = False) -> None:
    """Stop the delivery of messages from a queue, or from all subscriptions of a topic. They still collect.

    No message is delivered until `jmsql resume`. Delivered messages can be acknowledged or
    committed. `jmsql queues` and `jmsql top` mark paused destinations.

    Exits with 3 if there is no such destination.

    Example: `jmsql pause orders`
    """
    destination = read_destination(name)
    with open_database(url, schema).administration() as administration:
        administration.pause(destination)
    answer({"destination": destination.uri, "paused": True}, f"Paused {destination}.", as_json=as_json)


@application.command()
def resume(name: Name, url: Url = None, schema: Schema = "jmsql", as_json: Json = False) -> None:
    """Resume the delivery of messages after a pause.

    Waiting consumers get the collected messages. A destination that is not paused is left as it is.

    Exits with 3 if there is no such destination.

    Example: `jmsql resume orders`
    """
    destination = read_destination(name)
    with open_database(url, schema).administration() as administration:
        administration.resume(destination)
    answer({"destination": destination.uri, "paused": False}, f"Resumed {destination}.", as_json=as_json)


Send = Annotated[bool, typer.Option("--send", help="To send to it.")]
Receive = Annotated[bool, typer.Option("--receive", help="To receive from it, and browse it.")]
Browse = Annotated[bool, typer.Option("--browse", help="To browse it.")]
Role = Annotated[str, typer.Argument(metavar="ROLE", help="A role of PostgreSQL.", show_default=False)]


@application.command()
def grant(
    name: Name,
    role: Role,
    send: Send = False,
    receive: Receive = False,
    browse: Browse = False,
    url: Url = None,
    schema: Schema = "jmsql",
) -> None:
    """Let a role send to a queue or topic, receive from it, or browse it.

    The first grant switches PostgreSQL's row security on: from then on, only the owner of the schema and those who were
    given access do anything with destinations. `jmsql roles create` makes roles for all destinations.

    Example: `jmsql destination grant orders web --send`
    """
    destination = read_destination(name)
    _check_actions(send, receive, browse)
    with open_database(url, schema).administration() as administration:
        administration.grant(destination, role, send=send, receive=receive, browse=browse)
    console().print(f"Granted to {role} on {destination}.", markup=False)


@application.command()
def revoke(
    name: Name,
    role: Role,
    send: Send = False,
    receive: Receive = False,
    browse: Browse = False,
    url: Url = None,
    schema: Schema = "jmsql",
) -> None:
    """Revoke access that `jmsql destination grant` has given.

    Example: `jmsql destination revoke orders web --send`
    """
    destination = read_destination(name)
    _check_actions(send, receive, browse)
    with open_database(url, schema).administration() as administration:
        administration.revoke(destination, role, send=send, receive=receive, browse=browse)
    console().print(f"Revoked from {role} on {destination}.", markup=False)


def _check_actions(*actions: bool) -> None:
    if not any(actions):
        raise typer.BadParameter("Give --send, --receive or --browse.")


@application.command()
def delete(
    name: Name,
    yes: Yes = False,
    force: Annotated[bool, typer.Option("--force", help="Delete it also while clients receive from it.")] = False,
    url: Url = None,
    schema: Schema = "jmsql",
    as_json: Json = False,
) -> None:
    """Delete a queue with its messages, or a topic with its subscriptions and their messages.

    It asks first; where there is no terminal to ask on, --yes is needed.

    Example: `jmsql destination delete orders --yes`
    """
    destination = read_destination(name)
    with open_database(url, schema).administration() as administration:
        administration.destination(destination)
        confirm(f"Delete {destination} and all its messages for good?", yes=yes)
        administration.delete(destination, force=force)
    answer({"destination": destination.uri}, f"Deleted {destination}.", as_json=as_json)


@application.command()
def automatic_creation(
    enabled: Annotated[
        Switch | None, typer.Argument(metavar="[on|off]", help="Without it, show the setting.", show_default=False)
    ] = None,
    url: Url = None,
    schema: Schema = "jmsql",
    as_json: Json = False,
) -> None:
    """Set if the first use of a queue or topic makes it, by any client; it does by default.

    Example: `jmsql destination automatic-creation off`
    """
    with open_database(url, schema).administration() as administration:
        if enabled is not None:
            administration.set_automatic_creation(enabled=enabled is Switch.on)
        is_enabled = administration.automatic_creation()
    text = f"Automatic creation is {'on' if is_enabled else 'off'}."
    answer({"automatic_creation": is_enabled}, text, as_json=as_json)


def _settings(summary: DestinationSummary) -> list[tuple[str, str]]:
    """Return the settings in words."""
    return [
        (name.replace("_", " "), "yes" if value is True else str(value))
        for name, value in sorted(summary.settings.items())
    ]


def _show(summary: DestinationSummary, grants: Sequence[AccessSummary] | None, *, as_json: bool) -> None:
    if as_json:
        print_json(summary._asdict() | {"grants": None if grants is None else [grant._asdict() for grant in grants]})
        return
    listing = table(summary.kind, summary.destination)
    listing.add_row("made at", f"{summary.created_at:%Y-%m-%d %H:%M:%S %z}")
    if summary.temporary:
        listing.add_row("temporary", "yes")
    for name, value in _settings(summary):
        listing.add_row(name, value)
    for grant in grants or ():
        listing.add_row(grant.role, ", ".join(each for each in ("send", "receive", "browse") if getattr(grant, each)))
    print_table(listing)
