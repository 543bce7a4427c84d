"""Listeners of one application that take each other's messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jmsql.logs import contained_logger

logger = contained_logger("jmsql.worker")


def warn_of_competition(listeners: Iterable[dict[str, Any]]) -> None:
    """Warn of listeners that take each other's messages.

    Args:
        listeners: Their facts, as `Listener.facts` returns them.
    """
    for source, names in competing(listeners).items():
        logger.warning(
            "%s take each other's messages: each message of %s goes to one of them. For every one of them to have "
            "it, send to a topic, with a subscription for each; to share the messages out, give them selectors.",
            " and ".join(names),
            source,
        )


def competing(listeners: Iterable[dict[str, Any]]) -> dict[str, list[str]]:
    """Return the names of listeners that take each other's messages, by their destination or subscription.

    Those with selectors share the messages out on purpose.
    """
    names: dict[str, list[str]] = {}
    for each in listeners:
        if each["selector"] is None:
            subscription = "" if each["subscription"] is None else f" of the subscription {each['subscription']!r}"
            names.setdefault(f"{each['destination']}{subscription}", []).append(each["listener"])
    return {source: found for source, found in names.items() if len(found) > 1}
