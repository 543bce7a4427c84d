"""URLs are read as SQLAlchemy reads them, whose engines they are for, and shown without a password."""

from __future__ import annotations

import random

import pytest
import sqlalchemy
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.exc import ArgumentError

from jmsql.exceptions import JMSException
from jmsql.store.connections.database_url import parse_url, without_secrets
from jmsql.store.connections.engine import Endpoint, open_engine

URLS = [
    "postgresql://",
    "postgres://db",
    "postgresql+psycopg://app@db:5432/shop",
    "postgresql://app:@db/shop",
    "postgresql://:secret@db/shop",
    "postgresql://app:s%40cr%2Fe+t@db/sh%20op",
    "postgresql://app:sl/ash?and#more@db/shop",
    "postgresql://[::1]:5432/shop",
    "postgresql:///shop?host=/run/postgresql&port=5433",
    "postgresql://db/shop?options=-c+search_path%3Da+b&application_name=caf%C3%A9",
    "postgresql://db/shop?empty=&connect_timeout=3",
    "postgresql://db/shop?",
    "postgresql://db/a/b?target_session_attrs=any",
    "postgresql:///shop?host=one:1&host=two:2",
    "postgresql:///shop?host=one,two&port=1,2",
    "postgresql:///shop?host=one:1",
    "postgresql://db:5432/shop?host=other",
]
UNREADABLE = [
    "db",
    "//secret",
    "app:secret@db",
    "postgresql:app:secret@db",
    "postgresql://db:port/shop",
    "postgresql://db:/shop",
    "postgresql://app:sec@ret@db:secret/shop",
    "postgresql://one:1,two:secret/shop",
    "postgresql://one:1,/shop",
]


def of_sqlalchemy(url: str) -> sqlalchemy.URL | None:
    try:
        return sqlalchemy.make_url(url).set(drivername="postgresql+psycopg")
    except (ArgumentError, ValueError):
        return None


def of_jmsql(url: str) -> sqlalchemy.URL | None:
    try:
        parsed = parse_url(url)
    except JMSException:
        return None
    return sqlalchemy.URL.create("postgresql+psycopg", **parsed._asdict())


@pytest.mark.parametrize("url", [*URLS, *UNREADABLE])
def test_it_is_read_as_sqlalchemy_reads_it(url: str) -> None:
    assert (of_sqlalchemy(url) is None) == (url in UNREADABLE)
    assert of_jmsql(url) == of_sqlalchemy(url)


def test_any_url_is_read_as_sqlalchemy_reads_it() -> None:
    """Also what no one would write: a password may have any character, and may have been left unquoted."""
    chosen = random.Random(1)
    for _ in range(3000):
        url = "postgresql://" + "".join(chosen.choices("ab1:/@?#[]&=+%20,.\n é", k=chosen.randrange(24)))
        read = of_jmsql(url)
        if read is not None and "," in read.query.get("port", ""):
            continue  # several servers, as libpq writes them
        assert read == of_sqlalchemy(url), url


@pytest.mark.parametrize(
    "servers",
    ["one:1,two:2", "one:1,two", "one,two:2,three:3", "[::1]:1,[fe80::2]:2", "[::1],[::2]:2", "[::1]:1,two:2"],
)
def test_several_servers_are_read_as_libpq_reads_them(servers: str) -> None:
    url = f"postgresql://app:secret@{servers}/shop?target_session_attrs=read-write"
    parsed = parse_url(url)
    assert conninfo_to_dict(parsed.text()) == conninfo_to_dict(url)
    expected = {name: value for name, value in conninfo_to_dict(url).items() if name in ("host", "port", "dbname")}
    assert Endpoint(parsed)._arguments.items() >= expected.items()
    assert "secret" not in without_secrets(parsed)


@pytest.mark.parametrize("url", URLS)
def test_a_direct_connection_gets_an_engines_parameters(url: str) -> None:
    engine = open_engine(url)
    _, expected = PGDialect_psycopg().create_connect_args(engine.url)  # type: ignore[no-untyped-call]
    given = Endpoint(parse_url(url))._arguments
    assert {name: str(given[name]) for name in expected} == {name: str(value) for name, value in expected.items()}


@pytest.mark.parametrize("url", URLS)
def test_its_text_is_read_back(url: str) -> None:
    parsed = parse_url(url)
    again = parse_url(parsed.text())
    assert again._replace(username=again.username or None) == parsed._replace(username=parsed.username or None)


def test_libpq_reads_its_text_in_the_same_way() -> None:
    parsed = parse_url("postgresql://app:s%40cr%2Fe+t@db:1/sh%20op?options=-c+search_path%3Da+b&sslmode=prefer")
    assert conninfo_to_dict(parsed.text()) == {
        "user": "app",
        "password": "s@cr/e+t",
        "host": "db",
        "port": "1",
        "dbname": "sh op",
        "options": "-c search_path=a b",
        "sslmode": "prefer",
    }


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://app:secret@db/shop",
        "postgresql://:secret@db/shop",
        "postgresql://app@db/shop?password=secret",
        "postgresql://db/shop?user=app&password=secret",
        "postgresql://app@db/shop?sslpassword=secret",
    ],
)
def test_no_password_is_shown(url: str) -> None:
    parsed = parse_url(url)
    assert "secret" in parsed.text()
    for shown in (without_secrets(parsed), repr(parsed), str(parsed), f"{parsed}", repr([parsed])):
        assert "secret" not in shown
        assert "db/shop" in shown


@pytest.mark.parametrize("url", UNREADABLE)
def test_an_unreadable_url_is_not_shown(url: str) -> None:
    with pytest.raises(JMSException) as failure:
        parse_url(url)
    assert str(failure.value).startswith("The database URL cannot be read; write postgresql://")
    assert failure.value.__cause__ is None
    assert failure.value.__suppress_context__ or failure.value.__context__ is None


def test_another_database_is_refused_by_its_name() -> None:
    with pytest.raises(JMSException, match="not mysql://…"):
        parse_url("mysql://root:secret@localhost/db")


def test_user_and_password_replace_those_of_the_url() -> None:
    parsed = parse_url("postgresql://app:secret@db/shop?user=other&password=hidden", "clerk")
    assert (parsed.username, parsed.password, dict(parsed.query)) == ("clerk", None, {})
    assert parse_url("postgresql://app:secret@db/shop", "clerk", "key").text() == "postgresql://clerk:key@db/shop"


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("postgresql://app:secret@db/shop", "database 'shop' on db"),
        ("postgresql://app@db:6432/shop", "database 'shop' on db:6432"),
        ("postgresql://app@db", "database 'app' on db"),
        ("postgresql://app@/shop?host=/run/postgresql&port=5433", "database 'shop' on /run/postgresql"),
        ("postgresql://app@/shop?host=one:1&host=two:2", "database 'shop' on one:1,two:2"),
        ("postgresql://app@/shop?host=one,two&port=1,2", "database 'shop' on one,two"),
        ("postgresql:///?service=shop", "database 'shop' on service shop"),
        ("postgresql://app@/shop", "database 'shop' on a local socket"),
    ],
)
def test_the_place_of_a_database_in_words(url: str, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGHOST", "PGHOSTADDR", "PGPORT", "PGDATABASE", "PGUSER", "PGSERVICE"):
        monkeypatch.delenv(name, raising=False)
    assert str(parse_url(url).place) == place


def test_the_environment_completes_the_url(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PGHOST": "db", "PGPORT": "6432", "PGDATABASE": "shop"}.items():
        monkeypatch.setenv(name, value)
    assert str(parse_url("postgresql://").place) == "database 'shop' on db:6432"
