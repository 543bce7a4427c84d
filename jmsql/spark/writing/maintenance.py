"""What Spark's writes leave behind when a task or a driver dies, looked after by any client of the schema."""

from __future__ import annotations

from jmsql.spark.writing.prepared import PreparedTransactions
from jmsql.store._sync.runner import Runner
from jmsql.store.maintenance_task import MaintenanceTask, request_tasks
from jmsql.store.statement import Query, SqlFile, rows

__all__ = ["attempts_task", "prepared_task", "request_maintenance"]

# The names stand in databases, in `jmsql.spark` and among the entry points in pyproject.toml.
_ATTEMPTS = "spark-attempts"
_PREPARED = "spark-prepared"

_STAGED_LIMIT = 5000

_sql = SqlFile("writing", "jmsql.spark")
_forget_abandoned = _sql.statement("forget_abandoned", "removing what dead tasks of Spark have staged", rows)


def attempts_task(_schema: str) -> MaintenanceTask:
    """Forget the attempts that have not come to an end in a day, with what they have staged."""

    def run(runner: Runner) -> bool:
        [(staged, forgotten)] = runner.run(_forget_abandoned.bind(limit=_STAGED_LIMIT))
        return bool(forgotten) or bool(staged == _STAGED_LIMIT)

    return MaintenanceTask(_ATTEMPTS, run)


def prepared_task(_schema: str) -> MaintenanceTask:
    """Finish the transactions that Spark's tasks have prepared, as was decided, or as their driver has ended."""
    transactions = PreparedTransactions()

    def run(runner: Runner) -> bool:
        runner.run(transactions.give_up())
        runner.run(transactions.finish())  # what another client is just finishing is done without this one
        return False

    return MaintenanceTask(_PREPARED, run)


def request_maintenance(*, two_phase_commit: bool) -> Query[None]:
    """Have the schema's clients look after what writes may leave behind, before one begins.

    Args:
        two_phase_commit: Whether tasks prepare transactions.
    """
    return request_tasks({_ATTEMPTS, _PREPARED} if two_phase_commit else {_ATTEMPTS})
