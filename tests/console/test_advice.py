"""Advice names commands that exist, with options that they have."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

import jmsql
from jmsql.admin import Administration
from jmsql.cli.commands import COMMANDS, load_command
from jmsql.console import presentation
from jmsql.testing import wait_for
from tests.console.http import Browsing
from tests.console.serving import Served

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


def test_a_command_is_shown_whole_whose_words_have_backticks() -> None:
    shown = presentation.advice("It isn't so: `jmsql resume 'a`b'`; `select 1` shows that.")
    assert shown.unescape() == "It isn't so: <code>jmsql resume 'a`b'</code>; <code>select 1</code> shows that."


def test_each_command_on_a_page_names_the_schema_of_the_console(
    serve: Callable[..., Served], jmsql_clean_url: str
) -> None:
    factory = jmsql.ConnectionFactory(jmsql_clean_url, schema="shop")
    jmsql.migrate(jmsql_clean_url, schema="shop")
    try:
        console = Browsing(serve(factory=factory))
        with Administration(factory) as administration:
            administration.create_topic("prices")
            administration.create_queue("orders", paused=True)
        path = console.find("prices")
        commands = _COMMAND.findall(console.get(path).text)
        with factory.create_context() as context:
            context.create_producer().send(jmsql.Queue("orders"), "x")
        move = f"{console.find('orders')}/move"
        answer = console.post(move, [*console.form(move), ("to", "nowhere")])
        commands += _COMMAND.findall(answer.text)
        wait_for(lambda: "jmsql resume orders" in console.get("/").text, timeout=60)
        commands += _COMMAND.findall(console.get("/").text)
    finally:
        with psycopg.connect(jmsql_clean_url) as database:
            database.execute("drop schema shop, shop_internal cascade")
    assert {"subscribe", "destination", "resume"} <= {command.split()[1] for command in commands}
    assert [command for command in commands if not command.endswith(" --schema shop")] == []
