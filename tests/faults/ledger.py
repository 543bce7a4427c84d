"""Business tables that say what was sent and what was done, and the account that is made of them in the end."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import psycopg

_TABLES = """
    create schema business;
    create table business.sent (
        channel text not null, number text not null, at timestamptz not null default clock_timestamp());
    create table business.done (
        place bigint generated always as identity, channel text not null, number text not null, client text not null,
        at timestamptz not null default clock_timestamp());
    """
_LONGEST_WAIT = """
    select coalesce(extract(epoch from max(d.at - s.at)), 0)
    from business.sent s
    join (select channel, number, min(at) as at from business.done group by 1, 2) d using (channel, number)
    where channel = %s
    """


class Guarantee(Enum):
    """What is promised of a channel."""

    EXACTLY_ONCE = "each message that was sent is done once"
    AT_LEAST_ONCE = "each message that was sent is done, some of them twice"
    IN_ORDER = "each message that was sent is done once, after those that its sender sent before it to its group"
    NOT_TWICE = "each message of which the sender knows that it was sent is done, and none twice"


CHANNELS = {
    "orders": Guarantee.EXACTLY_ONCE,
    "invoices": Guarantee.EXACTLY_ONCE,
    "greetings": Guarantee.NOT_TWICE,
    "parcels": Guarantee.AT_LEAST_ONCE,
    "letters": Guarantee.AT_LEAST_ONCE,
    "notes": Guarantee.AT_LEAST_ONCE,
    "postcards": Guarantee.AT_LEAST_ONCE,
    "jobs": Guarantee.EXACTLY_ONCE,
    "groups": Guarantee.IN_ORDER,
    "news all": Guarantee.EXACTLY_ONCE,
    "news even": Guarantee.EXACTLY_ONCE,
    "news shared": Guarantee.EXACTLY_ONCE,
}
"""By its name, in the tables, a queue or a subscription of the topic of the news."""


@dataclass(frozen=True)
class Account:
    """What became of a channel's messages."""

    channel: str
    guarantee: Guarantee
    sent: int
    done: int
    lost: list[str]
    doubled: list[str]
    unknown: list[str]
    overtaken: list[str]
    """What was done after a later message of the same sender and group."""
    longest_wait: float
    """The most seconds between the sending of a message and the first time that it was done."""

    @property
    def is_right(self) -> bool:
        """Whether the promise was kept."""
        may_double = self.guarantee is Guarantee.AT_LEAST_ONCE
        may_be_unknown = self.guarantee is Guarantee.NOT_TWICE
        keeps_order = self.guarantee is not Guarantee.IN_ORDER or not self.overtaken
        return (
            keeps_order and not self.lost and (may_double or not self.doubled) and (may_be_unknown or not self.unknown)
        )

    def __str__(self) -> str:
        says = f"{self.channel}: {self.sent} sent, {self.done} done, after {self.longest_wait:.1f} s at most"
        for name in ("lost", "doubled", "unknown", *(["overtaken"] if self.guarantee is Guarantee.IN_ORDER else [])):
            numbers: list[str] = getattr(self, name)
            says += f", {len(numbers)} {name}" + (f" ({', '.join(numbers[:5])} ...)" if numbers else "")
        return says


class Ledger:
    """The tables, seen from outside, past all faults.

    Args:
        url: The server.
    """

    def __init__(self, url: str) -> None:
        self._url = url

    def create(self) -> None:
        """Make the tables."""
        with psycopg.connect(self._url) as connection:
            connection.execute(_TABLES)

    def used_channels(self) -> set[str]:
        """The channels to which something was sent."""
        return {channel for (channel,) in self._rows("select distinct channel from business.sent")}

    def waiting(self) -> int:
        """How many messages are still on their way."""
        return sum(
            self._rows(f"select count(*) from jmsql_internal.{table}")[0][0] for table in ("message", "delayed_message")
        )

    def left(self) -> list[str]:
        """What is still on its way, and in which state."""
        rows = self._rows(
            "select coalesce(queue, topic || ' ' || subscription), state, count(*), max(delivery_count), "
            "max(claimed_by), max(claimed_at), max(next_attempt), max(last_error), min(body) "
            "from jmsql.messages group by 1, 2 order by 1, 2"
        )
        return [" ".join(map(str, row)) for row in rows] + [
            f"client {row}" for row in self._rows("select * from jmsql.clients")
        ]

    def leading_process(self) -> int | None:
        """Which process does the maintenance for all clients; None: none at the moment."""
        rows = self._rows(
            "select c.process_id from jmsql_internal.leadership l join jmsql_internal.connection c using "
            "(connection_id) "
            "where l.expires_at > clock_timestamp()"
        )
        return rows[0][0] if rows else None

    def last_done(self) -> int:
        """The place of what was done last."""
        [(place,)] = self._rows("select coalesce(max(place), 0) from business.done")
        return int(place)

    def idle_channels(self, place: int) -> set[str]:
        """The channels in which nothing was done after a place."""
        done = self._rows("select distinct channel from business.done where place > %s", place)
        return CHANNELS.keys() - {channel for (channel,) in done}

    def accounts(self) -> list[Account]:
        """Compare what was done with what was sent, channel by channel."""
        return [self._account(channel, guarantee) for channel, guarantee in CHANNELS.items()]

    def _account(self, channel: str, guarantee: Guarantee) -> Account:
        sent = {number for (number,) in self._rows("select number from business.sent where channel = %s", channel)}
        done = dict(
            self._rows("select number, count(*) from business.done where channel = %s group by number", channel)
        )
        return Account(
            channel,
            guarantee,
            len(sent),
            sum(done.values()),
            sorted(sent - done.keys()),
            sorted(number for number, count in done.items() if count > 1),
            sorted(done.keys() - sent),
            self._overtaken(channel) if guarantee is Guarantee.IN_ORDER else [],
            float(self._rows(_LONGEST_WAIT, channel)[0][0]),
        )

    def _overtaken(self, channel: str) -> list[str]:
        """The messages, by numbers such as `sender-17-group`, that were done after a later one."""
        latest: dict[tuple[str, str], int] = {}
        overtaken = []
        for (number,) in self._rows("select number from business.done where channel = %s order by place", channel):
            sender, count, group = number.rsplit("-", 2)
            if int(count) < latest.get((sender, group), 0):
                overtaken.append(number)
            latest[sender, group] = int(count)
        return overtaken

    def _rows(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._url, autocommit=True) as connection:
            return connection.execute(statement.encode(), parameters).fetchall()
