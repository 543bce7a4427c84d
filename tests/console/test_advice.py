"""Advice names commands that exist, with options that they have."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import jmsql
from jmsql.cli.commands import COMMANDS, load_command

PACKAGE = Path(jmsql.__file__).parent
_COMMAND = re.compile(r"(?:`|<code>)(jmsql [^`<\n]*)(?:`|</code>)")
_FILES = ("console/**/*.html", "console/*.py", "doctor.py", "cli/**/*.py", "store/**/*.py", "exceptions.py")


def wrong_part(text: str) -> str | None:
    """Return the word of a command that is no command of its group, or no option; None: there is none."""
    _, *words = shlex.split(re.sub(r"\{[^{}]*\}", "x", text.rstrip(". ")))
    if words[0].startswith("-"):
        return None
    if words[0] not in COMMANDS:
        return words[0]
    command: Any = load_command(words.pop(0))
    while words and hasattr(command, "commands") and not words[0].startswith("-"):
        if words[0] not in command.commands:
            return words[0]
        command = command.commands[words.pop(0)]
    options = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
    given = [word.partition("=")[0] for word in words if word.startswith("-")]
    return next((option for option in given if option not in options | {"--help"}), None)


def test_each_command_that_a_text_names_exists() -> None:
    files = [file for pattern in _FILES for file in PACKAGE.glob(pattern)]
    named = [(file.name, text) for file in files for text in _COMMAND.findall(file.read_text())]
    assert len(named) > 40
    assert [(*each, wrong_part(each[1])) for each in named if wrong_part(each[1]) is not None] == []
    assert wrong_part("jmsql destination alter orders") == "alter"
    assert wrong_part("jmsql destination set orders --deliveries 5") == "--deliveries"
