from __future__ import annotations

import subprocess
import sys
import traceback
from types import ModuleType

import pytest

from jmsql import JMSException, ResourceAllocationException
from jmsql.spark.connection import DatabaseReference


def test_variable_of_the_process_names_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JMSQL_URL", "postgresql://app:secret@db/shop")
    url = DatabaseReference().libpq_url("reading")
    assert url.startswith("postgresql://app:secret@db/shop?application_name=reading&client_encoding=UTF8&")
    assert "tcp_user_timeout=20000" in url


def test_named_connection_is_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JMSQL_CONNECTION_SHOP_EU", "postgresql://app@eu/shop")
    assert DatabaseReference(connection="shop-eu").resolve().host == "eu"


def test_named_connection_is_a_service_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JMSQL_CONNECTION_SHOP", raising=False)
    assert (
        DatabaseReference(connection="shop").libpq_url("reading")
        == "postgresql://?application_name=reading&client_encoding=UTF8&service=shop"
    )


def test_named_connection_is_a_function_of_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("vault")
    module.url = lambda: "postgresql://app:secret@db/shop"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vault", module)
    assert DatabaseReference(connection="vault:url").resolve().password == "secret"


def test_function_that_fails_shows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    def url() -> str:
        raise RuntimeError("the token is hidden")

    module = ModuleType("vault")
    module.url = url  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vault", module)
    with pytest.raises(
        JMSException, match="Option 'connection': vault:url gave no URL; it raised RuntimeError"
    ) as error:
        DatabaseReference(connection="vault:url").resolve()
    assert error.value.__cause__ is None
    assert "hidden" not in str(error.value)


def test_without_a_database_the_error_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JMSQL_URL", raising=False)
    with pytest.raises(JMSException, match="JMSQL_URL"):
        DatabaseReference().resolve()


def test_unknown_service_names_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JMSQL_CONNECTION_SHOP", raising=False)
    monkeypatch.setenv("PGSERVICEFILE", "/nonexistent")
    with (
        pytest.raises(JMSException, match="Option 'connection': 'shop' is neither a variable JMSQL_CONNECTION_SHOP"),
        DatabaseReference(connection="shop").connect("reading"),
    ):
        pass


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://app:marker@db/shop",
        "postgresql://db/shop?password=marker",
        "postgresql://db/shop?sslPassword=marker",
        "postgresql://db/shop?oauth_client_secret=marker",
        "postgresql://app:marker@db:port/shop",
        "postgresql://app:marker@[::1/shop",
        "mysql://app:marker@db/shop",
        "host=db password=marker",
    ],
)
def test_url_with_a_password_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(JMSException, match="Option 'url'") as error:
        DatabaseReference(url=url)
    assert "marker" not in "".join(traceback.format_exception(error.value))


def test_url_of_the_environment_that_cannot_be_read_is_named_and_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JMSQL_URL", "postgresql://app:marker@db:port/shop")
    monkeypatch.setenv("JMSQL_CONNECTION_SHOP", "app:marker@db")
    for database, source in (
        (DatabaseReference(), "JMSQL_URL"),
        (DatabaseReference(connection="shop"), "JMSQL_CONNECTION_SHOP"),
    ):
        with pytest.raises(JMSException, match=f"variable {source}: The database URL cannot be read") as error:
            database.resolve()
        assert "marker" not in "".join(traceback.format_exception(error.value))


def test_server_that_cannot_be_reached_is_told_alike_by_both_connections() -> None:
    database = DatabaseReference(url="postgresql://app@127.0.0.1:1/shop")
    for connect in (database.connect, database.connect_arrow):
        with (
            pytest.raises(ResourceAllocationException, match="reading: the server cannot be reached"),
            connect("reading"),
        ):
            pass


def test_tasks_and_drivers_do_not_load_pandas() -> None:
    modules = (
        "reading.batch_reader",
        "streaming.queue_stream_reader",
        "streaming.history_stream_reader",
        "writing.task",
    )
    program = f"""
import importlib, sys
for name in {modules}:
    importlib.import_module("jmsql.spark." + name)
from jmsql.spark.connection import DatabaseReference
try:
    with DatabaseReference(url="postgresql://127.0.0.1:1/nowhere").connect_arrow("testing"):
        pass
except Exception:
    print("pandas" in sys.modules)
"""
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert shown == "False\n"
