"""Generates the client for threads from its source, which is written for asyncio. `make generate` runs it.

Each ``_sync`` folder is made from the ``_async`` folder beside it: ``async`` and ``await`` go, names of asynchronous
classes become those of synchronous ones, of ``if ASYNC:`` the other branch stays, and a property that is ``@settable``
gets a setter.
"""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted(path.relative_to(ROOT) for path in (ROOT / "jmsql").rglob("_async"))

NAMES = {
    "AbstractAsyncContextManager": "AbstractContextManager",
    "AsyncConnection": "Connection",
    "AsyncCopy": "Copy",
    "AsyncCursor": "Cursor",
    "AsyncEngine": "Engine",
    "AsyncExitStack": "ExitStack",
    "AsyncIterator": "Iterator",
    "AsyncServerCursor": "ServerCursor",
    "AsyncSession": "Session",
    "AsyncPipeline": "Pipeline",
    "AsyncTransaction": "Transaction",
    "ConnectionLimit": "NoLimit",
    "Openings": "Opener",
    "StopAsyncIteration": "StopIteration",
    "_TaskServerSession": "_ThreadServerSession",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "_async": "_sync",
    "aiter": "iter",
    "anext": "next",
    "asynccontextmanager": "contextmanager",
    "connect_async": "connect",
    "enter_async_context": "enter_context",
    "open_async_engine": "open_engine",
    "tasks": "threads",
}
"""What asynchronous names become."""

UNWRAPPED = {"Awaitable": 0, "Coroutine": 2, "Opening": 0}
"""Generic types of which one argument stays, and which."""

CALLS = {"in_own_task", "run_detached", "run_to_completion", "interruptible"}
"""Functions of which the first argument stays: threads are not cancelled."""

BLOCKS = {"with shielded():"}
"""Heads of blocks that stay without them, for the same reason."""

DECORATORS = {"@async_resource", "await wait_until_unlocked(self.connection.lock)"}
"""Decorators and statements that say nothing about threads: a thread waits for a lock when it takes it."""

TEXTS = (
    ("HandlerTask", "HandlerThread"),
    ("TaskServerSessionPool", "ThreadServerSessionPool"),
    ("asynchronous_enlistment", "enlistment"),
    ("jmsql.asyncio", "jmsql"),
    (
        "an AsyncEngine of SQLAlchemy, as sqlalchemy.ext.asyncio.create_async_engine",
        "an Engine of SQLAlchemy, as sqlalchemy.create_engine",
    ),
    ("sqlalchemy.ext.asyncio import AsyncSession", "sqlalchemy.orm import AsyncSession"),
    ("sqlalchemy.ext.asyncio", "sqlalchemy"),
)
"""What becomes of modules' names, in the code as in docstrings."""

_SETTER = re.compile(r"^ *async def set_(\w+)\(self, (\w+): ([^)]*)\) -> None:$")
_BRANCH = re.compile(r"^ *if (?P<negated>not )?ASYNC:$")


class Edit(NamedTuple):
    """A piece of the text, from one place to another, and what comes instead."""

    start: int
    end: int
    text: str


def translate(source: str) -> str:
    """Return the code for threads."""
    for old, new in TEXTS:
        source = source.replace(old, new)
    lines = _choose_branches(_add_setters(source.splitlines()))
    source = "".join(f"{line}\n" for line in lines if line.strip() not in DECORATORS)
    for edit in sorted(_edits(source), reverse=True):
        source = source[: edit.start] + edit.text + source[edit.end :]
    return source


def _add_setters(lines: list[str]) -> list[str]:
    """Return the lines with a setter behind each property that is ``@settable``, which calls its ``set_`` method."""
    added, number = list[str](), 0
    while number < len(lines):
        if lines[number].strip() != "@settable":
            added.append(lines[number])
            number += 1
            continue
        indentation = _indentation(lines[number])
        end = _block(lines, number + 2, indentation)[1]
        added += lines[number + 1 : end]
        found = _SETTER.match(next(line for line in lines[end:] if _SETTER.match(line)))
        assert found is not None
        name, parameter, kind = found.groups()
        setter = (
            f"@{name}.setter",
            f"def {name}(self, {parameter}: {kind}) -> None:",
            f"    self.set_{name}({parameter})",
        )
        added += ["", *(indentation + line for line in setter)]
        number = end
    return added


def _choose_branches(lines: list[str]) -> Iterator[str]:
    """Yield the lines that stay of each ``if ASYNC:``, moved to the left."""
    number = 0
    while number < len(lines):
        if lines[number].strip() in BLOCKS:
            body, number = _block(lines, number + 1, _indentation(lines[number]))
            yield from _choose_branches([line[4:] for line in body])
            continue
        found = _BRANCH.match(lines[number])
        if found is None:
            if not re.match(r"from jmsql\.concurrency import ASYNC$", lines[number]):
                yield lines[number]
            number += 1
            continue
        indentation = _indentation(lines[number])
        chosen, number = _block(lines, number + 1, indentation)
        other: list[str] = []
        following = next((at for at in range(number, len(lines)) if lines[at].strip()), number)
        if following < len(lines) and lines[following] == f"{indentation}else:":
            other, number = _block(lines, following + 1, indentation)
        yield from _choose_branches([line[4:] for line in (chosen if found["negated"] else other)])


