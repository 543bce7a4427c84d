"""The partitions of the history, one a day: made ahead, emptied and dropped when nobody wants to keep them."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from typing import NamedTuple

from jmsql.destinations import Destination, Topic
from jmsql.exceptions import IllegalStateException
from jmsql.store.driver import Driver
from jmsql.store.identifier import Schema

__all__ = ["HistoryDay", "HistoryPartitions", "PruneStep", "held_message"]

_DAYS_AHEAD = 3
_DELETED_AT_ONCE = 5000


class HistoryDay(NamedTuple):
    """A row of the view ``history_days``.

    `estimated_messages` is what PostgreSQL knows from the last vacuum or analyze. A settled day is over, and so is
    every transaction that has acknowledged something in it: nothing will be added to it.
    """

    day: date
    partition: str
    estimated_messages: int
    bytes: int
    settled: bool


class PruneStep(NamedTuple):
    """What a step removed from a day: some messages, or the whole day, with about so many."""

    day: date
    messages: int
    dropped: bool


class HistoryPartitions:
    """Looks after the partitions. Each statement has to commit by itself: a partition is detached in two transactions.

    Nothing here holds up those who acknowledge. A partition is attached and detached under locks that do not conflict
    with theirs; those who read the history are waited for.

    Args:
        driver: A connection in autocommit mode. Removing anything takes the rights of the schema's owner.
        schema: The name of the schema.
        patience: Seconds to wait for a lock. What cannot be had by then is done another time.
        on_held: Called with each day that stays, all of it or some, though no destination keeps it any longer, and
            with the numbers of the streaming reads of Spark that have not passed it.
    """

    def __init__(
        self,
        driver: Driver,
        schema: str,
        *,
        patience: float,
        on_held: Callable[[date, list[str]], None] = lambda _day, _sources: None,
    ) -> None:
        self._driver = driver
        self._on_held = on_held
        self._schema = Schema(schema)
        self._history = f"{self._schema.internal}.message_history"
        self._milliseconds = round(patience * 1000)

    def days(self) -> list[HistoryDay]:
        """Return the days that have a partition, the first one first."""
        statement = f"""
            select day, partition::text, estimated_messages, bytes, settled from {self._schema}.history_days
            order by day"""
        return [HistoryDay._make(row) for row in self._driver.execute(statement).rows]

    def today(self) -> date:
        """Return the day in UTC to whose partition goes what leaves its destination now."""
        today = f"select ({self._schema.internal}.history_clock() at time zone 'UTC')::date"
        found: date = self._driver.execute(today).rows[0][0]
        return found

    def make_ahead(self) -> None:
        """Make the partitions of today and the next days, if there is a queue that keeps history."""
        missing = f"""
            select d.day from (
                select ({self._schema.internal}.history_clock() at time zone 'UTC')::date + n as day
                from generate_series(0, {_DAYS_AHEAD}) as n) d
            where exists (select from {self._schema.internal}.queue where history)
              and to_regclass({self._schema.internal}.history_partition(d.day)) is null
            order by d.day"""
        for (day,) in self._driver.execute(missing).rows:
            self._driver.execute("begin")
            try:
                self._driver.execute(f"set local lock_timeout = {self._milliseconds}")
                self._driver.execute(f"select {self._schema.internal}.make_history_partition(%(day)s)", {"day": day})
                self._driver.execute("commit")
            except BaseException:
                self._driver.execute("rollback")
                raise

    def apply_retention(self) -> Iterator[PruneStep]:
        """Remove what its destination keeps no longer: whole days where it can be, else the messages of some.

        Yields:
            What was removed, after each step. Each step commits.
        """
        self._finish_drops()
        oldest_wanted = f"""
            select ({self._schema.internal}.history_clock() at time zone 'UTC')::date - min(history_days)
            from {self._schema.internal}.queue"""
        before = self._driver.execute(oldest_wanted).rows[0][0]
        if before is None:
            return
        for day in self.days():
            if day.day >= before:
                break
            outdated, wanted = self._destinations(day)
            if outdated and (sources := self.cursors_before(day, outdated)):
                self._on_held(day.day, sources)
                held = [name for name in outdated if self.cursors_before(day, [name])]
                outdated, wanted = [name for name in outdated if name not in held], [*wanted, *held]
            if not wanted and day.settled:
                yield self.drop(day)
            elif outdated:
                yield from self.delete(day, outdated)

    def remove(self, before: date, destination: Destination | None) -> Iterator[PruneStep]:
        """Remove what is older than a day, however long it was to be kept.

        Args:
            before: The first day that stays.
            destination: The destination whose messages go; None: all.

        Yields:
            What was removed, after each step. Each step commits.

        Raises:
            IllegalStateException: A transaction that is still open has acknowledged something in one of the days.
        """
        self._finish_drops()
        for day in self.days():
            if day.day >= before:
                break
            self._note_loss(day, None if destination is None else [destination.name])
            if destination is None:
                yield self.drop(day)
            else:
                yield from self.delete(day, [destination.name], is_topic=isinstance(destination, Topic))

    def drop(self, day: HistoryDay) -> PruneStep:
        """Remove a day with all its messages.

        Raises:
            IllegalStateException: It is not settled.
        """
        if not day.settled:
            raise IllegalStateException(f"The history of {day.day} may still grow; only settled days can be dropped.")
        with self._limited_patience():
            self._driver.execute(f"alter table {self._history} detach partition {day.partition} concurrently")
            self._driver.execute(f"drop table {day.partition}")
        return PruneStep(day.day, day.estimated_messages, dropped=True)

    def delete(self, day: HistoryDay, destinations: list[str], *, is_topic: bool | None = None) -> Iterator[PruneStep]:
        """Remove the messages of some destinations from a day.

        Args:
            day: The day.
            destinations: Their names.
            is_topic: Whether they are topics; None: topics and queues with these names.

        Yields:
            What was removed, after each step. Each step commits.
        """
        statement = f"""
            delete from {day.partition} where ctid = any(array(
                select ctid from {day.partition} where destination = any(%(destinations)s::text[])
                  and is_topic = coalesce(%(is_topic)s::boolean, is_topic)
                limit {_DELETED_AT_ONCE} for update skip locked))"""
        while deleted := self._driver.execute(
            statement, {"destinations": destinations, "is_topic": is_topic}
        ).row_count:
            yield PruneStep(day.day, deleted, dropped=False)

    def _destinations(self, day: HistoryDay) -> tuple[list[str], list[str]]:
        """Return the destinations with messages in a day: those that keep them no longer, and the others."""
        # The index is read by leaps, from each name to the next.
        statement = f"""
            with recursive known (name) as (
                select min(destination) from {day.partition}
                union all
                select (select min(h.destination) from {day.partition} h where h.destination > known.name)
                from known where known.name is not null)
            select name,
                   coalesce(({self._schema.internal}.history_clock() at time zone 'UTC')::date - %(day)s
                            > {self._schema.internal}.history_retention(name), false)
            from known where name is not null"""
        rows = self._driver.execute(statement, {"day": day.day}).rows
        return [name for name, outdated in rows if outdated], [name for name, outdated in rows if not outdated]

    def cursors_before(self, day: HistoryDay, destinations: list[str] | None) -> list[str]:
        """Return the streaming reads that have not passed all of the destinations' history in a day."""
        statement = (
            f"select c::text from {self._schema.internal}.cursors_before(%(partition)s, %(destinations)s::text[]) c"
        )
        parameters = {"partition": day.partition, "destinations": destinations}
        return [row[0] for row in self._driver.execute(statement, parameters).rows]

    def _note_loss(self, day: HistoryDay, destinations: list[str] | None) -> None:
        """Have streaming reads know that they lose what they have not passed."""
        statement = f"select {self._schema.internal}.note_history_loss(%(partition)s, %(destinations)s::text[])"
        self._driver.execute(statement, {"partition": day.partition, "destinations": destinations})

    def _finish_drops(self) -> None:
        """Drop what was being detached when a connection or somebody's patience ended."""
        statement = """
            select c.oid::regclass::text, coalesce(i.inhdetachpending, false)
            from pg_catalog.pg_class c
            left join pg_catalog.pg_inherits i on i.inhrelid = c.oid
            where c.relnamespace = (
                select h.relnamespace from pg_catalog.pg_class h where h.oid = %(history)s::regclass)
              and c.relkind = 'r' and c.relname ~ '^message_history_[0-9]{8}$'
              and (i.inhrelid is null or i.inhdetachpending)"""
        with self._limited_patience():
            for partition, is_pending in self._driver.execute(statement, {"history": self._history}).rows:
                if is_pending:
                    self._driver.execute(f"alter table {self._history} detach partition {partition} finalize")
                self._driver.execute(f"drop table {partition}")

    @contextmanager
    def _limited_patience(self) -> Iterator[None]:
        self._driver.execute(f"set lock_timeout = {self._milliseconds}")
        try:
            yield
        finally:
            self._driver.execute("reset lock_timeout")


def held_message(day: date, sources: list[str]) -> str:
    """Say what keeps a day that no destination keeps any longer."""
    return (
        f"History of {day} stays longer than history_days says: streaming reads of Spark have not passed it "
        f"({', '.join(sources)}). The view spark_sources shows them; forget_spark_source() ends one that will not come "
        "back."
    )
