"""Forms that a browser submits more than once: at a double click, or from a page that it has kept."""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock
from typing import TypeAlias

from jmsql.console.views import Reply, View

_KEPT = 1000

_Key: TypeAlias = tuple[str, str, str]


def new_submission() -> str:
    """Return the identifier of a form that is about to be shown."""
    return secrets.token_urlsafe(12)


class Submissions:
    """The newest forms and their outcomes. A form with other values is another one. May be used from any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: OrderedDict[_Key, Future[Reply]] = OrderedDict()

    def run(self, view: View, act: Callable[[View], Reply]) -> tuple[Reply, bool]:
        """Carry out a form, or wait for the outcome of the same one. Return the reply, and True if it is a repetition.

        Raises:
            JMSException: The action has failed, now or in the submission that this one repeats.
        """
        if not view.form.get("submission"):
            return act(view), False
        key = (view.visitor.name, view.path, view.form.digest)
        with self._lock:
            outcome = self._kept.get(key)
            is_repeated = outcome is not None
            if outcome is None:
                outcome = self._kept[key] = Future()
                while len(self._kept) > _KEPT:
                    self._kept.popitem(last=False)
        if is_repeated:
            return outcome.result(), True
        try:
            reply = act(view)
        except BaseException as error:
            self._forget(key)
            outcome.set_exception(error)
            raise
        if reply.redirect is None:
            self._forget(key)
        outcome.set_result(reply)
        return reply, False

    def _forget(self, key: _Key) -> None:
        """Let a form that has failed, or that asks again, be submitted again."""
        with self._lock:
            self._kept.pop(key, None)
