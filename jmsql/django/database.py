"""Django's connection while a handler runs: a wrapper over the connection of the message's own transaction."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from django.db import close_old_connections, connections, reset_queries
from django.db.backends.signals import connection_created
from django.db.transaction import Atomic, TransactionManagementError, atomic
from django.db.utils import load_backend
from psycopg import sql
from psycopg.adapt import AdaptersMap

from jmsql.concurrency.threads import call as run
from jmsql.django.configuration import database_alias
from jmsql.logs import contained_logger

if TYPE_CHECKING:
    from jmsql.worker.handlers.listener import HandlerCall

logger = contained_logger("jmsql.django")

current_call = ContextVar["HandlerCall"]("jmsql.django.call")
"""The call in which a plain function handles a message."""

_LEFT_BEHIND = (
    "The handler has returned from a transaction that Django has marked for a rollback: an error inside it was caught "
    "outside of an `atomic()` block, or `set_rollback(True)` was called. The message is delivered again. Put what may "
    "fail into `with transaction.atomic():`, and catch the error around that block."
)


class MessageDatabase:
    """The behaviour of a Django `DatabaseWrapper` while its connection belongs to a jmsql session.

    The connection is taken when the handler first uses it. To Django it looks as inside of an `atomic()` block: inner
    blocks are savepoints, durable ones are refused, and hooks of `on_commit` wait for the session's commit.
    """

    # Attributes and methods of `BaseDatabaseWrapper`, of which Django says no types.
    connection: Any
    timezone_name: str | None
    settings_dict: dict[str, Any]
    alias: str
    needs_rollback: bool
    get_connection_params: Callable[[], dict[str, Any]]

    _take: Callable[[], Any]
    _call: HandlerCall

    def enter_message(self, take: Callable[[], Any], call: HandlerCall) -> None:
        """Be inside the transaction of a message."""
        self._take = take
        self._call = call
        self.connection = None
        self.autocommit = False
        self.in_atomic_block = True
        self.atomic_blocks = [Atomic(self.alias, savepoint=False, durable=False)]
        self.savepoint_ids: list[str] = []
        self.commit_on_exit = True
        self.needs_rollback = False
        self.rollback_exc: BaseException | None = None
        self.errors_occurred = False
        self.run_on_commit: list[Any] = []
        self.queries_log: Any
        self.queries_log.clear()

    def end(self) -> list[tuple[Any, Callable[[], object], bool]]:
        """Forget the transaction, and return the functions that Django is to call after its commit."""
        hooks, self.run_on_commit = self.run_on_commit, []
        self.connection = None
        self.in_atomic_block = False
        return hooks

    def connect(self) -> None:
        """Take the connection, and have it speak as Django expects until the transaction ends."""
        self.connection = self._take()
        parameters = self.get_connection_params()
        known = _adapters.get(self.connection)
        self._adapters = AdaptersMap(parameters["context"].adapters) if known is None else known
        self._cursor_class = parameters["cursor_factory"]
        zone = self.timezone_name
        if zone and self.connection.info.parameter_status("TimeZone") != zone:
            with self.create_cursor() as cursor:
                cursor.execute(sql.SQL("set local time zone {}").format(sql.Literal(zone)))
        if known is None:
            self._introduce(self.connection)

    def _introduce(self, connection: Any) -> None:
        """Tell Django's receivers of a connection that its handlers have not used before.

        Settings of a receiver hold for as long as the connection lives, and types that it registers. A rollback undoes
        the settings; then the next handler introduces the connection again.
        """
        self.connection = _DjangosView(connection, self._adapters)
        try:
            with connection.keeping_settings():  # else it would be closed after this message
                if register := getattr(self, "register_geometry_adapters", None):  # PostGIS does so where it connects
                    register(self.connection)
                connection_created.send(sender=type(self), connection=self)
        finally:
            self.connection = connection
        adapters = self._adapters
        self._call.after_commit(lambda: _adapters.update({connection: adapters}))

    def create_cursor(self, name: str | None = None) -> Any:
        """Make a cursor that adapts values as Django's do, and is one of the session's connection all the same."""
        if name is None:
            return _cursor_class(self._cursor_class, self.connection.cursor_factory)(self.connection, self._adapters)
        from django.db.backends.postgresql.base import ServerSideCursor

        binds_at_server = self.settings_dict["OPTIONS"].get("server_side_binding") is True
        of_connection = self.connection.server_cursor_factory
        kind = _cursor_class(of_connection if binds_at_server else ServerSideCursor, of_connection)
        return kind(self.connection, self._adapters, name=name, scrollable=False, withhold=False)

    def close(self) -> None:
        """Leave the connection to the session."""

    def close_if_unusable_or_obsolete(self) -> None:
        """Leave the connection to the session."""

    def close_if_health_check_failed(self) -> None:
        """Leave the connection to the session, which has just received a message by it."""


_adapters = WeakKeyDictionary[Any, AdaptersMap]()
"""The adapters of Django's cursors, by connection: Django's own, and those that receivers have registered."""


class _DjangosView:
    """A connection with the adapters of Django's cursors, for receivers that register types."""

    def __init__(self, connection: Any, adapters: AdaptersMap) -> None:
        vars(self).update(_connection=connection, adapters=adapters)

    @property  # type: ignore[misc]  # so that psycopg takes it for a connection
    def __class__(self) -> type:
        return type(self._connection)

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["_connection"], name)

    def __setattr__(self, name: str, value: object) -> None:
        setattr(self._connection, name, value)


