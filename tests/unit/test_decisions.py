"""The index of the decisions, through which readers reach them."""

from __future__ import annotations

import re

from tests.documentation import ROOT

DECISIONS = ROOT / "docs/decisions"
LINE = re.compile(r"^- (\d+) · \[([^]]+)\]\((\d{4}-[a-z0-9-]+\.md)\)", re.MULTILINE)


def test_the_index_lists_each_decision_by_its_number_and_title() -> None:
    listed = LINE.findall((DECISIONS / "index.md").read_text())
    titles = []
    for path in sorted(DECISIONS.glob("0*.md")):
        found = re.match(r"# (\d+)\. (.+)\n", path.read_text())
        assert found is not None, path
        assert int(path.name[:4]) == int(found[1]), path
        titles.append((found[1], found[2], path.name))
    assert listed == titles


def test_decisions_that_hold_name_no_file_that_is_gone() -> None:
    superseded = re.findall(r"\]\((\S+)\) · superseded", (DECISIONS / "index.md").read_text())
    gone = {
        (path.name, name)
        for path in DECISIONS.glob("0*.md")
        if path.name not in superseded
        for name in re.findall(r"`([\w./]+/\w+\.(?:py|sql))`", path.read_text())
        if not any((ROOT / root / name).is_file() for root in ("", "jmsql", "tests", "migrations"))
    }
    assert gone == set()
