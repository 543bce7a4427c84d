"""In how many files a header is named that a message has as a column: a new one needs as many changes.

The numbers are upper bounds, which a change may lower and not raise. Schedules and results have columns of their own.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import jmsql

PACKAGE = Path(jmsql.__file__).parent
# `jms_type` is also a column of results, which two of the 23 files list.
# What makes messages, stores, selects and reads them. The others are users of the header, by the names of the API.
FOLDERS = ("messages", "selectors", "spark", "store")


@pytest.mark.parametrize(("name", "most"), [("jms_type", 23), ("jms_correlation_id", 11), ("jms_reply_to", 8)])
def test_a_header_is_named_in_few_files(name: str, most: int) -> None:
    files = [
        str(path.relative_to(PACKAGE))
        for folder in FOLDERS
        for path in sorted((PACKAGE / folder).rglob("*"))
        if path.suffix in {".py", ".sql"} and "_sync" not in path.parts
        if re.search(rf"\b{name}\b", path.read_text())
    ]
    assert len(files) <= most, files
