"""Advice on the command line: its commands name the database and the schema that this run was given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import typer

URL = "jmsql.url"
SCHEMA = "jmsql.schema"
"""Keys of a context's `meta`, which subcommands share. The callbacks of the options write them."""

_current: ContextVar[typer.Context | None] = ContextVar("jmsql command", default=None)


@contextmanager
def advising(context: typer.Context) -> Iterator[None]:
    """Have `advice` name the place that a command was given, until the block ends."""
    token = _current.set(context)
    try:
        yield
    finally:
        _current.reset(token)


def advice(text: str) -> str:
    """Return a text, each command of jmsql in backticks with the URL and the schema that this command was given.

    Under `manage.py jmsql` they begin with that, since the settings name the database and the schema.
    """
    from jmsql.store.schema.version import COMMAND, DEFAULT_SCHEMA, with_place

    context = _current.get()
    if context is None:
        return text
    if (context.find_root().info_name or "").startswith("manage.py "):
        return COMMAND.sub(r"`manage.py \1`", text)
    return with_place(text, context.meta.get(SCHEMA, DEFAULT_SCHEMA), context.meta.get(URL))
