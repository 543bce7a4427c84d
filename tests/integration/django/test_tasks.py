"""Django's tasks as messages: what Django asks of a backend, and what jmsql adds."""

from __future__ import annotations

import datetime as dt
import json
import pickle
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import connection, transaction
from django.utils import timezone

import jmsql
from jmsql.testing import wait_for

Handled = Callable[..., None]


@pytest.fixture(autouse=True)
def tasks(project: None) -> Iterator[Any]:
    from tests.integration.django.shop import tasks

    tasks.calls.clear()
    yield tasks
    tasks.calls.clear()


@pytest.fixture
def framework(project: None) -> Any:
    from jmsql.django.tasks import framework

    return framework


@pytest.fixture
def signals(framework: Any) -> Iterator[list[tuple[str, Any]]]:
    """The signals of tasks, with their results."""
    module = import_module(f"{framework.__name__}.signals")
    told: list[tuple[str, Any]] = []
    receivers = {}
    for name in ("task_enqueued", "task_started", "task_finished"):

        def tell(sender: Any, task_result: Any, name: str = name, **_: Any) -> None:
            told.append((name, task_result))

        receivers[name] = tell
        getattr(module, name).connect(tell)
    yield told
    for name, receiver in receivers.items():
        getattr(module, name).disconnect(receiver)


def messages() -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(
            "select queue, priority, jms_type, properties, body, state from jmsql.messages order by sequence"
        )
        return [(*row[:3], json.loads(row[3]), json.loads(row[4]), row[5]) for row in cursor.fetchall()]


def is_empty() -> bool:
    with connection.cursor() as cursor:
        cursor.execute("select count(*) from jmsql.messages where queue <> 'DLQ'")
        return bool(cursor.fetchone() == (0,))


@pytest.fixture
def run(handled: Handled) -> Callable[[], None]:
    """Runs the tasks in the queues until none is left."""
    from jmsql.django import app

    return lambda: handled(app, is_empty)


