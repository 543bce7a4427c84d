"""The backend of Django's tasks: to enqueue one is to send a message in the current transaction.

Django has tasks from version 6 on; before, ``django_tasks`` of the package django-tasks has the same.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib import import_module
from traceback import format_exception
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.conf import settings
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, transaction
from django.utils import timezone
from django.utils.module_loading import import_string

from jmsql.client.enlistment import endings_of_caller, enlist
from jmsql.concurrency.functions import refuse_awaitable, refuse_generator
from jmsql.django.application import app
from jmsql.django.configuration import database_alias, schema_name
from jmsql.django.coroutines import require_orm
from jmsql.django.database import current_call
from jmsql.exceptions import MessageFormatException
from jmsql.messages import TextMessage
from jmsql.public_names import set_module
from jmsql.store.receiving.results import find_ending, uuid_of
from jmsql.values.destinations import Queue

if TYPE_CHECKING:
    from jmsql.store.receiving.results import Ending

try:
    framework = import_module("django.tasks")
except ModuleNotFoundError:
    try:
        framework = import_module("django_tasks")
    except ModuleNotFoundError as error:
        raise ImproperlyConfigured("Tasks need Django 6, or before it the package django-tasks.") from error

_base = import_module(f"{framework.__name__}.base")
_exceptions = import_module(f"{framework.__name__}.exceptions")
_signals = import_module(f"{framework.__name__}.signals")
_BaseTaskBackend: Any = import_module(f"{framework.__name__}.backends.base").BaseTaskBackend

JMS_TYPE = "django.tasks"
_TASK = "task"
_BACKEND = "backend"

_STATUSES: Mapping[str, Any] = {
    "waiting": _base.TaskResultStatus.READY,
    "running": _base.TaskResultStatus.RUNNING,
    "retrying": _base.TaskResultStatus.READY,
    "done": _base.TaskResultStatus.SUCCESSFUL,
    "failed": _base.TaskResultStatus.FAILED,
    "expired": _base.TaskResultStatus.FAILED,
    "cancelled": _base.TaskResultStatus.FAILED,
}
_CLASS_OF_ERROR = re.compile(r"([A-Za-z_][\w.]*)(?:: |$)")

_LOWEST: int = _base.TASK_MIN_PRIORITY
_HIGHEST: int = _base.TASK_MAX_PRIORITY
_PRIORITIES = 9
_OPTIONS: Mapping[str, object] = {
    "prefix": "tasks.",
    "transacted": True,
    "concurrency": None,
    "keep_result": timedelta(days=1),
}
"""The keys of `OPTIONS`, and their defaults."""


@set_module("jmsql.django")
class TaskBackend(_BaseTaskBackend):
    """Keeps Django's tasks as messages: ``TASKS = {"default": {"BACKEND": "jmsql.django.TaskBackend"}}``.

    A task is a message in the queue ``tasks.`` and the name of the task's queue. It is sent in the current transaction,
    and run by `manage.py jmsql worker`. A task that fails comes again, as the redelivery policy of that queue says.
    Its result is kept for a day.

    Args:
        alias: Which of `TASKS` it is.
        params: The settings in `TASKS`. `QUEUES` names the queues; `OPTIONS` may have `prefix`, with which their names
            begin in jmsql; `transacted`, False for tasks outside of their message's transaction; `concurrency`, as
            for [`listener`][jmsql.worker.Application.listener]; and `keep_result`, how long results are kept: a
            `timedelta` or seconds, None: not at all.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        unknown = self.options.keys() - _OPTIONS.keys()
        if unknown:
            raise ImproperlyConfigured(
                f"TASKS[{alias!r}]['OPTIONS'] has {', '.join(sorted(unknown))}, and may have {', '.join(_OPTIONS)}."
            )
        self._given: dict[str, Any] = {**_OPTIONS, **self.options}
        if self._given["keep_result"] is None:
            self.supports_get_result = False

    def enqueue(self, task: Any, args: Sequence[object], kwargs: Mapping[str, object]) -> Any:
        """Send a task in the current transaction of Django's connection; outside of one it is sent at once.

        Args:
            task: The task.
            args: Its positional arguments, which JSON has to be able to express.
            kwargs: Its others.

        Returns:
            The task as it waits. Its `id` is the message's JMSMessageID.

        Raises:
            TypeError: An argument cannot be written as JSON.
            JMSException: PostgreSQL refused.
        """
        self.validate_task(task)
        require_orm()
        now = timezone.now()
        result = _result(task, "", self.alias, args, kwargs, enqueued_at=now)  # which refuses other arguments than JSON
        message = TextMessage(json.dumps({"args": result.args, "kwargs": result.kwargs}))
        message.jms_type = JMS_TYPE
        message.set_string_property(_TASK, task.module_path)
        message.set_string_property(_BACKEND, self.alias)
        producer = enlist(connections[database_alias()], schema=schema_name()).create_producer(
            priority=jms_priority(task.priority)
        )
        producer.delivery_delay = _delay(task.run_after, now)
        producer.send(self.destination(task.queue_name), message)
        result = replace(result, id=message.jms_message_id)
        _signals.task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """Return a task as it is now: waiting, running, successful with its return value, or failed with its error.

        Args:
            result_id: Its `id`, as `enqueue` has returned it.

        Raises:
            TaskResultDoesNotExist: There is no such task, or its result is not kept any longer.
            NotImplementedError: The backend keeps no results.
            JMSException: PostgreSQL refused.
        """
        if not self.supports_get_result:
            raise NotImplementedError(
                f"TASKS[{self.alias!r}] keeps no results, so {result_id} has none: set 'keep_result' in its OPTIONS."
            )
        message_uuid = uuid_of(result_id)
        if message_uuid is None:
            raise _exceptions.TaskResultDoesNotExist(result_id)
        endings = endings_of_caller(connections[database_alias()], schema_name())
        return _kept_result(result_id, endings.read(find_ending, message_uuid))

    def check(self, **_: Any) -> list[checks.CheckMessage]:
        """Check the backend's settings."""
        if self.queues:
            return []
        return [
            checks.Error(
                f"TASKS[{self.alias!r}] has an empty list of QUEUES, and a worker needs their names.",
                hint="Name the queues, or leave QUEUES out.",
                id="jmsql.E004",
            )
        ]

    def destination(self, queue_name: str) -> Queue:
        """Return the queue of jmsql that stands for a queue of tasks."""
        return Queue(f"{self._given['prefix']}{queue_name}")

    def register(self) -> None:
        """Have the workers of the project run the tasks in the backend's queues."""
        listen = {name: self._given[name] for name in ("transacted", "concurrency", "keep_result")}
        for queue_name in sorted(self.queues):
            app.listener(self.destination(queue_name), **listen)(run_task)
            listener = app.listeners[-1]
            if listener.keep_result is not None:  # of a task, which its message alone names
                keeping = listener.keep_result._replace(keeps_message=True)
                app.listeners[-1] = replace(listener, keep_result=keeping)


