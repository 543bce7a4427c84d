"""The code blocks of the documentation.

Each block of Python is a program of its own, unless its title is "continued": such a block continues the program
before it on the page. One whose title is a file is part of a project. Blocks of SQL are for jmsql's database, unless
the title names another. Blocks in a tab of a page belong to that tab alone.

``python -m tests.documentation DIRECTORY`` writes the programs there, each as a file: `make types` checks them with the
rest.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
PAGES = ("README.md", *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/*.md")))
EXAMPLES = tuple(sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("examples/*/README.md")))
CONTINUED = "continued"
FILE = re.compile(r"[a-z0-9_/]+\.py")
"""The title of a block that is a file of a project, or is added to one."""

_BLOCK = re.compile(
    r'^(?P<indent>(?: {4})?)```(?P<language>\w+)(?: title="(?P<title>[^"]*)")?\n(?P<text>.*?)^(?P=indent)```$',
    re.MULTILINE | re.DOTALL,
)
_TAB = re.compile(r'=== "(?P<name>[^"]+)"')
_FENCE = re.compile(r"^ *```.+$", re.MULTILINE)
_INLINE_COMMAND = re.compile(r"`(jmsql [^`]+)`")
_BETWEEN_COMMANDS = re.compile(r"\|\|?|&&?|;|>")


class Block(NamedTuple):
    """A block of code on a page."""

    page: str
    line: int
    language: str
    title: str | None
    text: str
    tab: str | None = None
    """The name of the tab that the block stands in."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: str, *languages: str) -> list[Block]:
    """The blocks of a page in these languages."""
    text = (ROOT / page).read_text()
    all_blocks = []
    for found in _BLOCK.finditer(text):
        if found["language"] not in languages:
            continue
        block = Block(
            page, text.count("\n", 0, found.start("text")) + 1, found["language"], found["title"], found["text"]
        )
        if found["indent"]:
            tab = _tab(text[: found.start()])
            if tab is None:
                continue
            block = block._replace(text=textwrap.dedent(found["text"]), tab=tab)
        all_blocks.append(block)
    return all_blocks


def _tab(before: str) -> str | None:
    """The tab in which an indented block stands, given the text before it; None if it belongs to a list."""
    opening = next(line for line in reversed(before.splitlines()) if line and not line.startswith(" "))
    found = _TAB.fullmatch(opening)
    return None if found is None else found["name"]


def programs(page: str) -> list[Block]:
    """The programs of a page: its blocks of Python, each with those that continue it."""
    found: list[Block] = []
    file: Block | None = None
    for block in blocks(page, "python"):
        if FILE.fullmatch(block.title or ""):
            file = block  # begins a program only if another block continues it
            continue
        if block.title == CONTINUED:
            if file is not None:
                found.append(file)
                file = None
            begun = found[-1]
            # Empty lines keep the numbers of lines in tracebacks as they are on the page.
            between = "\n" * (block.line - begun.line - begun.text.count("\n"))
            found[-1] = begun._replace(text=begun.text + between + block.text)
        else:
            found.append(block)
            file = None
    return found


def run(program: Block, places: Mapping[str, str]) -> dict[str, Any]:
    """Run a program in this process, and return its names.

    Args:
        program: The program.
        places: What stands on the page for a database or a directory, and where that is in the test.
    """
    text = program.text
    for shown, real in places.items():
        text = text.replace(shown, real)
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile("\n" * (program.line - 1) + text, program.page, "exec", dont_inherit=True), names)
    return names


def commands(page: str) -> list[list[str]]:
    """The words of each command in the blocks of a page that show a shell."""
    found = []
    for block in blocks(page, "sh", "console"):
        lines = block.text.replace("\\\n", " ").splitlines()
        if block.language == "console":
            lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        found += [words for line in lines for words in _split(line)]
    return found


def outputs(page: str) -> Iterator[tuple[list[str], list[str]]]:
    """The words of each command in the blocks of a page that show a shell's output, and the lines of that."""
    for block in blocks(page, "console"):
        for shown in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            command, *lines = shown.splitlines()
            yield shlex.split(command, comments=True), [line for line in lines if line]


def inline_commands(page: str) -> Iterator[list[str]]:
    """The words of each `jmsql` command in the text of a page, which may leave out some."""
    for command in _INLINE_COMMAND.findall((ROOT / page).read_text()):
        yield shlex.split(command.replace("…", " ").replace("[", " ").replace("]", " "))


def inline_options(page: str) -> set[str]:
    """The options of commands that the text of a page names."""
    return set(re.findall(r"`(--[a-z][a-z-]+)", (ROOT / page).read_text()))


def unknown_fences(page: str) -> list[str]:
    """What begins a block and is not understood here, but for blocks inside of lists."""
    text = (ROOT / page).read_text()
    known = {found.start() for found in _BLOCK.finditer(text)}
    return [found[0] for found in _FENCE.finditer(text) if found.start() not in known and found[0][0] != " "]


def _split(line: str) -> Iterator[list[str]]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;>")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    command: list[str] = []
    for word in lexer:
        if _BETWEEN_COMMANDS.fullmatch(word):
            if command:
                yield command
            command = []
        else:
            command.append(word)
    if command:
        yield command


def write_programs(directory: Path) -> None:
    """Write each program of the pages to a file of its own, with the numbers of lines of its page."""
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for program in (program for page in PAGES for program in programs(page)):
        name = f"{re.sub('[^a-z]', '_', program.page.lower())}_{program.line}.py"
        (directory / name).write_text("\n" * (program.line - 1) + program.text)


if __name__ == "__main__":
    write_programs(Path(sys.argv[1]))
