"""The programs in the documentation run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

ROOT = Path(__file__).parents[2]
PAGES = (
    "README.md",
    "docs/tutorial.md",
    "docs/messages.md",
    "docs/sessions.md",
    "docs/two-phase-commit.md",
    "docs/connection-consumers.md",
    "docs/message-groups.md",
    "docs/topics.md",
    "docs/enlist.md",
    "docs/worker.md",
    "docs/redelivery.md",
    "docs/history.md",
    "docs/selectors.md",
)
PROGRAM = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
EXAMPLE_URL = "postgresql+psycopg://shop@db/shop"


@pytest.fixture
def url(jmsql_clean_url: str) -> Iterator[str]:
    yield jmsql_clean_url
    engine = sqlalchemy.create_engine(sqlalchemy.make_url(jmsql_clean_url).set(drivername="postgresql+psycopg"))
    with engine.begin() as database:
        database.execute(sqlalchemy.text("drop table if exists orders, shipment"))
    engine.dispose()


@pytest.mark.parametrize("page", PAGES)
def test_the_programs_of_a_page_run_one_after_the_other(url: str, page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JMSQL_URL", url)
    driver_url = sqlalchemy.make_url(url).set(drivername="postgresql+psycopg").render_as_string(hide_password=False)
    programs = PROGRAM.findall((ROOT / page).read_text())
    assert programs
    names: dict[str, Any] = {"__name__": "documentation"}
    for program in programs:
        exec(compile(program.replace(EXAMPLE_URL, driver_url), page, "exec", dont_inherit=True), names)
    for engine in names.values():
        if isinstance(engine, sqlalchemy.Engine):
            engine.dispose()
