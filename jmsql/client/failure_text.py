"""What is kept of an error with the message that it was about."""

from __future__ import annotations

import re
import traceback

from jmsql.values.postgresql_text import to_postgresql

__all__ = ["failure_text"]

_LONGEST = 10_000
"""Characters. The end of a traceback says more than its beginning."""

_password_in_url = re.compile(r"(://[^\s:/@]*):[^\s/@]+@")


def failure_text(error: BaseException | str | None) -> str | None:
    """Return an error as text that PostgreSQL can store: an exception with its traceback, without passwords in URLs."""
    if error is None:
        return None
    text = error if isinstance(error, str) else "".join(traceback.format_exception(error))
    return to_postgresql(_password_in_url.sub(r"\1:***@", text)[-_LONGEST:])
