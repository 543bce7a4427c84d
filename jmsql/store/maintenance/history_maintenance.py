"""The maintenance of the history: little at a time, and only without waiting."""

from __future__ import annotations

from datetime import date

from jmsql.exceptions import JMSException
from jmsql.logs import contained_logger
from jmsql.store.history.partitions import HistoryPartitions, held_message
from jmsql.store.wire._sync.runner import Runner
from jmsql.timings import InternalTimings

logger = contained_logger("jmsql")


class HistoryMaintenance:
    """Makes partitions ahead, and removes history past its retention.

    Args:
        timings: How often it does so, and how long it waits for a lock: the same connection has messages to tell of.
        pooled: Whether the connection belongs to a pooler, which runs each transaction on another server connection.
            Partitions are not dropped through it: that takes two transactions, with a limit on waiting.
    """

    def __init__(self, timings: InternalTimings, *, pooled: bool) -> None:
        self._timings = timings
        self._may_remove = not pooled
        self._held: dict[date, list[str]] = {}

    def run(self, runner: Runner) -> bool:
        """Do some due work, and return whether there may be more."""
        patience = self._timings.history_lock_timeout
        partitions = HistoryPartitions(patience=patience, on_held=self._tell_held)
        try:
            runner.run(partitions.make_ahead())
            return self._may_remove and next(runner.iterate(partitions.apply_retention()), None) is not None
        except JMSException as error:
            match error.error_code:
                case "55P03":  # a lock is not available
                    logger.info("The history that is to be removed is being read; it is removed later.")
                case "42501":
                    self._may_remove = False
                    logger.warning(
                        "The history is not pruned (%s): run `jmsql history prune` as the schema's owner.", error
                    )
                case _:
                    raise
        return False

    def _tell_held(self, day: date, sources: list[str]) -> None:
        if self._held.get(day) != sources:
            self._held[day] = sources
            logger.warning(held_message(day, sources))
