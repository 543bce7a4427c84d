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
