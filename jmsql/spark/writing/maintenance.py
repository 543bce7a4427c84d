"""Cleaning up after Spark's writes when a task or a driver dies, by any client of the schema."""

from __future__ import annotations

from jmsql.extension.maintenance import MaintenanceTask, request_tasks
from jmsql.extension.sending import pending_transactions
from jmsql.extension.statements import Query, Runner
from jmsql.spark.writing.commit import forget_writes

# The name stands in databases, in `jmsql.spark` and among the entry points in pyproject.toml.
_ATTEMPTS = "spark-attempts"

_INTERVAL = 60.0
_LIMIT = 5000


def attempts_task(_schema: str) -> MaintenanceTask:
    """Remove messages that no driver has sent in a day, or that are abandoned, and forget old writes."""

    def run(runner: Runner) -> bool:
        runner.run(forget_writes)
        return runner.run(pending_transactions.remove_abandoned(_LIMIT))

    return MaintenanceTask(_ATTEMPTS, run, _INTERVAL)


def request_maintenance() -> Query[None]:
    """Make the schema's clients clean up after writes, before one begins."""
    return request_tasks({_ATTEMPTS})
