"""The listeners of a Django project, and how their handlers are called."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.db import close_old_connections, connections
from django.db.transaction import atomic

from jmsql.client._sync.connection.factory import ConnectionFactory
from jmsql.concurrency.functions import is_coroutine_function
from jmsql.django.configuration import (
    around_of_settings,
    connection_factory,
    database_alias,
    dead_letter_hook_of_settings,
)
from jmsql.django.coroutines import orm_refused
from jmsql.django.database import as_in_a_request, current_call, in_test, in_transaction
from jmsql.public_names import set_module
from jmsql.worker.application import Application as WorkerApplication

if TYPE_CHECKING:
    from jmsql.messages import Message
    from jmsql.worker.handlers.dead_letters import DeadLetterHook
    from jmsql.worker.handlers.listener import Around, HandlerCall


@set_module("jmsql.django")
class Application(WorkerApplication):
    """The listeners of a Django project, in the `messages` modules of its apps.

    Its messages are in the database of `DATABASES` that the setting `JMSQL_DATABASE` names, or else in the default one.
    While a handler runs, Django's connection to that database leads into the message's own transaction.
    """

    reaches_transaction = True

    @property
    def packages(self) -> tuple[str, ...]:
        """The installed apps."""
        return tuple(config.name for config in apps.get_app_configs())

    @property  # type: ignore[misc]  # which cannot be set
    def factory(self) -> ConnectionFactory:
        """Where the messages are: the database of Django's settings."""
        return connection_factory()

    @property
    def around(self) -> Around | None:
        """The context manager around each call, by the setting `JMSQL_AROUND`; it runs inside Django's."""
        return super().around or around_of_settings()

    @property
    def on_dead_letter(self) -> DeadLetterHook | None:
        """The function that is called with dead letters, by the setting `JMSQL_ON_DEAD_LETTER`."""
        return super().on_dead_letter or dead_letter_hook_of_settings()

    def dead_letter_hooks(
        self, handler: Callable[..., object], name: str, own: DeadLetterHook | None
    ) -> tuple[DeadLetterHook, ...]:
        hooks = super().dead_letter_hooks(handler, name, own)
        # They may use connections of Django's own.
        return (*hooks, _close_old_connections) if hooks and not is_coroutine_function(handler) else hooks

    @property
    def arounds(self) -> tuple[Around, ...]:
        """The ORM in the message's transaction, and inside of it `around`."""
        return (self._in_django, *super().arounds)

    @contextmanager
    def _in_django(self, call: HandlerCall) -> Iterator[None]:
        """Have the ORM work in the message's transaction; see the class."""
        listener = call.listener
        with ExitStack() as exits:
            exits.callback(current_call.reset, current_call.set(call))
            if listener.is_async:
                if listener.transacted:
                    exits.enter_context(orm_refused(listener.name))
            elif (test := connections[database_alias()]).in_atomic_block:  # `drain` has called the handler
                exits.enter_context(in_test(test, call))
            else:
                exits.enter_context(as_in_a_request(call))
                if listener.transacted:
                    exits.enter_context(in_transaction(database_alias(), lambda: _driver_connection(call), call))
            yield

    @staticmethod
    def transaction_block() -> Any:
        """Make the block of a transaction of Django's connection."""
        return atomic(using=database_alias())

    @property
    def own_transaction(self) -> Any:
        """The default transaction of `drain`: Django's connection, as in a `TestCase`."""
        return connections[database_alias()]


def _close_old_connections(_: Message, __: BaseException) -> None:
    if not connections[database_alias()].in_atomic_block:  # else `drain` has called the handler
        close_old_connections()


def _driver_connection(call: HandlerCall) -> object:
    return call.database.connection.driver_connection


app = Application()
"""The project's own, on which its apps register their listeners."""
