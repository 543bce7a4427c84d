"""Finds words that plain technical English has better ones for: in prose, messages and names.

`make lint` runs it. Prose is the documentation, docstrings and comments. Messages are the texts of exceptions, of the
log and of `--help`; other string literals, and code blocks, are not read. In names, some words alone are refused.

`python -m tools.prose --rates jmsql` counts habits of syntax, which no list of words can find: clauses that stand for
nouns, and comments that are missing. `tests/unit/test_prose.py` holds their ceilings, which only fall.
"""

from __future__ import annotations

import argparse
import ast
import functools
import io
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ADVICE = {
    r"anew": "again",
    r"as long as it likes": "without a limit",
    r"at first[.:]": "say what the default is",
    r"at the soonest": "earliest, or a delay",
    r"bears? with": "tolerates",
    r"claim time limits?": "visibility timeout",
    r"condemn(?:s|ed)": "exhausted",
    r"(?:destination|name|topic|queue|selector|value) is (?-i:none)[.,;:]": "say what it is not: 'It is not a queue.'",
    r"(?:give|gives|given|giving|gave) back": "release",
    r"inbox(?:es)?": "prefetch buffer",
    r"in vain": "without finding a message, or failed",
    r"is wanted": "expected, needed",
    r"it is (?-i:none)[.,;:]": "say what it is not: 'It is not a queue.'",
    r"look(?:s|ed|ing)? after(?! the other)": "maintain, supervise, handle",
    r"nobody has to": "no ... has to, or leave it out",
    r"(?<!\ban\x20)outbox(?! to relay|\.md)": "send buffer; an outbox is a table of an application",
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

NAMES = {
    "anew": "again",
    "condemned": "exhausted",
    "inbox": "prefetch_buffer",
    "outbox": "send_buffer",
    "tally": "counters",
    "upkeep": "maintenance",
    "vain": "is_known_empty, or failed",
    "whoever": "name the actor",
}
"""Words that no name has, and what to write instead."""

_FENCE = re.compile(r"^[ >]*(```|~~~).*?^[ >]*\1 *$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"``[^`]+``|`[^`\n]+`")
_SQL_PROSE = re.compile(r"--[^\n]*|(?<=\bis\s)\s*'(?:[^']|'')*'", re.IGNORECASE)
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")
_LOG = {"debug", "info", "warning", "error", "exception", "critical", "log"}
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
# Made from the names of tests.
_GENERATED = {Path("docs/compliance.md")}
# Stays as it is.
_RELEASED = Path("migrations/baseline")


HABITS = {
    "what": re.compile(r"\bwhat(?:ever)?\b", re.IGNORECASE),
    "opens": re.compile(r"\A(?:What|Who|Whose|Which|Whether|That|Those)\b"),
    "of": re.compile(
        r"\b(?:that|those) of\b"
        r"|\bof (?:(?:the|a|an|another|each|its|some) )?[\w.]+'s\b"
        r"(?=\W*\Z|[^\w\s]| (?:that|which|in|on|of|is|are|was|has|and|or|for|with|at|to|by|from|as|but)\b)",
        re.IGNORECASE,
    ),
}
"""Clauses where a noun belongs: "what" as a noun, as an opening, and "that of", "of the application's"."""


class Rates(NamedTuple):
    """Habits in the docstrings and comments of some modules."""

    words: int
    lines: int
    comments: int
    """Lines that are a comment alone."""
    what: int
    opens: int
    of: int

    def per_thousand(self, habit: str) -> float:
        """Return how often a habit occurs in 1,000 words."""
        return 1000 * float(getattr(self, habit)) / max(self.words, 1)

    def commented(self) -> float:
        """Return the percentage of lines that are comments."""
        return 100 * self.comments / max(self.lines, 1)


def rates(paths: Iterable[Path]) -> Rates:
    """Count the habits in the docstrings and comments of Python modules."""
    total = Rates(0, 0, 0, 0, 0, 0)
    for path in paths:
        text = path.read_text()
        lines = text.splitlines()
        comments, passages = _remarks(text)
        prose = [_CODE.sub("", each) for each in passages]
        counts = (sum(len(habit.findall(each)) for each in prose) for habit in HABITS.values())
        one = (sum(len(each.split()) for each in prose), len(lines), comments, *counts)
        total = Rates(*map(sum, zip(total, one, strict=True)))
    return total


def _remarks(text: str) -> tuple[int, list[str]]:
    """Return the number of lines that are comments, and the docstrings and blocks of comments."""
    passages = [str(ast.literal_eval(each.value)).strip() for each in _docstrings(list(ast.walk(ast.parse(text))))]
    comments = 0
    last = -1
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            alone = not token.line[: token.start[1]].strip()
            comments += alone
            remark = token.string.lstrip("#").strip()
            if alone and last == token.start[0] - 1:
                passages[-1] += " " + remark
            else:
                passages.append(remark)
            last = token.start[0] if alone else -1
    return comments, passages


def written(place: Path) -> Iterator[Path]:
    """Yield the modules of a directory that are written by hand."""
    return (path for path in sorted(place.rglob("*.py")) if "_sync" not in path.parts)


def count_by_file(place: Path) -> dict[str, int]:
    """Return the number of habits in each module of a directory that has some, by its path there."""
    counts = {path.relative_to(place).as_posix(): rates([path]) for path in written(place)}
    return {name: row.what + row.opens + row.of for name, row in counts.items() if row.what + row.opens + row.of}


def _print_rates(places: list[Path]) -> None:
    """Print the habits of each package of some directories, and of all."""
    print(f"{'':32}{'words':>8}{'what':>6}{'/1000':>7}{'opens':>6}{'of':>5}{'/1000':>7}{'comments':>9}")
    rows = [(str(place), list(written(place))) for place in places]
    for place in places:
        directories = (path for path in sorted(place.iterdir()) if path.is_dir() and path.name != "__pycache__")
        rows += [(str(path), list(written(path))) for path in directories]
    for name, paths in rows:
        row = rates(paths)
        print(
            f"{name:32}{row.words:8}{row.what:6}{row.per_thousand('what'):7.1f}{row.opens:6}"
            f"{row.of:5}{row.per_thousand('of'):7.1f}{row.commented():8.1f}%"
        )


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
        if not _any_wanted().search(prose):
            continue
        for pattern, advice in ADVICE.items():
            for match in re.finditer(_wanted(pattern), prose, re.IGNORECASE):
                line = text.count("\n", 0, start) + prose.count("\n", 0, match.start()) + 1
                found.append(Finding(path, line, " ".join(match[0].split()), advice))
    if path.suffix == ".py":
        found += _names(path, text)
    return found


def _names(path: Path, text: str) -> Iterator[Finding]:
    """Find words in names, each name once."""
    seen = set()
    for token in _tokens(text):
        if token.type == tokenize.NAME and token.string not in seen:
            seen.add(token.string)
            for word in _WORD.findall(token.string):
                if word.lower() in NAMES:
                    yield Finding(path, token.start[0], token.string, NAMES[word.lower()])


@functools.cache
def _wanted(pattern: str) -> str:
    """Return the expression for whole words, between any of which a line may be broken."""
    end = "" if pattern.endswith("]") else r"\b"
    return r"\b" + pattern.replace(" ", r"(?: |[ ]*\n[ #*>-]*)") + end


@functools.cache
def _any_wanted() -> re.Pattern[str]:
    """Return the expression that finds any of them: most passages have none."""
    return re.compile("|".join(map(_wanted, ADVICE)), re.IGNORECASE)


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
        for token in _tokens(text):
            if token.type == tokenize.COMMENT:
                yield starts[token.start[0] - 1] + token.start[1], token.string
        nodes = list(ast.walk(ast.parse(text)))
        passages: list[ast.expr | ast.Expr] = [*_docstrings(nodes), *_messages(nodes)]
        for node in passages:
            yield starts[node.lineno - 1], "".join(text[starts[node.lineno - 1] : starts[node.end_lineno or 0]])


@functools.lru_cache(maxsize=1)
def _tokens(text: str) -> list[tokenize.TokenInfo]:
    """Return the tokens of a file, which take longer to find than all else: names and comments are among them."""
    return list(tokenize.generate_tokens(io.StringIO(text).readline))


def _docstrings(nodes: list[ast.AST]) -> Iterator[ast.Expr]:
    """Yield docstrings, also those behind constants and fields."""
    for node in nodes:
        if isinstance(node, _DOCUMENTED):
            for statement in node.body:
                if (
                    isinstance(statement, ast.Expr)
                    and isinstance(statement.value, ast.Constant)
                    and isinstance(statement.value.value, str)
                ):
                    yield statement


def _messages(nodes: list[ast.AST]) -> Iterator[ast.expr]:
    """Yield the texts of exceptions that are raised, of the log, and of the help of commands."""
    for node in nodes:
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            texts = [*node.exc.args, *(keyword.value for keyword in node.exc.keywords)]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _LOG:
            texts = node.args[:2]
        elif isinstance(node, ast.Call):
            texts = [keyword.value for keyword in node.keywords if keyword.arg == "help"]
        else:
            continue
        yield from (text for text in texts if isinstance(text, ast.JoinedStr | ast.Constant))


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
    parser.add_argument("--record", type=Path, metavar="FILE", help="write the habits of each file of one directory")
    parser.add_argument("--rates", action="store_true", help="count habits in docstrings and comments instead")
    arguments = parser.parse_args()
    if arguments.record is not None:
        counts = count_by_file(arguments.places[0])
        arguments.record.write_text("".join(f"{count} {name}\n" for name, count in counts.items()))
        return 0
    if arguments.rates:
        _print_rates(arguments.places)
        return 0
    paths = _files(arguments.places)
    read = (path for path in paths if path not in _GENERATED and _RELEASED not in path.parents)
    found = [each for path in read for each in findings(path)]
    for each in found:
        print(each)
    return min(len(found), 1)


if __name__ == "__main__":
    sys.exit(main())
