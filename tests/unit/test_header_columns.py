"""In how many files a header is named that a message has as a column: a new one needs as many changes.

The numbers are upper bounds, which a change may lower and not raise.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import jmsql

PACKAGE = Path(jmsql.__file__).parent
# Where its name is a part of the API: properties, parameters, options, and columns that people query.
API = ("messages", "client", "cli", "console", "django")


@pytest.mark.parametrize(
    ("name", "most_of_the_api", "most_behind_it"),
    [("jms_type", 10, 12), ("jms_correlation_id", 7, 8), ("jms_reply_to", 7, 5)],
)
def test_a_header_is_named_in_few_files(name: str, most_of_the_api: int, most_behind_it: int) -> None:
    files = [
        path.relative_to(PACKAGE)
        for path in sorted(PACKAGE.rglob("*"))
        if path.suffix in {".py", ".sql"} and "_sync" not in path.parts and "migrations" not in path.parts
        if re.search(rf"\b{name}\b", path.read_text())
    ]
    of_the_api = [path for path in files if path.parts[0] in API]
    behind_it = [path for path in files if path not in of_the_api]
    assert len(of_the_api) <= most_of_the_api, of_the_api
    assert len(behind_it) <= most_behind_it, behind_it
