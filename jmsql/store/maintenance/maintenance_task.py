"""Tasks of the maintenance, and how those come into it that only some schemas need.

A program that leaves something behind in the database, to be cleaned up even when its process is gone, requests a task
by its name. The request is a row, which the client that does the maintenance finds. Where the task was not requested,
no statement is run for it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points

from jmsql.logs import contained_logger
from jmsql.store.statement import Query, SqlFile, nothing
from jmsql.store.wire._sync.runner import Runner

logger = contained_logger("jmsql")

_GROUP = "jmsql.maintenance"
"""The group of the entry points of tasks."""

_request = SqlFile("maintenance").statement("request_tasks", "requesting maintenance", nothing)

_registered: dict[str, EntryPoint] = {}


@dataclass(frozen=True, slots=True)
class MaintenanceTask:
    """A part of the maintenance, as one client does it.

    Args:
        name: Its name.
        run: Does some due work, given the control connection in autocommit mode, and returns whether more is due now.
            Each of its steps is right also while another client does the same.
        interval: Seconds between two runs; 0: it runs each time that maintenance is done, about once a second.
    """

    name: str
    run: Callable[[Runner], bool]
    interval: float = 0.0


def register_task(name: str, factory: str) -> None:
    """Make a task known to this process, also where the package that has it was not installed but only copied.

    Args:
        name: The name by which it is requested.
        factory: Where the function is that makes the task, given the name of the schema: ``module:function``.
    """
    _registered[name] = EntryPoint(name, factory, _GROUP)


def load_task(name: str, schema: str) -> MaintenanceTask | None:
    """Return a task that was requested by its name; None, with a warning in the log, if nothing here provides it.

    It is found if it was registered, or if an installed package names it among its entry points of the group
    ``jmsql.maintenance``.
    """
    known = _registered.get(name) or next(iter(entry_points(group=_GROUP, name=name)), None)
    if known is None:
        logger.warning(
            "The schema %r needs the maintenance task %r, which no package installed here provides. It is not done "
            "while this client does the maintenance.",
            schema,
            name,
        )
        return None
    try:
        make: Callable[[str], MaintenanceTask] = known.load()
        return make(schema)
    except Exception:  # the rest of the maintenance goes on without it
        logger.exception("The maintenance task %r of the schema %r could not be loaded.", name, schema)
        return None


def request_tasks(names: Collection[str]) -> Query[None]:
    """Make the client that does a schema's maintenance do these tasks, too, from the commit on.

    The role has to administer the schema.
    """
    return _request.bind(names=sorted(names))
