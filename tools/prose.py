"""Finds words that plain technical English has better ones for, in the documentation, docstrings and comments.

`make lint` runs it. Identifiers, string literals and code blocks are not prose, and are not read.
"""

from __future__ import annotations

import argparse
import ast
import functools
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ADVICE = {
    r"anew": "again",
    r"at first[.:]": "say what the default is",
    r"at the soonest": "earliest, or a delay",
    r"claim time limits?": "visibility timeout",
    r"condemn(?:s|ed)": "exhausted",
    r"(?:destination|name|topic|queue|selector|value) is (?-i:none)[.,;:]": "say what it is not: 'It is not a queue.'",
    r"(?:give|gives|given|giving|gave) back": "release",
    r"inbox(?:es)?": "prefetch buffer",
    r"it is (?-i:none)[.,;:]": "say what it is not: 'It is not a queue.'",
    r"outbox(?! to relay)": "send buffer",
    r"sends on": "forwards",
    r"signs? of life": "heartbeat",
    r"so-manyth": "a number",
    r"tall(?:y|ies)": "counters",
    r"to be had": "available, free, found",
    r"traffic": "counters, or what goes through",
    r"upkeep": "maintenance",
    r"wake-ups?": "notification",
    r"what there is": "name it: the queues, the settings, the result",
    r"whoever": "name the actor: the client, the role, the consumer",
    r"without further ado": "leave it out, or 'by default'",
}
"""Regular expressions for what is not to be written, and what to write instead."""

_FENCE = re.compile(r"^[ >]*(```|~~~).*?^[ >]*\1 *$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"``[^`]+``|`[^`\n]+`")
_SQL_PROSE = re.compile(r"--[^\n]*|(?<=\bis\s)\s*'(?:[^']|'')*'", re.IGNORECASE)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# Made from the names of tests.
_GENERATED = {Path("docs/compliance.md")}


class Finding(NamedTuple):
    """A word that is not to be written."""

    path: Path
    line: int
    word: str
    advice: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.word!r}: {self.advice}"


def findings(path: Path) -> list[Finding]:
    """Return what a file's prose has that it should not have."""
    text = path.read_text()
    found = []
    for start, passage in _passages(path, text):
        prose = _CODE.sub(_blank, passage)
        for pattern, advice in ADVICE.items():
            for match in re.finditer(_wanted(pattern), prose, re.IGNORECASE):
                line = text.count("\n", 0, start) + prose.count("\n", 0, match.start()) + 1
                found.append(Finding(path, line, " ".join(match[0].split()), advice))
    return found


@functools.cache
def _wanted(pattern: str) -> str:
    """Return the expression for whole words, between any of which a line may be broken."""
    end = "" if pattern.endswith("]") else r"\b"
    return r"\b" + pattern.replace(" ", r"(?: |[ ]*\n[ #*>-]*)") + end


def _passages(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """Yield the prose in a file, each piece with where it starts."""
    if path.suffix == ".md":
        yield 0, _FENCE.sub(_blank, text)
    elif path.suffix == ".sql":
        for match in _SQL_PROSE.finditer(text):
            yield match.start(), match[0]
    else:
        starts = [0]
        for line in text.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield starts[token.start[0] - 1] + token.start[1], token.string
        for node in _docstrings(ast.parse(text)):
            yield starts[node.lineno - 1], "".join(text[starts[node.lineno - 1] : starts[node.end_lineno or 0]])


def _docstrings(tree: ast.Module) -> Iterator[ast.Expr]:
    """Yield docstrings, also those behind constants and fields."""
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED):
            for statement in node.body:
                if (
                    isinstance(statement, ast.Expr)
                    and isinstance(statement.value, ast.Constant)
                    and isinstance(statement.value.value, str)
                ):
                    yield statement


def _blank(match: re.Match[str]) -> str:
    """Return as many lines as there were, without anything in them."""
    return re.sub(r"[^\n]", " ", match[0])


def _files(places: list[Path]) -> Iterator[Path]:
    for place in places:
        if place.is_file():
            yield place
        else:
            yield from (path for path in sorted(place.rglob("*")) if path.suffix in {".md", ".py", ".sql"})


def main() -> int:
    """Print what was found, and return how many findings there are, at most 1."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("places", nargs="+", type=Path, help="files and directories")
    found = [each for path in _files(parser.parse_args().places) if path not in _GENERATED for each in findings(path)]
    for each in found:
        print(each)
    return min(len(found), 1)


if __name__ == "__main__":
    sys.exit(main())
