"""The application's table: each handler inserts one row, by which it is counted what was done, and when."""

from __future__ import annotations

import os

import sqlalchemy

DATABASE = "JMSQL_BENCHMARK_DATABASE"
"""The environment variable with the URL of the database."""

BROKER = "JMSQL_BENCHMARK_BROKER"
"""The environment variable with the URL of the broker, for workers that have one."""

CONCURRENCY = "JMSQL_BENCHMARK_CONCURRENCY"
"""The environment variable that says how many handlers run at a time in a process: so many connections they need."""

TABLE = """
    create table effect (
        effect_id bigint generated always as identity,
        number integer not null,
        began double precision not null,
        inserted_at timestamptz not null default clock_timestamp())"""
"""`began` is the monotonic clock's reading in the first line of the handler, which all processes share."""

INSERT = "insert into effect (number, began) values ({number}, {began})"

SQLALCHEMY_INSERT = INSERT.format(number=":number", began=":began")
PSYCOPG_INSERT = INSERT.format(number="%s", began="%s")
ASYNCPG_INSERT = INSERT.format(number="$1", began="$2")


def database_url() -> str:
    """Return where the application's database is."""
    return os.environ[DATABASE]


def broker_url() -> str:
    """Return where the application's broker is."""
    return os.environ[BROKER]


def concurrency() -> int:
    """Return how many handlers run at a time in a process."""
    return int(os.environ.get(CONCURRENCY, "1"))


def sqlalchemy_url() -> sqlalchemy.URL:
    """Return where the application's database is, for SQLAlchemy with psycopg."""
    return sqlalchemy.make_url(database_url()).set(drivername="postgresql+psycopg")
