"""The requirements and cases that the compliance suite answers to, and what became of each.

``requirements.csv`` and ``cases.csv`` list them all.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Literal

Kind = Literal["requirement", "case"]

KINDS: tuple[Kind, ...] = ("requirement", "case")


class Outcome(IntEnum):
    """What became of a test; of several runs of one test, such as its parameters, the highest counts."""

    PASSED = 0
    SKIPPED = 1
    FAILED = 2


@dataclass(frozen=True)
class Entry:
    """A requirement or a case: its id, and its section of the specification or its class of the suite."""

    id: str
    group: str


@dataclass(frozen=True)
class Catalogue:
    """All entries of each kind."""

    entries: dict[Kind, list[Entry]]

    @classmethod
    def read(cls, directory: Path) -> Catalogue:
        """Read the two files."""
        requirements = [Entry(row["id"], row["section"]) for row in _rows(directory / "requirements.csv")]
        cases = [Entry(row["id"], row["class"]) for row in _rows(directory / "cases.csv")]
        return cls({"requirement": requirements, "case": cases})

    def ids(self, kind: Kind) -> set[str]:
        """The ids of one kind."""
        return {entry.id for entry in self.entries[kind]}


@dataclass
class Record:
    """Which tests stand for which entries, and how they ended."""

    catalogue: Catalogue
    tests: dict[str, dict[str, Outcome]] = field(default_factory=lambda: defaultdict(dict))

    def add(self, ids: Iterable[str], test: str, outcome: Outcome) -> None:
        """Note that the test stands for the ids and ended like this."""
        for identifier in ids:
            tests = self.tests[identifier]
            tests[test] = max(outcome, tests.get(test, outcome))

    def problems(self) -> list[str]:
        """What keeps a complete run from passing."""
        return [
            f"{kind} {entry.id} has no passing test"
            for kind in KINDS
            for entry in self.catalogue.entries[kind]
            if not self._passes(entry.id)
        ]

    def table(self) -> str:
        """The compliance table, as Markdown."""
        return "\n".join(self._lines()) + "\n"

    def _passes(self, identifier: str) -> bool:
        return Outcome.PASSED in self.tests.get(identifier, {}).values()

    def _status(self, identifier: str) -> str:
        outcomes = self.tests.get(identifier, {}).values()
        return max(outcomes).name.lower() if outcomes else "missing"

    def _lines(self) -> Iterator[str]:
        yield "# Compliance"
        yield ""
        yield "What JMS requires and the cases of its compliance suite, with the tests that prove each. Written by the"
        yield "test run (`make test`), which fails if anything below has no passing test."
        for kind, group in zip(KINDS, ("Section", "Class"), strict=True):
            entries = self.catalogue.entries[kind]
            passed = sum(self._passes(entry.id) for entry in entries)
            yield ""
            yield f"## {kind.capitalize()}s: {passed} of {len(entries)} proven"
            yield ""
            yield f"| {kind.capitalize()} | {group} | Tests | Outcome |"
            yield "| --- | --- | --- | --- |"
            for entry in entries:
                tests = "<br>".join(f"`{test}`" for test in sorted(self.tests.get(entry.id, ())))
                yield f"| `{entry.id}` | {entry.group} | {tests} | {self._status(entry.id)} |"


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))
