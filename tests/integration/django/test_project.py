"""`manage.py`, the schema and the admin of a project."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.core import checks
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.db.migrations.exceptions import IrreversibleError
from django.db.migrations.loader import MigrationLoader
from django.test.utils import override_settings

import jmsql
from jmsql.store.schema.version import newest_version
from jmsql.testing import wait_for
from tests.integration.django.databases import changed_database, database_settings

ROOT = Path(__file__).parents[3]
PATIENCE = 300.0


def run(*words: str, **options: Any) -> str:
    """Run a command of Django's in this process, and return all that it writes."""
    output = StringIO()
    call_command(*words, stdout=output, stderr=output, no_color=True, **options)
    return output.getvalue()


@pytest.fixture
def manage(environment: dict[str, str]) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs `manage.py` in a process of its own."""

    def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "tests/integration/django/manage.py", *arguments],
            cwd=ROOT,
            env=os.environ | environment | {"PYTHONPATH": str(ROOT)} | more,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    return run


@pytest.fixture
def empty_database(jmsql_server_url: str) -> Iterator[str]:
    """A database without any schema, by the name of it."""
    name = f"jmsql_django_{os.getpid()}"
    with psycopg.connect(jmsql_server_url, autocommit=True) as administrator:
        administrator.execute(f"create database {name}".encode())
        yield psycopg.conninfo.make_conninfo(jmsql_server_url, dbname=name)
        administrator.execute(f"drop database {name} with (force)".encode())


class TestSchema:
    def test_a_migration_makes_it_before_those_that_send(self, empty_database: str) -> None:
        with changed_database(**database_settings(empty_database)), psycopg.connect(empty_database) as found:
            found.autocommit = True
            with pytest.raises(SystemExit):
                run("migrate", check_unapplied=True)
            assert "Bring the schema 'jmsql' of jmsql to version" in run("migrate", plan=True)
            assert "jmsql.W001" not in run("migrate", skip_checks=False)
            assert found.execute("select queue from jmsql.messages").fetchall() == [("announcements",)]
            # Django makes no table for what it shows of jmsql.
            assert found.execute("select count(*) from pg_tables where tablename like 'jmsql%'").fetchone() == (0,)
            run("migrate", check_unapplied=True)
            assert "no issues" in run("check", databases=["default"])

            # A schema that is gone is made again, and no command deletes messages.
            with pytest.raises(IrreversibleError, match='drop schema "jmsql", "jmsql_internal" cascade'):
                run("migrate", "jmsql", "zero")
            found.execute("drop schema jmsql, jmsql_internal cascade")
            assert re.search(r"jmsql.W001.* is not there.*\n.*`manage.py migrate`", run("check", databases=["default"]))
            assert "Bringing the schema jmsql" in run("migrate")
            assert found.execute("select queue from jmsql.messages").fetchall() == [("announcements",)]
            found.execute("drop schema jmsql, jmsql_internal cascade")
            run("migrate", "jmsql", "zero")
            assert found.execute("select to_regnamespace('jmsql')").fetchone() == (None,)

    @override_settings(MIGRATION_MODULES={"jmsql": None, "shop": None})
    def test_a_project_without_migrations_has_it_too(self, empty_database: str) -> None:
        with changed_database(**database_settings(empty_database)), psycopg.connect(empty_database) as found:
            assert "jmsql.W001" in run("check", databases=["default"])
            run("migrate", run_syncdb=True)
            assert found.execute("select count(*) from jmsql.messages").fetchone() == (0,)

    @override_settings(JMSQL_DATABASE="other", MIGRATION_MODULES={"shop": None})
    def test_the_database_of_the_settings_alone_has_it(self, empty_database: str, tmp_path: Path) -> None:
        with (
            changed_database("other", **database_settings(empty_database)),
            psycopg.connect(empty_database, autocommit=True) as found,
        ):
            with pytest.raises(SystemExit):
                run("migrate", database="other", check_unapplied=True)
            run("migrate", database="other")
            found.execute("drop schema jmsql, jmsql_internal cascade")
            assert "`manage.py migrate --database other`" in run("check", databases=["other"])
            run("migrate")  # the other one, which is no concern of the schema
            assert found.execute("select to_regnamespace('jmsql')").fetchone() == (None,)
            run("dumpdata", output=str(tmp_path / "dump.json"))

    def test_nothing_of_it_is_left_to_migrate(self, manage: Callable[..., Any]) -> None:
        assert manage("makemigrations", "--check", "--dry-run").returncode == 0

    @pytest.mark.parametrize(
        ("setting", "value", "reason"),
        [
            ("JMSQL_DATABASE", "shop", "JMSQL_DATABASE is 'shop', and DATABASES has 'default', 'other'"),
            ("JMSQL_SCHEMA", None, "JMSQL_SCHEMA is None"),
            ("JMSQL_SCHEMA", "public", "cannot be 'public'"),
        ],
    )
    def test_the_check_names_settings_that_cannot_be(self, setting: str, value: object, reason: str) -> None:
        with override_settings(**{setting: value}):
            [found] = checks.run_checks(databases=["default"])
            assert found.id == "jmsql.E001"
            assert reason in found.msg
            if value != "public":
                with pytest.raises(CommandError, match=reason):
                    call_command("jmsql", "queues")

    @override_settings(JMSQL_SCHEMA="missing")
    def test_advice_of_the_command_can_be_followed(self, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(CommandError):
            call_command("jmsql", "queues")
        assert "`manage.py jmsql migrate" in capsys.readouterr().err

    def test_each_version_has_a_migration(self) -> None:
        from jmsql.django.schema import NEWEST_MIGRATION

        loader = MigrationLoader(None)
        assert loader.graph.leaf_nodes("jmsql") == [("jmsql", NEWEST_MIGRATION)]
        [asked, *_] = loader.get_migration("jmsql", NEWEST_MIGRATION).operations
        assert asked.version == newest_version()

    @pytest.mark.parametrize(("version", "expected"), [("0000", ["jmsql.W001"]), ("0009", ["jmsql.E003"])])
    def test_the_check_names_another_version(self, version: str, expected: list[str]) -> None:
        def run() -> list[str]:
            return [found.id for found in checks.run_checks(databases=["default"], tags=["database"])]

        assert run() == []
        with connection.cursor() as cursor:
            cursor.execute("select version_num from jmsql.schema_version")
            [(known,)] = cursor.fetchall()
            cursor.execute("update jmsql.schema_version set version_num = %s", [version])
            try:
                assert run() == expected
            finally:
                cursor.execute("update jmsql.schema_version set version_num = %s", [known])


class TestCommand:
    def test_it_is_jmsql_with_the_database_of_the_settings(
        self, manage: Callable[..., Any], jmsql_factory: jmsql.ConnectionFactory
    ) -> None:
        with jmsql_factory.create_context() as context:
            context.create_producer().send(jmsql.Queue("orders"), "kite")
        done = manage("jmsql", "queues", "--json")
        assert done.returncode == 0, done.stderr
        assert '"orders"' in done.stdout
        assert manage("jmsql", "browse", "no such queue").returncode == 3
        assert "worker" in manage("jmsql", "commands").stdout

    def test_a_worker_has_the_chosen_listeners(self, manage: Callable[..., Any]) -> None:
        done = manage("jmsql", "worker", "--only", "deliver*,tasks.*", "--except", "tasks.*", "--list", "--json")
        assert [each["destination"] for each in json.loads(done.stdout)] == ["queue://deliveries"], done.stderr

    def test_the_connections_of_a_worker_have_djangos_time_zone(self, environment: dict[str, str]) -> None:
        program = (
            "import psycopg\n"
            "from jmsql.django.worker import app\n"
            "with psycopg.connect(app.factory.url) as connection:\n"
            "    print(connection.info.parameter_status('TimeZone'))"
        )
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={key: value for key, value in os.environ.items() if key != "PGTZ"} | environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout == "UTC\n"

    def test_call_command_returns_or_raises(self) -> None:
        call_command("jmsql", "queues")
        with pytest.raises(CommandError):
            call_command("jmsql", "browse", "no such queue")

    def test_call_command_changes_nothing_of_the_process_and_runs_in_any_thread(self) -> None:
        def of_process() -> list[object]:
            levels = [logging.getLogger(name).level for name in ("", "sqlalchemy.pool")]
            return [dict(os.environ), signal.getsignal(signal.SIGTERM), sys.unraisablehook, levels]

        before = of_process()
        call_command("jmsql", "queues")
        assert of_process() == before
        with ThreadPoolExecutor(1) as threads:
            threads.submit(call_command, "jmsql", "queues").result()
        assert of_process() == before


def left(queue: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute("select count(*) from jmsql.messages where queue = %s", [queue])
        return int(cursor.fetchone()[0])


class TestAdmin:
    @pytest.fixture
    def dead_letters(self, jmsql_factory: jmsql.ConnectionFactory) -> None:
        """Three dead letters of the queue of orders."""
        with jmsql_factory.create_connection() as jms:
            jms.start()
            session = jms.create_session(transacted=True)
            for number in range(3):
                session.create_producer(jmsql.Queue("orders")).send(session.create_text_message(f"order {number}"))
            session.commit()
            consumer = session.create_consumer(jmsql.Queue("orders"))
            consumer.set_redelivery_policy(jmsql.RedeliveryPolicy(maximum_deliveries=1))
            for _ in range(3):
                consumer.receive(timeout=PATIENCE)
            session.rollback(ValueError("no such article"))
        wait_for(lambda: left("DLQ") == 3)

    @pytest.fixture
    def browser(self) -> Callable[[str], Any]:
        """A client of the admin, of a user with some permissions."""
        from django.contrib.auth.models import Permission, User
        from django.test import Client

        def log_in(*permissions: str) -> Any:
            User.objects.all().delete()
            user = User.objects.create_user("clerk", is_staff=True)
            user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
            client = Client()
            client.force_login(user)
            return client

        return log_in

    def test_it_lists_and_shows_dead_letters(self, dead_letters: None, browser: Any) -> None:
        client = browser("view_deadletter")
        page = client.get("/admin/jmsql/deadletter/")
        assert page.status_code == 200
        assert page.content.decode().count("queue://orders") == 3
        assert "no such article" in page.content.decode()
        assert 'value="retry"' not in page.content.decode()
        [first, *_] = page.context["cl"].result_list
        shown = client.get(f"/admin/jmsql/deadletter/{first.pk}/change/")
        assert shown.status_code == 200
        assert "ValueError: no such article" in shown.content.decode()
        assert client.get("/admin/jmsql/deadletter/add/").status_code == 403
        assert client.post(f"/admin/jmsql/deadletter/{first.pk}/delete/").status_code == 403

    def test_it_retries_selected_messages(self, dead_letters: None, browser: Any) -> None:
        client = browser("view_deadletter", "retry_deadletter")
        letters = client.get("/admin/jmsql/deadletter/").context["cl"].result_list
        chosen = [letter.pk for letter in letters[:2]]
        page = client.post("/admin/jmsql/deadletter/", {"action": "retry", "_selected_action": chosen}, follow=True)
        assert "2 messages went back" in page.content.decode()
        assert (left("orders"), left("DLQ")) == (2, 1)

    @pytest.mark.parametrize("use_base_manager", [False, True])
    def test_a_dump_is_loaded_again(self, dead_letters: None, use_base_manager: bool, tmp_path: Path) -> None:
        from jmsql.django.models import DeadLetter

        dump = tmp_path / "dump.json"
        run("dumpdata", output=str(dump), use_base_manager=use_base_manager)
        assert "jmsql.deadletter" not in dump.read_text()
        run("loaddata", str(dump))
        assert DeadLetter.objects.count() == 3

    def test_it_retries_nothing_for_users_that_may_only_look(self, dead_letters: None, browser: Any) -> None:
        client = browser("view_deadletter")
        chosen = [letter.pk for letter in client.get("/admin/jmsql/deadletter/").context["cl"].result_list]
        client.post("/admin/jmsql/deadletter/", {"action": "retry", "_selected_action": chosen})
        assert left("DLQ") == 3

    @pytest.fixture
    def running(self, jmsql_factory: jmsql.ConnectionFactory) -> Iterator[jmsql.Session]:
        """Messages in each state: "held" is received, "failed" waits, "later" is delayed, and two are copies."""
        with jmsql.ConnectionFactory(jmsql_factory.url, client_id="shop").create_connection() as jms:
            jms.start()
            session = jms.create_session(transacted=True)
            for name in ("audit", "stock"):
                session.create_durable_subscriber(jmsql.Topic("prices"), name).close()
            jmsql.send(jms, "orders", "failed")
            consumer = session.create_consumer("orders")
            consumer.set_redelivery_policy(jmsql.RedeliveryPolicy(maximum_deliveries=9, delay=600))
            consumer.receive(timeout=PATIENCE)
            session.rollback(ValueError("no such article"))
            clerk = jms.create_session(acknowledge_mode=jmsql.AcknowledgeMode.CLIENT)
            jmsql.send(jms, "orders", "held")
            clerk.create_consumer("orders").receive(timeout=PATIENCE)
            jmsql.send(jms, "orders", "waits")
            jmsql.send(jms, "orders", "later", delivery_delay=600)
            jmsql.send(jms, "topic://prices", "copied")
            yield clerk

    def listed(self, client: Any, query: str) -> list[str]:
        page = client.get(f"/admin/jmsql/message/?{query}")
        assert page.status_code == 200
        return sorted(message.body for message in page.context["cl"].result_list)

    def act(self, client: Any, action: str, bodies: Sequence[str]) -> str:
        from jmsql.django.models import Message

        chosen = [each.pk for each in Message.objects.filter(body__in=bodies)]
        data = {"action": action, "_selected_action": chosen}
        page = client.post("/admin/jmsql/message/", data, follow=True)
        return ", ".join(str(each) for each in page.context["messages"])

    def test_it_lists_waiting_running_and_failing_messages(self, running: jmsql.Session, browser: Any) -> None:
        client = browser("view_message")
        assert len(self.listed(client, "")) == 6
        assert self.listed(client, "state=claimed") == ["held"]
        assert self.listed(client, "state=failing") == ["failed"]
        assert self.listed(client, "state=delayed&queue=orders") == ["later"]
        assert self.listed(client, "q=copied") == ["copied", "copied"]
        assert self.listed(client, "q=%25'") == []
        page = client.get("/admin/jmsql/message/?state=failing")
        assert "ValueError: no such article" in page.content.decode()
        [failed] = page.context["cl"].result_list
        assert "no such article" in client.get(f"/admin/jmsql/message/{failed.pk}/change/").content.decode()
        for action in ("deliver", "purge", "cancel", "delete_selected"):
            self.act(client, action, ["failed", "later", "waits", "held"])
        assert len(self.listed(client, "")) == 6, "who may look may do nothing else"
        assert browser().get("/admin/jmsql/message/").status_code == 403

    def test_it_delivers_deletes_and_cancels_selected_messages(self, running: jmsql.Session, browser: Any) -> None:
        client = browser("view_message", "deliver_message", "delete_message", "cancel_message")
        told = self.act(client, "deliver", ["failed", "later", "copied"])
        assert told.startswith("2 messages delivered now., 2 messages stay")
        assert self.listed(client, "state=ready&queue=orders") == ["failed", "later", "waits"]
        assert self.act(client, "purge", ["later", "held"]).startswith("1 message deleted., 1 message stay")
        assert self.act(client, "cancel", ["held", "failed"]) == "2 messages cancelled."
        assert self.listed(client, "queue=orders") == ["waits"]
        with pytest.raises(jmsql.JMSException):
            running.create_consumer("orders").receive(timeout=PATIENCE).acknowledge()  # type: ignore[union-attr]

    def test_it_deletes_dead_letters(self, dead_letters: None, browser: Any) -> None:
        client = browser("view_deadletter", "delete_deadletter")
        letters = client.get("/admin/jmsql/deadletter/?q=order").context["cl"].result_list
        data = {"action": "purge", "_selected_action": [letter.pk for letter in letters[:2]]}
        assert "2 messages deleted." in client.post("/admin/jmsql/deadletter/", data, follow=True).content.decode()
        assert left("DLQ") == 1

    def test_one_action_is_bounded(self, dead_letters: None, browser: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("jmsql.django.admin.MOST", 2)
        client = browser("view_deadletter", "retry_deadletter")
        chosen = [letter.pk for letter in client.get("/admin/jmsql/deadletter/").context["cl"].result_list]
        client.post("/admin/jmsql/deadletter/", {"action": "retry", "_selected_action": chosen})
        assert left("DLQ") == 1


@pytest.mark.parametrize("options", [[], ["--parallel", "2"]], ids=["one", "parallel"])
def test_a_team_tests_with_djangos_own_classes(manage: Callable[..., Any], options: list[str]) -> None:
    done = manage("test", "tests.integration.django.shop", "--noinput", *options)
    assert done.returncode == 0, done.stderr
    assert re.search(r"Ran 22 tests", done.stderr), done.stderr
