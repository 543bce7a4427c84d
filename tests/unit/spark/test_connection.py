from __future__ import annotations

import sys
from types import ModuleType

import pytest

from jmsql import JMSException
from jmsql.spark.connection import Database


def test_variable_of_the_process_names_the_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JMSQL_URL", "postgresql://app:secret@db/shop")
    url = Database().libpq_url("reading")
    assert url == "postgresql://app:secret@db/shop?application_name=reading"


def test_named_connection_is_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JMSQL_CONNECTION_SHOP_EU", "postgresql://app@eu/shop")
    assert Database(connection="shop-eu").resolve().host == "eu"


def test_named_connection_is_a_service_else() -> None:
    assert Database(connection="shop").libpq_url("reading") == "postgresql://?application_name=reading&service=shop"


def test_named_connection_is_a_function_of_a_module(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("vault")
    module.url = lambda: "postgresql://app:secret@db/shop"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vault", module)
    assert Database(connection="vault:url").resolve().password == "secret"


def test_function_that_fails_shows_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    def url() -> str:
        raise RuntimeError("the token is hidden")

    module = ModuleType("vault")
    module.url = url  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "vault", module)
    with pytest.raises(
        JMSException, match="Option 'connection': vault:url gave no URL; it raised RuntimeError"
    ) as error:
        Database(connection="vault:url").resolve()
    assert error.value.__cause__ is None
    assert "hidden" not in str(error.value)


def test_nothing_named_says_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JMSQL_URL", raising=False)
    with pytest.raises(JMSException, match="JMSQL_URL"):
        Database().resolve()


def test_unknown_service_names_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGSERVICEFILE", "/nonexistent")
    with (
        pytest.raises(JMSException, match="Option 'connection': 'shop' is neither a variable JMSQL_CONNECTION_SHOP"),
        Database(connection="shop").connect("reading"),
    ):
        pass


def test_shown_form_has_no_secret() -> None:
    with pytest.raises(JMSException) as error:
        Database(url="postgresql://app:secret@db/shop")
    assert "secret" not in str(error.value)
