"""The fixtures of `jmsql.testing`, as the tests of an application meet them."""

from __future__ import annotations

import psycopg
import pytest
import sqlalchemy

import jmsql
from jmsql.testing import servers
from jmsql.testing.database import session_database

WITHOUT_OTHERS = ("-p", "no:randomly", "-p", "no:anyio", "-p", "no:hypothesispytest")
"""Plugins that are installed as well, each of which takes as long to load as a test takes."""


@pytest.fixture(autouse=True)
def server_for_inner_runs(jmsql_server_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JMSQL_TEST_URL", jmsql_server_url)


def run(pytester: pytest.Pytester, tests: str) -> pytest.RunResult:
    pytester.makepyfile(tests)
    return pytester.runpytest_inprocess("-p", "no:randomly", "-p", "no:asyncio", "-W", "error")


def test_a_connection_left_open_fails_the_test_and_not_the_next(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import psycopg
        left_open = []

        def test_leaks(jmsql_url):
            left_open.append(psycopg.connect(jmsql_url, application_name="forgetful"))

        def test_closes(jmsql_url):
            psycopg.connect(jmsql_url).close()

        def test_end():
            left_open.pop().close()
        """,
    )
    result.assert_outcomes(passed=3, errors=1)
    result.stdout.fnmatch_lines(
        ["1 connection(s) to PostgreSQL opened by the test are still open:", "*'forgetful', idle*"]
    )


def test_a_task_left_running_fails_the_test(pytester: pytest.Pytester, jmsql_server_url: str) -> None:
    pytester.makepyfile(
        f"""
        import asyncio
        import pytest
        import jmsql.asyncio as jms

        @pytest.fixture(scope="session")
        def jmsql_server_url():
            return {jmsql_server_url!r}

        def test_forgetful(jmsql_asyncio_factory: jms.ConnectionFactory) -> None:
            async def listen() -> None:
                connection = await jmsql_asyncio_factory.create_connection()
                await connection.start()
                consumer = await connection.create_session().create_consumer(jms.Queue("orders"))
                await consumer.set_message_listener(print)

            loop = asyncio.new_event_loop()
            loop.run_until_complete(listen())
        """
    )
    result = pytester.runpytest_subprocess(*WITHOUT_OTHERS, "-W", "ignore")
    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines(["* of jmsql.asyncio have not ended:", "*jmsql-listener*"])


def test_a_connection_of_a_wider_scope_is_no_leak(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import psycopg, pytest

        @pytest.fixture(scope="module")
        def connection(jmsql_url):
            with psycopg.connect(jmsql_url) as connection:
                yield connection

        def test_first(connection): pass
        def test_second(connection): pass
        """,
    )
    result.assert_outcomes(passed=2)


def test_the_factory_is_fast_unless_a_fixture_says_otherwise(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import pytest
        from jmsql import Timings
        from jmsql.testing import FAST_TIMINGS

        def test_fast(jmsql_factory):
            assert jmsql_factory.timings == FAST_TIMINGS

        class TestOwn:
            @pytest.fixture
            def jmsql_timings(self):
                return Timings()

            def test_own(self, jmsql_factory):
                assert jmsql_factory.timings == Timings()
        """,
    )
    result.assert_outcomes(passed=2)


def test_each_test_starts_with_an_empty_schema(pytester: pytest.Pytester) -> None:
    result = run(
        pytester,
        """
        import psycopg, pytest

        @pytest.mark.parametrize("run", [1, 2])
        def test_empty(jmsql_clean_url, run):
            with psycopg.connect(jmsql_clean_url) as connection:
                assert connection.execute("select count(*) from jmsql_internal.queue").fetchone() == (0,)
                connection.execute("insert into jmsql_internal.queue (name) values ('orders')")
        """,
    )
    result.assert_outcomes(passed=2)


def test_the_schema_can_have_another_name(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture(scope="session")
        def jmsql_schema():
            return "messaging"
        """
    )
    result = run(
        pytester,
        """
        import psycopg

        def test_schema(jmsql_clean_url):
            with psycopg.connect(jmsql_clean_url) as connection:
                assert connection.execute("select to_regnamespace('messaging')::text, to_regnamespace('jmsql')::text"
                    ).fetchone() == ("messaging", None)
        """,
    )
    result.assert_outcomes(passed=1)


def test_the_database_is_dropped_at_the_end(pytester: pytest.Pytester, jmsql_server_url: str) -> None:
    result = run(
        pytester,
        """
        def test_database(jmsql_url):
            print("made", jmsql_url)
            assert False
        """,
    )
    result.assert_outcomes(failed=1)
    url = next(line.removeprefix("made ") for line in result.outlines if line.startswith("made "))
    name = sqlalchemy.make_url(url).database
    assert name is not None
    assert name.startswith("jmsql_test_")
    with psycopg.connect(jmsql_server_url) as connection:
        assert connection.execute("select count(*) from pg_database where datname = %s", (name,)).fetchone() == (0,)


def test_a_server_that_may_not_be_started_is_asked_for_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JMSQL_TEST_URL")
    monkeypatch.setattr(servers, "_docker_runs", bool)
    monkeypatch.setenv("JMSQL_EMBEDDED", "off")
    monkeypatch.setenv("JMSQL_URL", "postgresql://db/shop")
    with pytest.raises(jmsql.ResourceAllocationException, match="JMSQL_TEST_URL"), servers.server_for_tests():
        pytest.fail("It has started one.")


def test_a_role_that_may_not_make_databases_is_told_so(jmsql_server_url: str) -> None:
    url = sqlalchemy.make_url(jmsql_server_url).update_query_dict({"options": "-c role=pg_monitor"})
    with (
        pytest.raises(jmsql.JMSSecurityException, match="alter role … createdb"),
        session_database(url.render_as_string(hide_password=False), "jmsql"),
    ):
        pytest.fail("It has made one.")


def test_workers_of_xdist_test_side_by_side_with_a_schema_each(
    pytester: pytest.Pytester, jmsql_server_url: str
) -> None:
    pytester.makeconftest(
        """
        import pytest

        @pytest.fixture(scope="session")
        def jmsql_schema(worker_id):
            return f"jmsql_{worker_id}"
        """
    )
    pytester.makepyfile(
        """
        import jmsql
        import psycopg
        import pytest
        from jmsql.testing import sent
        from jmsql.worker import Application

        @pytest.fixture
        def app(jmsql_factory):
            app = Application(jmsql_factory)

            @app.listener("orders")
            def bill(body: str, context: jmsql.JMSContext) -> None:
                context.create_producer().send(jmsql.Queue("bills"), body)

            return app

        @pytest.mark.parametrize("number", range(8))
        def test_orders_are_billed(app, jmsql_clean_url, jmsql_schema, number, worker_id):
            assert worker_id in ("gw0", "gw1")
            with psycopg.connect(jmsql_clean_url) as transaction:
                producer = jmsql.enlist(transaction, schema=jmsql_schema).create_producer()
                producer.send(jmsql.Queue("orders"), str(number))
                app.drain(transaction=transaction)
                [message] = sent(transaction, "bills", schema=jmsql_schema)
                assert message.get_body(str) == str(number)
                transaction.rollback()
        """
    )
    result = pytester.runpytest_subprocess("-n", "2", *WITHOUT_OTHERS)
    result.assert_outcomes(passed=8)