class _AdaptingCursor:
    """Adapts values by given adapters, in place of its connection's."""

    def __init__(self, connection: Any, adapters: AdaptersMap, **arguments: Any) -> None:
        self._given = adapters
        super().__init__(connection, **arguments)  # type: ignore[call-arg]  # of a cursor of psycopg

    @cached_property
    def adapters(self) -> AdaptersMap:
        """Its own, which can be changed for this cursor alone."""
        return AdaptersMap(self._given)


@cache
def _cursor_class(of_django: type, of_connection: type) -> Any:
    """Return a class of Django cursors that report their statements to the session."""
    bases = (of_connection,) if issubclass(of_connection, of_django) else (of_django, of_connection)
    return type(of_django.__name__, (_AdaptingCursor, *bases), {})


@cache
def _wrapper_class(engine: str) -> Any:
    wrapper = load_backend(engine).DatabaseWrapper
    return type("DatabaseWrapper", (MessageDatabase, wrapper), {"__module__": __name__})


_of_thread = threading.local()


def _wrapper(alias: str) -> Any:
    """Return the wrapper of this thread; to make one takes longer than to handle a message."""
    settings = connections.settings[alias]
    wrapper = getattr(_of_thread, alias, None)
    if wrapper is None or wrapper.settings_dict is not settings:
        wrapper = _wrapper_class(settings["ENGINE"])(settings, alias)
        setattr(_of_thread, alias, wrapper)
    return wrapper


def atomic_block() -> str | None:
    """Return Django's open transaction in this thread, in the database with the messages; None: none."""
    alias = database_alias()
    return f"atomic() of Django's connection {alias!r}" if connections[alias].in_atomic_block else None


@contextmanager
def in_transaction(alias: str, take: Callable[[], Any], call: HandlerCall) -> Iterator[None]:
    """Have Django's connection lead into the transaction of a message while a block runs, in this thread.

    Raises:
        TransactionManagementError: The block leaves a transaction behind that Django would roll back.
    """
    wrapper = _wrapper(alias)
    former = connections[alias]
    wrapper.enter_message(take, call)
    connections[alias] = wrapper
    try:
        yield
        _require_whole(wrapper)
    finally:
        connections[alias] = former
        hooks = wrapper.end()
    if hooks:
        call.after_commit(lambda: _run_hooks(hooks, call.listener.name))


def _require_whole(connection: Any) -> None:
    if connection.needs_rollback:
        raise TransactionManagementError(_LEFT_BEHIND) from connection.rollback_exc


@contextmanager
def in_test(connection: Any, call: HandlerCall) -> Iterator[None]:
    """Make Django's connection, in a test's transaction, behave as for a handler in a worker.

    The caller, which has set a savepoint, undoes a failed handler's work.

    Raises:
        TransactionManagementError: The block leaves a transaction behind that Django would roll back.
    """
    count = len(connection.run_on_commit)
    is_transacted = call.listener.transacted
    # A worker's handler cannot close its connection, see `MessageDatabase`. It would end the test's transaction here.
    kept = {"close": _keep_open, "close_if_unusable_or_obsolete": _keep_open}
    vars(connection).update(kept)
    try:
        with atomic(using=connection.alias, savepoint=False) if is_transacted else nullcontext():
            yield
            if is_transacted:
                _require_whole(connection)
    except BaseException:
        del connection.run_on_commit[count:]
        connection.needs_rollback = False
        raise
    finally:
        for name in kept:
            vars(connection).pop(name, None)
    hooks = connection.run_on_commit[count:]
    del connection.run_on_commit[count:]
    call.after_commit(lambda: _run_hooks(hooks, call.listener.name))


def _keep_open() -> None:
    """Leave the connection to the test."""


def _run_hooks(hooks: list[tuple[Any, Callable[[], object], bool]], name: str) -> None:
    """Call Django's functions after a commit, up to the first that fails and is not robust.

    Errors are logged: the transaction is committed, and the message handled.
    """
    for number, (_, hook, is_robust) in enumerate(hooks, 1):
        try:
            run(hook)
        except BaseException:  # nothing that it raises may count as a failure of the message
            left = 0 if is_robust else len(hooks) - number
            logger.exception(
                "What %s has given to on_commit failed after the commit: %s%s",
                name,
                getattr(hook, "__qualname__", hook),
                f" ({left} more not called)" if left else "",
            )
            if not is_robust:
                break


@contextmanager
def as_in_a_request(call: HandlerCall) -> Iterator[None]:
    """Treat a block as Django treats a request: forget logged queries, and close connections that are too old."""
    reset_queries()
    close_old_connections()
    try:
        yield
    finally:
        close_old_connections()
        # Hooks of `on_commit` and receivers of signals may use connections of Django's own.
        if call.callbacks:
            call.after_commit(close_old_connections)
        if call.failure_callbacks:
            call.failure_callbacks.append(lambda _: close_old_connections())
