"""What Spark's writes leave behind when a task or a driver dies, looked after by any client of the schema."""

from __future__ import annotations

from jmsql.spark.writing.prepared import PreparedAttempts
from jmsql.spark.writing.staging import staging_statements
from jmsql.store.driver import Driver
from jmsql.store.maintenance_task import MaintenanceTask, request_tasks
from jmsql.store.runner import Runner

__all__ = ["attempts_task", "prepared_task", "request_maintenance"]

# The names stand in databases, in `jmsql.spark` and among the entry points in pyproject.toml.
_ATTEMPTS = "spark-attempts"
_PREPARED = "spark-prepared"

_STAGED_LIMIT = 5000


def attempts_task(schema: str) -> MaintenanceTask:
    """Forget the attempts that have not come to an end in a day, with what they have staged."""
    statement = staging_statements(schema).forget_abandoned

    def run(runner: Runner) -> bool:
        staged, forgotten = runner.driver.execute(statement, {"limit": _STAGED_LIMIT}).rows[0]
        return bool(forgotten) or bool(staged == _STAGED_LIMIT)

    return MaintenanceTask(_ATTEMPTS, run)


def prepared_task(schema: str) -> MaintenanceTask:
    """Finish the transactions that Spark's tasks have prepared, as was decided."""
    attempts = PreparedAttempts(schema)

    def run(runner: Runner) -> bool:
        attempts.finish(runner.driver)  # what another client is just finishing is done without this one
        return False

    return MaintenanceTask(_PREPARED, run)


def request_maintenance(driver: Driver, schema: str, *, two_phase_commit: bool) -> None:
    """Have the schema's clients look after what writes may leave behind, before one begins.

    Args:
        driver: Runs the statement.
        schema: The name of the schema.
        two_phase_commit: Whether tasks prepare transactions.
    """
    names = {_ATTEMPTS, _PREPARED} if two_phase_commit else {_ATTEMPTS}
    Runner(driver, schema).run(request_tasks(names))
