"""Who may look, and who may do something."""

from __future__ import annotations

import base64
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest
from typer.testing import CliRunner

import jmsql
from jmsql.cli.application import app
from jmsql.console import Console, Level, Visitor
from jmsql.console.access import HeaderGate, PasswordGate, TokenGate
from tests.console.conftest import ALICE, BOB
from tests.console.http import Answer, Browsing
from tests.console.serving import Served

Serve = Callable[..., Served]

PAGES = ("/", "/search", "/dead-letters", "/clients", "/destinations/1", "/nowhere")


def test_console_without_access_is_refused_at_construction(jmsql_factory: jmsql.ConnectionFactory) -> None:
    with pytest.raises(TypeError, match="access"):
        Console(jmsql_factory)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="open to everybody"):
        Console(jmsql_factory, access=None)  # type: ignore[arg-type]


@pytest.mark.parametrize("path", PAGES)
def test_nothing_is_shown_without_the_token(serve: Serve, path: str) -> None:
    visitor = Browsing(serve(access=TokenGate("secret", 8161)))
    for query in ("", "?token=", "?token=wrong"):
        answer = visitor.get(path + query)
        assert answer.status == 403
        assert "DLQ" not in answer.text
        assert "secret" not in answer.text
    assert visitor.cookies == {}


def test_token_opens_the_console_and_leaves_the_address(serve: Serve) -> None:
    visitor = Browsing(serve(access=TokenGate("secret", 8161)))
    answer = visitor.get("/search?q=x&token=secret")
    assert (answer.status, answer.location) == (303, "/search?q=x")
    cookies = answer.headers.get_all("Set-Cookie") or []
    assert len(cookies) == 1
    cookie = cookies[0]
    assert "secret" not in cookie
    assert "HttpOnly" in cookie
    assert visitor.get("/").status == 200
    assert Browsing(visitor.served, cookies={"jmsql-console-8161": "0" * 64}).get("/").status == 403


def test_password_is_asked_for(serve: Serve) -> None:
    visitor = Browsing(serve(access=PasswordGate("pass:word")))
    answer = visitor.get("/")
    assert answer.status == 401
    assert answer.headers["WWW-Authenticate"].startswith("Basic ")
    for given, status in (("me:pass:word", 200), ("me:wrong", 401), ("me", 401)):
        encoded = base64.b64encode(given.encode()).decode()
        assert visitor.get("/", Authorization=f"Basic {encoded}").status == status
    for header in ("Basic %", "Basic", "Bearer pass:word"):
        assert visitor.get("/", Authorization=header).status == 401