class TestEnqueue:
    def test_an_enqueued_task_is_ready(self, tasks: Any, framework: Any) -> None:
        for task in (tasks.note, tasks.store_later):
            result = task.enqueue(1, two=3)
            assert result.status == framework.TaskResultStatus.READY
            assert (result.task, result.args, result.kwargs, result.backend) == (task, [1], {"two": 3}, "default")
            assert result.enqueued_at is not None
            assert (result.started_at, result.finished_at, result.attempts) == (None, None, 0)
            assert not result.is_finished
            with pytest.raises(ValueError, match="not finished"):
                result.return_value  # noqa: B018

    def test_its_id_is_that_of_the_message(self, tasks: Any, jmsql_factory: jmsql.ConnectionFactory) -> None:
        result = tasks.note.enqueue()
        with jmsql_factory.create_context() as context:
            [message] = context.create_browser(jmsql.Queue("tasks.default"))
        assert message.jms_message_id == result.id
        assert len(result.id) <= 64

    def test_coroutines_enqueue_too(self, tasks: Any) -> None:
        result = async_to_sync(tasks.note.aenqueue)(1)
        assert result.args == [1]
        assert len(messages()) == 1

    def test_values_that_json_cannot_express_are_refused(self, tasks: Any) -> None:
        with pytest.raises(TypeError, match="Unsupported type"):
            tasks.note.enqueue(dt.datetime.now(dt.UTC))
        assert messages() == []

    def test_it_is_a_message_of_the_queue_with_its_arguments_as_json(self, tasks: Any) -> None:
        tasks.store.enqueue("kite")
        assert messages() == [
            (
                "tasks.mail",
                9,
                "django.tasks",
                {"task": "tests.integration.django.shop.tasks.store", "backend": "default"},
                {"args": ["kite"], "kwargs": {}},
                "ready",
            )
        ]

    def test_it_is_part_of_the_current_transaction(self, tasks: Any) -> None:
        with transaction.atomic():
            tasks.note.enqueue()
            transaction.set_rollback(True)
        assert messages() == []
        with transaction.atomic():
            tasks.note.enqueue()
        assert len(messages()) == 1

    def test_it_waits_until_the_time_that_it_is_to_run_after(self, tasks: Any) -> None:
        later, past = timezone.now() + dt.timedelta(hours=1), timezone.now() - dt.timedelta(hours=1)
        tasks.note.using(run_after=later).enqueue()
        tasks.note.using(run_after=past).enqueue()
        assert sorted(message[-1] for message in messages()) == ["delayed", "ready"]
        with connection.cursor() as cursor:
            cursor.execute("select delivery_time from jmsql.messages where state = 'delayed'")
            [(due,)] = cursor.fetchall()
        assert abs((due - later).total_seconds()) < 5

    @pytest.mark.parametrize(
        ("priority", "expected"), [(-100, 0), (-78, 0), (-77, 1), (0, 4), (11, 4), (12, 5), (99, 8), (100, 9)]
    )
    def test_priorities_are_mapped(self, tasks: Any, priority: int, expected: int) -> None:
        tasks.note.using(priority=priority).enqueue()
        [message] = messages()
        assert message[1] == expected

    def test_another_object_than_a_task_is_refused(self, tasks: Any, framework: Any) -> None:
        with pytest.raises(Exception, match="module level"):
            framework.task(lambda: None)
        with pytest.raises(Exception, match="whole number"):
            tasks.note.using(priority=101)
        with pytest.raises(Exception, match="'unknown' is not valid"):
            tasks.note.using(queue_name="unknown")
        with pytest.raises(Exception, match="aware datetime"):
            tasks.note.using(run_after=dt.datetime(2026, 5, 1))  # noqa: DTZ001 - that is what is refused
        with pytest.raises(Exception, match="'context'"):
            framework.task(takes_context=True)(tasks.store.func)

    def test_results_of_it_can_be_pickled(self, tasks: Any, framework: Any) -> None:
        result = tasks.note.enqueue(1)
        if framework.__name__ == "django_tasks":
            pytest.xfail("django-tasks does not pickle tasks.")
        assert pickle.loads(pickle.dumps(result)) == result

    def test_a_backend_can_keep_no_results(self) -> None:
        from jmsql.django import TaskBackend

        backend = TaskBackend("none", {"OPTIONS": {"keep_result": None}})
        assert not backend.supports_get_result
        with pytest.raises(NotImplementedError, match="keeps no results"):
            backend.get_result("ID:1")

    def test_enqueue_sends_the_task_enqueued_signal(
        self, tasks: Any, signals: list[Any], caplog: pytest.LogCaptureFixture
    ) -> None:
        result = tasks.note.enqueue()
        assert signals == [("task_enqueued", result)]

    def test_a_coroutine_function_that_handles_a_message_cannot_enqueue_outside_of_its_transaction(
        self, tasks: Any, handled: Handled, caplog: pytest.LogCaptureFixture
    ) -> None:
        from jmsql.django import Application

        app = Application()

        @app.listener("orders", redelivery=jmsql.RedeliveryPolicy(maximum_deliveries=1))
        async def order(body: str) -> None:
            await tasks.note.aenqueue()

        with transaction.atomic():
            jmsql.enlist(connection).create_producer().send(jmsql.Queue("orders"), "kite")
        handled(app, is_empty)
        assert "has no asynchronous connection" in caplog.text


