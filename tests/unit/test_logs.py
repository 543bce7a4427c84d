"""The loggers of jmsql."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import jmsql
from jmsql.logs import contained_logger


@pytest.fixture
def failing() -> Iterator[None]:
    """A filter of the application's fails."""

    def refuse(record: logging.LogRecord) -> bool:
        raise KeyError("bug in a filter")

    logger = logging.getLogger("jmsql.tests")
    logger.addFilter(refuse)
    yield
    logger.removeFilter(refuse)


@pytest.mark.usefixtures("failing")
def test_an_error_of_a_filter_is_printed_and_not_raised(capsys: pytest.CaptureFixture[str]) -> None:
    logger = contained_logger("jmsql.tests")
    logger.warning("a")
    logger.error("b")
    logger.log(logging.ERROR, "c")
    assert capsys.readouterr().err.count("KeyError: 'bug in a filter'") == 3


def test_a_record_names_its_place_and_has_its_fields(caplog: pytest.LogCaptureFixture) -> None:
    logger = contained_logger("jmsql.tests")
    logger.warning("%s", "a", extra={"message_id": "b"})
    logger.log(logging.WARNING, "%s", "a", extra={"message_id": "b"})
    for record in caplog.records:
        assert (record.name, record.funcName, record.pathname, record.getMessage()) == (
            *("jmsql.tests", "test_a_record_names_its_place_and_has_its_fields", __file__, "a"),
        )
        assert record.__dict__["message_id"] == "b"
    assert len(caplog.records) == 2


def test_all_loggers_of_jmsql_are_contained() -> None:
    own = re.compile(r"^\w+ = logging\.getLogger\(", re.MULTILINE)
    root = Path(jmsql.__file__).parent
    assert [path for path in sorted(root.rglob("*.py")) if own.search(path.read_text())] == []