def basic(name: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


@pytest.mark.parametrize("way", ["password", "token"])
def test_guessing_is_logged_and_slowed_and_leaves_signed_in_visitors_alone(
    serve: Serve, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    now = [1000.0]
    monkeypatch.setattr("jmsql.console.access.monotonic", lambda: now[0])
    gate = PasswordGate("right") if way == "password" else TokenGate("right", 8161)
    served = serve(access=gate)
    known, guesser = Browsing(served), Browsing(served)

    def sign_in(visitor: Browsing, secret: str) -> Answer:
        if way == "password":
            return visitor.get("/nowhere", **basic("eve\nx", secret))
        return visitor.get(f"/?token={secret}")

    granted, refused = (404, 401) if way == "password" else (303, 403)
    known.get("/", **basic("eve\nx", "right")) if way == "password" else None
    assert sign_in(known, "right").status == granted
    assert [sign_in(guesser, f"wrong{number}").status for number in range(10)] == [refused] * 9 + [429]
    answer = sign_in(guesser, "right")
    assert (answer.status, answer.headers["Retry-After"]) == (429, "6")
    assert "Try again in 6 s" in answer.text
    assert sign_in(known, "right").status == granted
    assert len([each for each in caplog.records if each.levelname == "WARNING"]) == 11
    assert "from 127.0.0.1 has failed" in caplog.text
    assert "wrong" not in caplog.text
    assert "right" not in caplog.text
    assert all("\n" not in each.getMessage() for each in caplog.records)
    now[0] += 6.0
    assert sign_in(guesser, "right").status == granted


def test_header_is_believed_of_the_proxy_alone(serve: Serve) -> None:
    through = Browsing(serve(access=HeaderGate("X-Forwarded-User", ["127.0.0.1"])))
    assert "as carol" in through.get("/", **{"X-Forwarded-User": "carol"}).text
    assert through.get("/").status == 403
    assert through.get("/", **{"X-Forwarded-User": " "}).status == 403
    past = Browsing(serve(access=HeaderGate("X-Forwarded-User", ["10.0.0.9"])))
    assert past.get("/", **{"X-Forwarded-User": "carol"}).status == 403


@pytest.mark.parametrize("found", [None, Level.LOOK, Level.OPERATE, BOB], ids=str)
@pytest.mark.parametrize("awaited", [False, True])
def test_application_decides_which_visitors_may_look(
    serve: Serve, found: Visitor | Level | None, awaited: bool
) -> None:
    async def later(_: object) -> Visitor | Level | None:
        return found

    visitor = Browsing(serve(access=later if awaited else lambda _: found))
    answer = visitor.get("/")
    assert answer.status == (403 if found is None else 200)
    if found is not None:
        assert ("look and operate" in answer.text) is (found is Level.OPERATE)


def test_access_function_that_returns_something_else_shows_nothing(serve: Serve) -> None:
    answer = Browsing(serve(access=lambda _: True)).get("/")
    assert answer.status == 500
    assert "DLQ" not in answer.text


@pytest.mark.parametrize(("settings", "reason"), [({"access": lambda _: BOB}, "look"), ({"read_only": True}, "only")])
def test_a_visitor_who_may_only_look_is_offered_nothing_and_refused(
    serve: Serve, jmsql_factory: jmsql.ConnectionFactory, settings: dict[str, object], reason: str
) -> None:
    with jmsql_factory.create_context() as context:
        context.create_producer().send(jmsql.Queue("orders"), "x")
    visitor, operator = Browsing(serve(**settings)), Browsing(serve())
    path = visitor.find("orders")
    for page in (path, "/", "/dead-letters", "/clients"):
        text = visitor.get(page).text
        assert 'method="post"' not in text
        assert not re.search(r"/(purge|move|retry|pause|send)", text), (reason, page)
    assert "/purge" in operator.get(path).text
    for action in ("purge", "move", "retry", "pause", "resume", "send", "delete"):
        assert visitor.get(f"{path}/{action}").status == 403
        answer = visitor.post(f"{path}/{action}", [("form_key", visitor.cookies["jmsql-console-form"])])
        assert answer.status == 403
    assert "orders" in visitor.get(path).text
    with jmsql_factory.create_context() as context:
        assert context.create_consumer(jmsql.Queue("orders")).receive(timeout=60) is not None


def command(*words: str, **environment: str) -> str:
    result = CliRunner().invoke(app, ["console", *words], env=environment)
    assert result.exit_code == 2, result.output
    return " ".join(re.sub("[│╭╮╰╯─]", " ", result.stderr).split())


def test_command_does_not_open_to_the_network_without_a_password_or_a_proxy() -> None:
    assert "can be reached from other machines" in command("--host", "0.0.0.0")
    assert "can be reached from other machines" in command("--host", "::")
    assert "can be reached from other machines" in command("--host", "192.0.2.1")
    assert "--allowed-host" in command("--host", "0.0.0.0", JMSQL_CONSOLE_PASSWORD="x")
    assert "together" in command("--user-header", "X-User")
    assert "together" in command("--proxy", "10.0.0.1")


def test_command_prints_an_address_with_a_token_that_opens_it(jmsql_clean_url: str) -> None:
    environment = os.environ | {"JMSQL_URL": jmsql_clean_url}
    process = subprocess.Popen(
        [sys.executable, "-m", "jmsql", "console", "--port", "0"],
        env=environment, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            found = re.search(r"http://127\.0\.0\.1:(\d+)(/\?token=\S+)", line)
            assert found is not None, line
            assert jmsql_clean_url.partition("@")[0] not in line
            visitor = Browsing(Served(int(found[1]), None))  # type: ignore[arg-type]
            assert visitor.get("/").status == 403
            assert visitor.get(found[2]).status == 303
            assert visitor.get("/").status == 200
            assert visitor.get("/", Host="evil.example").status == 400
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(60) in {0, 130}


def test_names_of_visitors_are_escaped(serve: Serve) -> None:
    answer = Browsing(serve(access=lambda _: Visitor("<b>x\u202e", ALICE.level))).get("/")
    assert "&lt;b&gt;x[U+202E]" in answer.text
