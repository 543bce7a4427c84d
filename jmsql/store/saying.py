"""A program's words about an administrator's action, which the functions that change something write down."""

from __future__ import annotations

import uuid
from typing import NamedTuple, TypeVar

from jmsql.store.statement import Items, Query, SqlFile, Steps, after_each_begin, nothing
from jmsql.values.postgresql_text import to_postgresql

T = TypeVar("T")

_say = SqlFile("activity").statement("say", "saying who does it", nothing)


class Saying(NamedTuple):
    """A program's own words about the actions that it takes.

    `action_id` names an action that commits in steps, whose lines are one.
    """

    actor: str | None = None
    selector: str | None = None
    details: str | None = None
    action_id: str | None = None

    def in_steps(self) -> Saying:
        """Return the same for one action that commits in steps."""
        return self if self.action_id is not None else self._replace(action_id=str(uuid.uuid4()))


def say(said: Saying) -> Query[None]:
    """Have the lines of the open transaction tell what is said of it."""
    return _say.bind({name: to_postgresql(text or "") for name, text in said._asdict().items()})


def saying(said: Saying, work: Query[T] | Steps[T]) -> Query[T] | Steps[T]:
    """Add the remarks to the lines of the actions of `work`."""
    if said == Saying():
        return work
    return after_each_begin(say(said), work)


def in_steps(said: Saying, work: Items[T]) -> Items[T]:
    """Do as `saying` for a decision with many results."""
    return after_each_begin(say(said), work)
