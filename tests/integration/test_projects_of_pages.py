"""Pages that lead to a project work as a reader follows them: in an empty folder, with an empty database.

`-k fastapi` follows one page. See `tests.projects`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from jmsql.testing import wait_for
from tests.documentation import blocks
from tests.preloaded import PreloadedPrograms, preloaded_programs
from tests.projects import PATIENCE, PROJECTS, Project, empty_database, is_shown, is_shown_among, project


@pytest.fixture(scope="module")
def programs() -> Iterator[PreloadedPrograms]:
    with preloaded_programs() as programs:
        yield programs


@pytest.fixture
def database(jmsql_server_url: str) -> Iterator[str]:
    with empty_database(jmsql_server_url, f"jmsql_project_{os.getpid()}") as url:
        yield url


STORED: dict[str, tuple[str, list[tuple[object, ...]]]] = {
    "README.md": ("select id, goods, state from purchase", [(1, "kite", "shipped")]),
    "docs/tutorial.md": ("select number, state from purchase order by number", [(1, "shipped"), (2, "shipped")]),
}
"""What the projects of pages leave in their databases."""


@pytest.mark.timeout(400)
@pytest.mark.parametrize(("page", "tab"), [pytest.param(*each, id=" ".join(filter(None, each))) for each in PROJECTS])
def test_a_page_leads_to_a_project_that_works_as_shown(
    page: str, tab: str | None, database: str, jmsql_server_url: str, programs: PreloadedPrograms, tmp_path: Path
) -> None:
    environment = {
        "PATH": os.pathsep.join((str(programs.directory), os.environ["PATH"])),
        "JMSQL_TEST_URL": jmsql_server_url,
        # Plugins that a reader need not have, and a warning about modules that the programs have imported before.
        "PYTEST_ADDOPTS": "-p no:anyio -p no:asyncio -W ignore::pytest.PytestAssertRewriteWarning",
    }
    with project(page, tmp_path, database, environment, tab) as begun:
        for block in begun.follow():
            if page == "docs/fastapi.md" and block.language == "text":
                check_that_the_commit_comes_before_the_answer(begun, database)
        if page in STORED:
            query, rows = STORED[page]
            with psycopg.connect(database, autocommit=True) as administrator:
                # A handler prints before its transaction ends.
                wait_for(lambda: administrator.execute(query.encode()).fetchall() == rows, PATIENCE)


def test_the_landing_page_shows_the_project_of_the_readme() -> None:
    landing, readme = (
        [block.text for block in blocks(page, "python", "sh", "console", "text")]
        for page in ("docs/index.md", "README.md")
    )
    assert landing == readme


def check_that_the_commit_comes_before_the_answer(shop: Project, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as administrator:
        administrator.execute(
            """
            create function refuse() returns trigger language plpgsql as $$ begin raise 'refused at the commit'; end $$;
            create constraint trigger refuse after insert on purchase deferrable initially deferred
            for each row when (new.reference = 'A2') execute function refuse()
            """
        )
        shop.type("curl -s -o answer -w '%{http_code}\\n' -X POST localhost:8000/orders/A2", ["500"])
        assert administrator.execute("select reference from purchase").fetchall() == [("A1",)]
        assert administrator.execute("select body from jmsql.messages where body like '%A2%'").fetchall() == []


@pytest.mark.parametrize(
    ("shown", "printed", "is_alike"),
    [
        (
            ["Sent ID:7a1f6fc4-7f3a-4b12-9c1a-1f0c6d2a3b4c in 3 ms."],
            ["Sent ID:00000000-7f3a-4b12-9c1a-1f0c6d2a3b4c in 14 ms."],
            True,
        ),
        (["Sent 1 message."], ["Sent 2 messages."], False),
        (["name   ready", "orders     1"], ["name     ready", "", "orders         1"], True),
        (["a", "…", "d"], ["a", "b", "c", "d"], True),
        (["a …"], ["a b c"], True),
        (["a"], ["a", "b"], False),
        ([], ["a"], False),
    ],
)
def test_output_may_differ_from_a_page_in_times_and_identifiers(
    shown: list[str], printed: list[str], is_alike: bool
) -> None:
    assert is_shown(shown, printed) == is_alike


def test_a_page_may_show_some_lines_of_a_log() -> None:
    log = ["2026-05-01 10:00:00,123 INFO worker: ready", "Shipped A1", "2026-05-01 10:00:01,000 INFO worker: ended"]
    assert is_shown_among(["Shipped A1", "2020-01-01 00:00:00,000 INFO worker: ended"], log)
    assert not is_shown_among(["Shipped A1", "2020-01-01 00:00:00,000 INFO worker: ready"], log)
