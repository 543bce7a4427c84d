"""The console inside other applications, below prefixes, and behind proxies that cut them off."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import fastapi
import litestar
import litestar.handlers
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import Receive, Scope, Send

import jmsql
from jmsql.console import Console
from tests.console.conftest import ALICE
from tests.console.http import Browsing
from tests.console.serving import Served, served

Application = Callable[[Console, str], Any]


def in_starlette(console: Console, prefix: str) -> Any:
    return Starlette(routes=[Mount(prefix or "/", app=console)])


def in_fastapi(console: Console, prefix: str) -> Any:
    application = fastapi.FastAPI()
    application.mount(prefix or "/", console)
    return application


def in_litestar(console: Console, prefix: str) -> Any:
    mounted = litestar.handlers.asgi(prefix or "/", is_mount=True, copy_scope=True)(console)
    return litestar.Litestar([mounted], openapi_config=None)


def behind_a_proxy(console: Console, prefix: str) -> Any:
    """Cut the prefix off, as a proxy does, and have the server tell the application of it."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            assert scope["path"].startswith(prefix)
            path = scope["path"].removeprefix(prefix)
            scope = {**scope, "path": path or "/", "raw_path": quote(path).encode(), "root_path": prefix}
        await console(scope, receive, send)

    return answer


@pytest.fixture(params=[in_starlette, in_fastapi, in_litestar, behind_a_proxy], ids=lambda each: each.__name__)
def application(request: pytest.FixtureRequest) -> Application:
    chosen: Application = request.param
    return chosen


@pytest.fixture(params=["", "/a", "/a/b"])
def mounted(
    request: pytest.FixtureRequest, application: Application, jmsql_factory: jmsql.ConnectionFactory
) -> Iterator[Served]:
    console = Console(jmsql_factory, access=lambda _: ALICE)
    with served(application(console, request.param), request.param) as where:
        yield where
    console.close()


def test_links_forms_and_files_lead_back_into_the_console(
    mounted: Served, jmsql_factory: jmsql.ConnectionFactory
) -> None:
    with jmsql_factory.create_context() as context:
        context.create_producer().send(jmsql.Queue("orders"), "x")
    visitor = Browsing(mounted)
    front = visitor.get("/")
    assert front.status == 200
    orders = visitor.find("orders")
    for page in ("/", orders, f"{orders}/purge", "/search"):
        text = visitor.get(page).text
        addresses = re.findall(r"(?:href|src|action|formaction|hx-get)=\"(/[^\"]*)\"", text)
        assert addresses
        for address in dict.fromkeys(addresses):
            assert address.startswith(f"{mounted.prefix}/")
            answer = visitor.request("GET", address.replace("&amp;", "&"))
            assert answer.status == 200, address
    assert visitor.act(f"{orders}/purge") == "1 message deleted."
    cookie = next(each for each in front.headers.get_all("Set-Cookie", ()) if "form" in each)
    assert f"Path={mounted.prefix or '/'};" in cookie
    assert visitor.get("/nowhere").status == 404


def test_mounted_console_ends_its_looks_by_itself(
    jmsql_factory: jmsql.ConnectionFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frameworks tell mounted applications neither that they start nor that they end."""
    from jmsql.console import application as module
    from jmsql.testing import wait_for
    from tests.console.test_live import is_looking

    monkeypatch.setattr(module, "PATIENCE", 0.5)
    monkeypatch.setattr(module, "INTERVAL", 0.1)
    with served(in_fastapi(Console(jmsql_factory, access=lambda _: ALICE), "/jms"), "/jms") as where:
        visitor = Browsing(where)
        wait_for(lambda: visitor.get("/").status == 200 and is_looking(), timeout=60)
        wait_for(lambda: not is_looking(), timeout=60)
