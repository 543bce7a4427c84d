"""How `--help` looks: plain text in which no name of an option is cut, and examples stand as they are typed."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Sequence
from typing import Any

import typer

_NAMES = 26
"""How many columns the names of options may take; longer ones have a line of their own."""

_EXAMPLE = re.compile(r"`([^`]+)`")
_WORD = re.compile(r"""(?:"[^"]*"|'[^']*'|\S)+""")
"""A word of a shell's command, quotes included."""


_Formatter: Any = typer.Context.formatter_class
"""Typer's own, which it does not name in public."""


class HelpFormatter(_Formatter):  # type: ignore[misc]
    """Breaks texts at spaces, and commands between a shell's words."""

    def write_text(self, text: str) -> None:
        paragraphs = (self._commands(each) or self._filled(each) for each in inspect.cleandoc(text).split("\n\n"))
        self.write("\n\n".join(paragraphs) + "\n")

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        super().write_usage(prog, _plain_usage(args), prefix)

    def write_dl(self, rows: Sequence[tuple[str, str]], *_: Any, **__: Any) -> None:
        rows = [(_plain_name(name), text) for name, text in rows]
        names = min(max(len(name) for name, _ in rows), _NAMES)
        margin = " " * (self.current_indent + names + 2)
        for name, text in rows:
            head = f"{'':{self.current_indent}}{name:{names}}  "
            lines = textwrap.wrap(text, self.width - len(margin), break_on_hyphens=False, break_long_words=False)
            if len(name) > names:
                self.write(f"{head.rstrip()}\n")
                head = margin
            first, *others = lines or [""]
            self.write(
                "".join(f"{line}\n" for line in (f"{head}{first}".rstrip(), *(margin + line for line in others)))
            )

    def _filled(self, paragraph: str) -> str:
        margin = " " * self.current_indent
        return textwrap.fill(
            paragraph,
            self.width,
            initial_indent=margin,
            subsequent_indent=margin,
            break_on_hyphens=False,
            break_long_words=False,
        )

    def _commands(self, paragraph: str) -> str | None:
        """Return the commands of a paragraph of examples, a line for each."""
        heading, colon, text = paragraph.partition(":")
        if not colon or heading not in {"Example", "Examples"}:
            return None
        margin = " " * self.current_indent
        lines = [f"{margin}{heading}:"]
        for command in _EXAMPLE.findall(text):
            line = margin + "  "
            for word in _WORD.findall(command):
                if line.strip() and len(line) + len(word) + len(" \\") > self.width:
                    lines.append(f"{line}\\")
                    line = margin + "      "
                line += word + " "
            lines.append(line.rstrip())
        return "\n".join(lines)


_TYPE = re.compile(r" <([^<>]+)>$")
_TYPES = {"str": "TEXT", "list[str]": "TEXT", "int": "NUMBER", "float": "NUMBER"}


def _plain_usage(arguments: str) -> str:
    """Return the arguments of a usage as shells' manuals write them: ``FROM [TO]``, and not ``{FROM} [[TO]]``."""
    plain = re.sub(r"\{([^{}]*)\}", r"\1", arguments).replace("[[", "[").replace("]]", "]")
    return re.sub(r"\.\.\.(\]?)\.\.\.", r"...\1", plain)


def _plain_name(name: str) -> str:
    """Return the name of an option with what it takes, or of an argument alone, without names of Python's types."""
    found = _TYPE.search(name)
    if found is None:
        return name
    if name.startswith("-"):
        kind = found[1].removesuffix(" range")
        return f"{name[: found.start()]} {_TYPES.get(kind, kind)}"
    argument = name[: found.start()].strip("{}")
    return argument if argument.count("[") == argument.count("]") else argument.strip("[]")


class _HelpContext(typer.Context):
    formatter_class = HelpFormatter


def explain_plainly(command: Any) -> None:
    """Have a command, and all in a group, show its help so; a group shows the whole summary of each."""
    command.context_class = _HelpContext
    if command.help is not None:
        command.short_help = " ".join(inspect.cleandoc(command.help).partition("\n\n")[0].split())
    for each in getattr(command, "commands", {}).values():
        explain_plainly(each)
