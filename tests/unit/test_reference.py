"""The reference in the documentation shows the public names, and of classes the members in `reference.txt`."""

from __future__ import annotations

import importlib
import inspect
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.documentation import ROOT
from tests.unit.test_public_names import AWAITED, MODULES, VALUES

LISTING = Path(__file__).with_name("reference.txt")
RENEW = "JMSQL_RENEW_LISTING"

_DIRECTIVE = re.compile(r"^::: (jmsql[\w.]*)\n(?P<options>(?:    .*\n)*)", re.MULTILINE)
_FILTERS = re.compile(r'^            filters:\n((?: +- ".*"\n)+)', re.MULTILINE)


class Directive(NamedTuple):
    """An object that the reference shows."""

    name: str
    options: dict[str, Any]


def directives() -> list[Directive]:
    return [
        Directive(found[1], (yaml.safe_load(found["options"]) or {}).get("options", {}))
        for page in sorted(ROOT.glob("docs/**/*.md"))
        for found in _DIRECTIVE.finditer(page.read_text())
    ]


def shown_by(directive: Directive) -> Iterator[str]:
    """Yield the names that a directive shows: of a module, all of its names."""
    if directive.name in {*MODULES, *AWAITED} and directive.options.get("members", True):
        yield from (f"{directive.name}.{name}" for name in importlib.import_module(directive.name).__all__)
    else:
        yield directive.name


def test_each_public_name_is_shown_once() -> None:
    shown = Counter(name for each in directives() for name in shown_by(each))
    public = {f"{module}.{name}" for module, name, _ in VALUES}
    assert {name: count for name, count in shown.items() if count > 1} == {}
    assert public - shown.keys() == set()


def members(directive: Directive, filters: list[str]) -> list[str]:
    """Return the members of a class that a directive shows."""
    module, _, name = directive.name.rpartition(".")
    kind = getattr(importlib.import_module(module), name, None)
    if not isinstance(kind, type) or directive.options.get("members") is False:
        return []
    inherited = directive.options.get("inherited_members", False)
    classes = [each for each in kind.__mro__ if each.__module__.startswith("jmsql")] if inherited else [kind]
    names = {name for each in classes for name in (*vars(each), *inspect.get_annotations(each))}
    if isinstance(inherited, list):
        names = {*vars(kind), *inherited}
    excluded = [re.compile(each.removeprefix("!")) for each in directive.options.get("filters", filters)]
    return sorted(
        name for name in names if not name.startswith("_") and not any(each.search(name) for each in excluded)
    )


def test_the_reference_shows_the_members_of_the_listing() -> None:
    """`JMSQL_RENEW_LISTING=1` writes the listing: look at its difference, and filter what users must not call."""
    [found] = _FILTERS.findall((ROOT / "mkdocs.yml").read_text())
    filters = yaml.safe_load(found)
    listing = "".join(
        f"{each.name}: {', '.join(shown)}\n"
        for each in sorted(directives(), key=lambda directive: directive.name)
        if (shown := members(each, filters))
    )
    if os.environ.get(RENEW):
        LISTING.write_text(listing)
    assert listing.splitlines() == LISTING.read_text().splitlines()