def jms_priority(priority: int) -> int:
    """Return the priority from 0 to 9 that stands for one of a task, from -100 to 100; 0, the default, becomes 4."""
    return (int(priority) - _LOWEST) * _PRIORITIES // (_HIGHEST - _LOWEST)


def run_task(message: TextMessage) -> object:
    """Run the task that a message is, and return its result if that is kept.

    Raises:
        MessageFormatException: The message is no task of this project's.
    """
    task, alias, arguments = _read(message)
    attempt = message.get_int_property("JMSXDeliveryCount")
    result = _result(
        task,
        message.jms_message_id or "",
        alias,
        arguments["args"],
        arguments["kwargs"],
        enqueued_at=datetime.fromtimestamp(message.jms_timestamp / 1000, UTC),
        started_at=timezone.now(),
        status=_base.TaskResultStatus.RUNNING,
        worker_ids=["unknown"] * (attempt - 1) + [f"{socket.gethostname()} {os.getpid()}"],
    )
    # Not here: a receiver may use the ORM, and the transaction is rolled back, or aborted by an error of SQL.
    current_call.get().failure_callbacks.append(lambda error: _failed(result, error))
    _signals.task_started.send(TaskBackend, task_result=result)
    context = [_base.TaskContext(task_result=result)] if task.takes_context else []
    returned = task.call(*context, *result.args, **result.kwargs)
    refuse_awaitable(task.func, returned)
    refuse_generator(task.func, returned)
    transaction.on_commit(lambda: _finished(result, _base.TaskResultStatus.SUCCESSFUL), using=database_alias())
    return None if current_call.get().listener.keep_result is None else returned


def _read(message: TextMessage) -> tuple[Any, str, dict[str, Any]]:
    """Return the task, the alias of its backend, and its arguments."""
    task, arguments = _task_of(message.get_string_property(_TASK), message.text)
    return task, message.get_string_property(_BACKEND) or task.backend, arguments