class TestResults:
    def test_the_return_value_and_the_times_are_kept(self, tasks: Any, framework: Any, run: Callable[[], None]) -> None:
        for task in (tasks.note, tasks.fail_twice, tasks.outside):
            name = task.func.__name__
            result = task.enqueue(name)
            waiting = task.get_result(result.id)
            assert (waiting.task, waiting.args, waiting.backend) == (task, [name], task.backend)
            assert (waiting.status, waiting.is_finished) == (framework.TaskResultStatus.READY, False)
            run()
            result.refresh()
            assert (result.status, result.is_finished) == (framework.TaskResultStatus.SUCCESSFUL, True)
            assert result.return_value == ("dropped" if task is tasks.note else None)
            assert result.attempts == (3 if task is tasks.fail_twice else 1)
            assert (result.args, result.kwargs, result.errors) == ([name], {}, [])
            assert result.enqueued_at <= result.started_at == result.last_attempted_at <= result.finished_at
            assert result.backend == task.backend
            again = async_to_sync(task.aget_result)(result.id)
            assert (again, again.return_value) == (result, result.return_value)
            with pytest.raises(import_module(f"{framework.__name__}.exceptions").TaskResultMismatch):
                tasks.store.get_result(result.id)

    def test_a_task_that_has_failed_keeps_its_error(
        self, tasks: Any, framework: Any, monkeypatch: pytest.MonkeyPatch, run: Callable[[], None]
    ) -> None:
        from jmsql.values.outcomes import RejectBecause
        from jmsql.worker.handlers.listener import Listener

        monkeypatch.setattr(Listener, "verdict", lambda self, error: RejectBecause(error))
        result = tasks.fail.enqueue("ValueError")
        run()
        async_to_sync(result.arefresh)()
        assert (result.status, result.attempts) == (framework.TaskResultStatus.FAILED, 1)
        [error] = result.errors
        assert error.exception_class is ValueError
        assert "the true error" in error.traceback
        assert result.finished_at is not None
        with pytest.raises(ValueError, match="failed"):
            result.return_value  # noqa: B018
        result = tasks.fail.enqueue("IntegrityError")
        run()
        result.refresh()
        assert result.errors[0].exception_class.__name__ == "IntegrityError"

    def test_a_task_in_the_transaction_of_a_test_has_its_result(self, tasks: Any, framework: Any) -> None:
        from jmsql.django import app

        with transaction.atomic():
            result = tasks.note.enqueue()
            app.drain()
            result.refresh()
            assert result.return_value == "dropped"
            transaction.set_rollback(True)
        missing = import_module(f"{framework.__name__}.exceptions").TaskResultDoesNotExist
        for identifier in (result.id, "ID:of another", ""):
            with pytest.raises(missing):
                tasks.note.get_result(identifier)
        with pytest.raises(missing):
            tasks.note.get_result(jmsql.send(connection, "orders", "no task"))


