"""The listeners of a Django project, and how their handlers are called."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from jmsql.client._sync.connection.factory import ConnectionFactory
from jmsql.django.configuration import connection_factory, database_alias
from jmsql.django.coroutines import orm_refused
from jmsql.django.database import as_in_a_request, in_transaction
from jmsql.public_names import set_module
from jmsql.worker.application import Application as WorkerApplication

if TYPE_CHECKING:
    from jmsql.worker.handlers.listener import HandlerCall


@set_module("jmsql.django")
class Application(WorkerApplication):
    """The listeners of a Django project, in the `messages` modules of its apps.

    Its messages are in the database of `DATABASES` that the setting `JMSQL_DATABASE` names, or else in the default one.
    While a handler runs, Django's connection to that database leads into the message's own transaction.
    """

    @property
    def factory(self) -> ConnectionFactory:
        """Where the messages are: the database of Django's settings."""
        return connection_factory()

    @contextmanager
    def surrounding(self, call: HandlerCall) -> Iterator[None]:
        """Have the ORM work in the message's transaction; see the class."""
        listener = call.listener
        if listener.is_async:
            if not listener.transacted:
                yield
                return
            with orm_refused(listener.name):
                yield
            return
        with as_in_a_request():
            if not listener.transacted:
                yield
                return

            def take() -> object:
                database: Any = call.database()
                return database.connection.driver_connection

            with in_transaction(database_alias(), take, call.after_commit, listener.name):
                yield


app = Application()
"""The project's own, on which its apps register their listeners."""