def _indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _block(lines: list[str], start: int, indentation: str) -> tuple[list[str], int]:
    """Return the lines of a block that begins at a line, and the number of the first line behind it."""
    end = start
    while end < len(lines) and (not lines[end].strip() or lines[end].startswith(f"{indentation} ")):
        end += 1
    while end > start and not lines[end - 1].strip():
        end -= 1
    return lines[start:end], end


def _edits(source: str) -> Iterator[Edit]:
    offsets = [0]
    for line in source.splitlines(keepends=True):
        offsets.append(offsets[-1] + len(line))

    def offset(place: tuple[int, int]) -> int:
        return offsets[place[0] - 1] + place[1]

    tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    for index, token in enumerate(tokens):
        if token.type != tokenize.NAME:
            continue
        start, end = offset(token.start), offset(token.end)
        following = tokens[index + 1]
        if token.string in {"async", "await"}:
            yield Edit(start, offset(following.start), "")
        elif token.string in NAMES:
            yield Edit(start, end, NAMES[token.string])
        elif token.string in UNWRAPPED and following.string == "[":
            first, last = _argument(tokens, index + 1, UNWRAPPED[token.string])
            yield Edit(start, offset(tokens[first].start), "")
            yield Edit(offset(tokens[last].end), offset(_closing(tokens, index + 1).end), "")
        elif token.string in CALLS and following.string == "(":
            first, last = _argument(tokens, index + 1, 0)
            yield Edit(start, offset(tokens[first].start), "")
            yield Edit(offset(tokens[last].end), offset(_closing(tokens, index + 1).end), "")


def _closing(tokens: list[tokenize.TokenInfo], opening: int) -> tokenize.TokenInfo:
    """Return the bracket that closes the one at an index."""
    depth = 0
    for token in tokens[opening:]:
        depth += {"[": 1, "(": 1, "{": 1, "]": -1, ")": -1, "}": -1}.get(token.string, 0)
        if not depth:
            return token
    raise ValueError(f"Nothing closes the bracket in line {tokens[opening].start[0]}.")


def _argument(tokens: list[tokenize.TokenInfo], opening: int, number: int) -> tuple[int, int]:
    """Return the indexes of the first and the last token of one of the arguments in brackets."""
    depth, first = 0, opening + 1
    for index in range(opening, len(tokens)):
        string = tokens[index].string
        depth += {"[": 1, "(": 1, "]": -1, ")": -1}.get(string, 0)
        if not depth or (depth == 1 and string == ","):
            if not number:
                return first, index - 1
            number, first = number - 1, index + 1
    raise ValueError(f"Line {tokens[opening].start[0]} has too few arguments.")


def generate(root: Path, target: Path) -> list[Path]:
    """Write what is generated, into a copy of the tree or the tree itself, and return the paths of the files."""
    written = []
    for folder in SOURCES:
        for source in sorted((root / folder).rglob("*.py")):
            relative = source.relative_to(root)
            path = target / str(relative).replace("/_async/", "/_sync/")
            path.parent.mkdir(parents=True, exist_ok=True)
            header = f"# Generated by `make generate` from {relative.as_posix()}: change that.\n"
            path.write_text(header + translate(source.read_text(encoding="utf-8")), encoding="utf-8")
            written.append(path)
    ruff = [str(Path(sys.executable).with_name("ruff")), "--quiet", "--config", str(root / "pyproject.toml")]
    for command in (["check", "--fix", "--select", "F401,I001"], ["format"]):
        subprocess.run([ruff[0], command[0], *ruff[1:], *command[1:], *map(str, written)], check=True)
    return written


def main() -> int:
    """Generate the files, or with --check say which of them differ from what would be generated."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if something would change")
    if not parser.parse_args().check:
        generate(ROOT, ROOT)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder)
        generated = {path.relative_to(target): path.read_text(encoding="utf-8") for path in generate(ROOT, target)}
    present = {
        path.relative_to(ROOT)
        for source in SOURCES
        for path in (ROOT / str(source).replace("/_async", "/_sync")).rglob("*.py")
    }
    stale = {path for path, text in generated.items() if path not in present or (ROOT / path).read_text() != text}
    for path in sorted(stale | (present - generated.keys())):
        print(f"{path} is not what `make generate` makes")
    return bool(stale or present - generated.keys())


if __name__ == "__main__":
    sys.exit(main())