class TestRunning:
    def test_it_is_called_with_its_arguments(self, tasks: Any, run: Callable[[], None]) -> None:
        tasks.note.enqueue(1, "two", three=[4, {"five": None}])
        run()
        assert tasks.calls == [((1, "two"), {"three": [4, {"five": None}]})]

    def test_its_work_is_in_the_transaction_of_its_message(self, tasks: Any, run: Callable[[], None]) -> None:
        from tests.integration.django.shop.models import Article

        result = tasks.fail_twice.enqueue("kite")
        run()
        assert tasks.calls == [(1, result.id), (2, result.id), (3, result.id)]
        assert Article.objects.count() == 1

    def test_a_coroutine_task_stores_its_changes(self, tasks: Any, run: Callable[[], None]) -> None:
        from tests.integration.django.shop.models import Article

        tasks.store_later.enqueue("kite")
        run()
        assert Article.objects.count() == 1

    def test_a_backend_can_run_its_tasks_outside_of_it(self, tasks: Any, run: Callable[[], None]) -> None:
        tasks.outside.enqueue("kite")
        assert messages()[0][0] == "apart.default"
        run()
        assert tasks.calls == [False]

    def test_higher_priorities_come_first(self, tasks: Any, run: Callable[[], None]) -> None:
        for priority in (-50, 100, 0):
            tasks.note.using(priority=priority).enqueue(priority)
        run()
        assert [args for args, _ in tasks.calls] == [(100,), (0,), (-50,)]

    def test_signals_tell_of_each_attempt(
        self, tasks: Any, framework: Any, signals: list[Any], run: Callable[[], None]
    ) -> None:
        tasks.fail_twice.enqueue("kite")
        run()
        wait_for(lambda: len(signals) == 7)
        statuses = [(name, str(result.status), len(result.errors)) for name, result in signals]
        failed = [("task_started", "RUNNING", 0), ("task_finished", "FAILED", 1)]
        assert statuses == [
            ("task_enqueued", "READY", 0),
            *failed,
            *failed,
            ("task_started", "RUNNING", 0),
            ("task_finished", "SUCCESSFUL", 0),
        ]
        assert signals[2][1].errors[0].exception_class is LookupError

    @pytest.mark.parametrize("outcome", ["ValueError", "IntegrityError", "TransactionManagementError"])
    @pytest.mark.parametrize("is_drained", [False, True], ids=["worker", "drain"])
    def test_a_receiver_stores_that_a_task_failed(
        self, outcome: str, is_drained: bool, tasks: Any, framework: Any, handled: Handled
    ) -> None:
        from jmsql.django import Application
        from jmsql.django.tasks import run_task
        from tests.integration.django.shop.models import Article

        app = Application()
        app.listener("tasks.default", redelivery=jmsql.RedeliveryPolicy(maximum_deliveries=1))(run_task)
        stored: list[str] = []

        def store(sender: Any, task_result: Any, **_: Any) -> None:
            [error] = task_result.errors
            stored.append(Article.objects.create(name=f"{task_result.status} {error.exception_class.__name__}").name)

        task_finished = import_module(f"{framework.__name__}.signals").task_finished
        task_finished.connect(store)
        try:
            with transaction.atomic():
                tasks.fail.enqueue(outcome)
                if is_drained:
                    [drained] = app.drain(raise_failures=False)
                    assert type(drained.error).__name__ == outcome
            if not is_drained:
                handled(app, lambda: stored and is_empty())
        finally:
            task_finished.disconnect(store)
        assert list(Article.objects.values_list("name", flat=True)) == stored == [f"FAILED {outcome}"]
        if not is_drained:
            with connection.cursor() as cursor:
                cursor.execute("select last_error from jmsql.dead_letters")
                assert outcome in cursor.fetchone()[0]

    @pytest.mark.parametrize(
        ("path", "reason"),
        [
            ("os.remove", "which is not a task"),
            ("antigravity.fly", "installed app"),
            ("tests.integration.django.shop.tasks.not_a_task", "which is not a task"),
            ("tests.integration.django.shop.tasks.missing", "no task"),
        ],
    )
    def test_a_function_that_a_message_names_is_not_called_unless_it_is_a_task(
        self, path: str, reason: str, handled: Handled, caplog: pytest.LogCaptureFixture
    ) -> None:
        import sys

        from jmsql.django import Application
        from jmsql.django.tasks import run_task

        app = Application()
        app.listener("tasks.default", redelivery=jmsql.RedeliveryPolicy(maximum_deliveries=1))(run_task)
        message = jmsql.TextMessage('{"args": ["/"], "kwargs": {}}')
        message.set_string_property("task", path)
        with transaction.atomic():
            jmsql.enlist(connection).create_producer().send(jmsql.Queue("tasks.default"), message)
        handled(app, is_empty)
        assert reason in caplog.text
        assert "antigravity" not in sys.modules


class TestSettings:
    def test_queues_have_to_be_named(self) -> None:
        from jmsql.django import TaskBackend

        backend = TaskBackend("default", {"QUEUES": []})
        assert [found.id for found in backend.check()] == ["jmsql.E004"]
        assert TaskBackend("default", {}).check() == []

    def test_unknown_options_are_refused(self) -> None:
        from jmsql.django import TaskBackend

        with pytest.raises(ImproperlyConfigured, match=r"retries, and may have prefix"):
            TaskBackend("default", {"OPTIONS": {"retries": 3}})

    def test_the_checks_of_the_framework_pass(self) -> None:
        assert checks.run_checks() == []