def _task_of(path: str | None, text: str | None) -> tuple[Any, dict[str, Any]]:
    """Return the task that a message names, and its arguments.

    Raises:
        MessageFormatException: The message is no task of this project's.
    """
    try:
        arguments = json.loads(text or "")
    except ValueError as error:
        raise MessageFormatException(f"The message has no arguments of a task: {error}.") from error
    match arguments:
        case {"args": list(), "kwargs": dict()}:
            pass
        case _:
            raise MessageFormatException("The message has no arguments of a task: no array args and object kwargs.")
    if not path or not _is_of_project(path.rpartition(".")[0]):
        raise MessageFormatException(
            f"The message names the task {path!r}, and a task is in a module of an installed app. Add its app to "
            "INSTALLED_APPS, or import its module in a `messages` module of an app."
        )
    try:
        task = import_string(path)
    except ImportError as error:
        raise MessageFormatException(f"There is no task {path!r} in this release of the project.") from error
    if not isinstance(task, _base.Task):
        raise MessageFormatException(f"The message names {path!r}, which is not a task.")
    return task, arguments


def _kept_result(result_id: str, ending: Ending) -> Any:
    """Return the result of a task as its message or its kept result says.

    Raises:
        TaskResultDoesNotExist: That is no task, or is gone.
    """
    if ending.jms_type != JMS_TYPE:
        raise _exceptions.TaskResultDoesNotExist(result_id)
    properties = json.loads(ending.properties or "{}")
    task, arguments = _task_of(properties.get(_TASK), ending.text)
    result = replace(
        _result(
            task,
            result_id,
            properties.get(_BACKEND) or task.backend,
            arguments["args"],
            arguments["kwargs"],
            status=_STATUSES[ending.state],
            enqueued_at=_moment(ending.sent_at),
            started_at=_moment(ending.started_at),
            worker_ids=["unknown"] * ending.deliveries,
        ),
        finished_at=_moment(ending.finished_at),
        last_attempted_at=_moment(ending.started_at or ending.finished_at),
        errors=[] if ending.error is None else [_error(ending.error)],
    )
    if ending.value is not None:
        object.__setattr__(result, "_return_value", json.loads(ending.value))
    return result


def _error(text: str) -> Any:
    """Return an error of which the text is kept: its last line begins with the name of its class."""
    found = _CLASS_OF_ERROR.match(text.rstrip("\n").rpartition("\n")[2])
    path = "jmsql.JobFailed" if found is None else found[1] if "." in found[1] else f"builtins.{found[1]}"
    return _base.TaskError(exception_class_path=path, traceback=text)


def _moment(moment: datetime | None) -> datetime | None:
    """Return a time as Django's settings have times."""
    return moment if moment is None or settings.USE_TZ else timezone.make_naive(moment)


def _is_of_project(module: str) -> bool:
    """Return whether a message may have a module imported: only an app's."""
    return module in sys.modules or any(f"{module}.".startswith(f"{each.name}.") for each in apps.get_app_configs())


def _result(
    task: Any, result_id: str, backend: str, args: Sequence[object], kwargs: Mapping[str, object], **known: Any
) -> Any:
    given = {"status": _base.TaskResultStatus.READY, "started_at": None, "worker_ids": [], **known}
    return _base.TaskResult(
        task=task,
        id=result_id,
        finished_at=None,
        last_attempted_at=given["started_at"],
        args=list(args),
        kwargs=dict(kwargs),
        backend=backend,
        errors=[],
        **given,
    )


def _failed(result: Any, error: BaseException) -> None:
    failure = _base.TaskError(
        exception_class_path=f"{type(error).__module__}.{type(error).__qualname__}",
        traceback="".join(format_exception(error)),
    )
    _finished(replace(result, errors=[failure]), _base.TaskResultStatus.FAILED)


def _finished(result: Any, status: Any) -> None:
    _signals.task_finished.send(TaskBackend, task_result=replace(result, status=status, finished_at=timezone.now()))


def _delay(run_after: datetime | None, now: datetime) -> timedelta:
    """Return how long a task waits."""
    if run_after is None:
        return timedelta()
    moment = run_after if timezone.is_aware(run_after) else timezone.make_aware(run_after)
    moment_now = now if timezone.is_aware(now) else timezone.make_aware(now)
    return max(moment - moment_now, timedelta())


def register_backends() -> None:
    """Have the workers of the project run the tasks of all backends that are jmsql's."""
    for alias in framework.task_backends:
        backend = framework.task_backends[alias]
        if isinstance(backend, TaskBackend):
            backend.register()
