from __future__ import annotations

from pathlib import Path

import pytest

import jmsql
from jmsql.client._sync.database.opening import default_url
from jmsql.embedded import server


def test_factory_without_a_url_uses_the_embedded_server_and_makes_its_schema(
    data_directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JMSQL_URL", raising=False)
    monkeypatch.setattr(server, "_default_directory", lambda: data_directory)
    with jmsql.ConnectionFactory().create_context() as context:
        queue = context.create_queue("orders")
        context.create_producer().send(queue, "hello")
        assert context.create_consumer(queue).receive_body(str, timeout=5) == "hello"
    server._uses.pop(data_directory).end()  # which else the end of the process would do


def test_environment_variable_goes_before_the_embedded_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JMSQL_URL", "postgresql://shop@db/shop")
    assert default_url("jmsql") == "postgresql://shop@db/shop"
