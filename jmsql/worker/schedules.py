"""The schedules of an application, which its workers make when they start."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jmsql.client._sync.connection.factory import ConnectionFactory
from jmsql.client._sync.link.opening import default_url, open_runner
from jmsql.concurrency.threads import start_thread
from jmsql.exceptions import JMSException, JMSSecurityException
from jmsql.logs import contained_logger
from jmsql.store.schedules.changing import declare, keep_declared
from jmsql.store.schedules.definition import Schedule
from jmsql.store.statement import Query, Steps
from jmsql.worker.handlers.handler_groups import synchronous

if TYPE_CHECKING:
    from jmsql import asyncio as jmsql_asyncio

logger = contained_logger("jmsql.worker")

# A release that declares a schedule no more does not delete it: workers of another release may run beside it, and still
# declare it. The time since the last declaration tells an administrator that a schedule is left over.
#
# The first processes declare, and those that a hang-up starts with new code. A process that takes the place of one that
# has died, or is done, makes and changes nothing: it may be the older of two releases, and each of its deaths would put
# the newer one's schedules back. It only says that its release has them still.
#
# The thread holds no connection between two declarations: a worker has enough of them.


_UNDEFINED_TABLE = "42P01"
_INTERVAL = 300.0
"""Seconds between two times at which a process says that it declares its schedules."""


class DeclaredSchedules:
    """Declares an application's schedules when a process starts, and says every few minutes that it still does.

    So a schedule that no release has any more is known by the time that has passed since.

    Args:
        factory: Where the schedules are; None: the database that the worker is given.
        schedules: The schedules.
    """

    def __init__(
        self,
        factory: ConnectionFactory | jmsql_asyncio.ConnectionFactory | None,
        schedules: Sequence[Schedule],
    ) -> None:
        self._factory = factory
        self._schedules = schedules
        self._names = [schedule.name for schedule in schedules]
        self._ends = threading.Event()

    def declare(self, *, changes: bool = True) -> None:
        """Make and change the schedules. A role that does not administer the schema leaves them as they are.

        Args:
            changes: False if a process that has died has declared them. A newer release may have changed them since.

        Raises:
            JMSException: A destination is not there, or the server cannot be reached.
        """
        if not self._schedules:
            return
        try:
            self._run(declare(self._schedules) if changes else keep_declared(self._names))
        except JMSSecurityException as error:
            logger.warning(
                "The application's schedules are not declared, since the role does not administer the schema; let a "
                "release declare them with Administration.declare_schedules(app.schedules): %s",
                error,
            )
            return
        start_thread(threading.Thread(target=self._keep_declared, name="jmsql-schedules", daemon=True))

    def end(self) -> None:
        """Declare them no more."""
        self._ends.set()

    def _keep_declared(self) -> None:
        while not self._ends.wait(_INTERVAL):
            try:
                self._run(keep_declared(self._names))
            except JMSException as error:  # the next one counts as well
                logger.info("Schedules were not declared again: %s", error)

    def _run(self, work: Query[None] | Steps[None]) -> None:
        factory = synchronous(self._factory)
        url = default_url(factory.schema) if factory.url is None else factory.url
        with open_runner(url, factory.schema, factory.timings) as runner:
            try:
                runner.run(work)
            except JMSException as error:
                if error.error_code != _UNDEFINED_TABLE:
                    raise
                raise JMSException(
                    "The application has schedules, and the schema is of a version without them: run `jmsql migrate`.",
                    _UNDEFINED_TABLE,
                ) from error
