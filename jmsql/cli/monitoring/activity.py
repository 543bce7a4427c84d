"""`jmsql activity`: the actions of administrators."""

from __future__ import annotations

from typing import Annotated

import typer

from jmsql.cli.monitoring.keep_days import answer_kept, keep_days_option
from jmsql.cli.options import Json, Schema, Url, open_database
from jmsql.cli.output import print_rows, remark_more, remark_unseen
from jmsql.cli.parameters import IDENTIFIER
from jmsql.store.administration.activity import Activity


def activity(
    search: Annotated[
        str | None,
        typer.Argument(
            metavar="[TEXT]",
            help="Only actions with this text in a name, the selector or the details; or on the message with this "
            "JMSMessageID.",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="The maximum number; the last ones.")] = 50,
    before: Annotated[
        int | None, typer.Option(min=1, metavar=IDENTIFIER, help="Only actions with lower numbers.", show_default=False)
    ] = None,
    keep_days: Annotated[int | None, keep_days_option("actions", 36_500, "note none")] = None,
    url: Url = None,
    schema: Schema = "jmsql",
    as_json: Json = False,
) -> None:
    """List administrators' actions: role, time, action and number of messages; the messages themselves with --json.

    It lists actions of any program, in SQL, Python, a shell or the console: messages that were purged, moved, retried,
    delivered or cancelled, destinations that were paused, changed or deleted, schedules, access and names. The last
    action comes first.

    Example: `jmsql activity purge --limit 10`
    """
    with open_database(url, schema).administration() as administration:
        if keep_days is not None:
            administration.set_activity_days(keep_days)
            answer_kept("actions", "activity_days", keep_days, as_json=as_json)
            return
        found = administration.activity(search, before=before, limit=limit + 1)
        sees_all = administration.sees_all_messages()
    print_rows(
        found[:limit],
        lambda each: (
            *(str(each.number), f"{each.at.astimezone():%Y-%m-%d %H:%M:%S}", _who(each), each.action, _where(each)),
            *("" if each.messages is None else f"{each.messages:,}", _what(each)),
        ),
        *("number", "at", "by", "action", "destination", "messages", "what"),
        numbers=("messages",),
        spare=("number",),
        nothing="There is no such action." if search or before else "Nothing was done.",
        as_json=as_json,
    )
    remark_more(len(found), limit)
    remark_unseen(sees_all=sees_all)


def _who(each: Activity) -> str:
    role = each.user_name if each.role_name is None else f"{each.user_name} as {each.role_name}"
    return role if each.actor is None else f"{each.actor} ({role})"


def _where(each: Activity) -> str:
    place = each.destination or ""
    if each.subscription is not None:
        place += f" → {each.subscription}"
    return place if each.target is None else f"{place} to {each.target}"


def _what(each: Activity) -> str:
    outcome = None if each.outcome == "done" else each.outcome
    return ", ".join(text for text in (each.details, each.selector, outcome) if text)
