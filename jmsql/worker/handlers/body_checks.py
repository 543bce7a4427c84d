"""The check that a worker makes at its start: whether its handlers can read what comes to them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jmsql.store.schedules.definition import Schedule
from jmsql.worker.handlers.chain_types import misfit
from jmsql.worker.handlers.listener import Listener


def check_bodies(listeners: Sequence[Listener], schedules: Iterable[Schedule]) -> None:
    """Make sure that handlers can read their messages, the ticks of schedules and the replies of other handlers.

    It is done when a worker starts: at the import, classes of bodies may not be defined yet, and a router's schedule
    has no handler yet.

    Raises:
        TypeError: One of them could read none of its messages, no tick of a schedule, or no reply.
        IllegalStateException: One names a handler whose router no application includes.
    """
    for listener in listeners:
        listener.complete_body()
        listener.resolve_handlers()
    for schedule in schedules:
        readers = [each for each in listeners if each.destination == schedule.destination]
        if len(readers) == 1 and readers[0].selector is None:  # else a selector may choose others for it
            readers[0].check_schedule(schedule)
    for listener in listeners:
        target = listener.reply_destination
        readers = [each for each in listeners if each.destination == target]
        if len(readers) == 1 and (reason := misfit(listener, readers[0], in_chain=False)) is not None:
            raise TypeError(
                f"The handler {listener.name} has reply_to={str(target)!r}, and {readers[0].name} can read "
                f"no value that it returns: {reason}."
            )
