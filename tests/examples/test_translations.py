"""Programs for Celery, RQ and FastStream, translated: they run, and are no longer than they were."""

from __future__ import annotations

import ast
import re
import subprocess
import sys

import psycopg
import pytest

from examples.celery_shop.test_tasks import *  # noqa: F403 - its tests run here
from examples.faststream_plant.test_plant import *  # noqa: F403 - its test runs here
from jmsql.testing import wait_for
from tests.examples.conftest import ROOT, running

PROGRAMS = {
    "celery_shop": ("tasks.py", "ask.py", "test_tasks.py"),
    "rq_words": ("words.py", "count.py"),
    "faststream_plant": ("plant.py", "measure.py", "test_plant.py"),
}


def length(source: str) -> int:
    """Return how many lines of code there are, without docstrings, comments and empty lines."""
    left_out = set[int]()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            left_out.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = enumerate(map(str.strip, source.splitlines()), start=1)
    return sum(1 for number, line in lines if line and not line.startswith("#") and number not in left_out)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_translation_is_no_longer_than_the_original(name: str) -> None:
    folder = ROOT / "examples" / name
    originals = re.findall(r"^```python\n(.*?)^```", (folder / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    translated = [(folder / file).read_text() for file in PROGRAMS[name]]
    assert sum(map(length, translated)) <= sum(map(length, originals))


def run(program: str, *arguments: str, environment: dict[str, str]) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", program, *arguments], cwd=ROOT, env=environment, check=True, timeout=180, stdout=-1
    )
    return done.stdout.decode().splitlines()


def test_the_shop_writes_letters_and_makes_a_report(environment: dict[str, str], jmsql_clean_url: str) -> None:
    with running("jmsql worker examples.celery_shop.tasks:app --only mail,reports", environment, {0}):
        assert run("examples.celery_shop.ask", "2026-11", "ann@example.org", environment=environment) == [
            "{'orders': 11}"
        ]
        with psycopg.connect(jmsql_clean_url, autocommit=True) as database:
            wait_for(lambda: database.execute("select from jmsql.messages").fetchall() == [], 60.0)


def test_words_are_counted(environment: dict[str, str]) -> None:
    with running("jmsql worker examples.rq_words.words:app", environment, {0}):
        file = "examples/rq_words/__init__.py"
        counted, missing = run("examples.rq_words.count", file, "no such file", environment=environment)
    assert counted == f"{file} 5"
    assert "No such file" in missing


def test_readings_are_stored_in_batches(environment: dict[str, str], jmsql_clean_url: str) -> None:
    run("examples.faststream_plant.measure", "250", environment=environment)
    with psycopg.connect(jmsql_clean_url, autocommit=True) as database:
        with running("jmsql worker examples.faststream_plant.plant:app", environment, {0}):
            wait_for(lambda: _count(database, "select count(*) from jmsql.messages") == 3, 60.0)
        assert _count(database, "select count(*) from reading") == 250
        assert _count(database, "select count(distinct xmin::text) from reading") <= 10
        database.execute("drop table reading")


def _count(database: psycopg.Connection[tuple[int]], statement: str) -> int:
    (row,) = database.execute(statement.encode()).fetchall()
    return row[0]
