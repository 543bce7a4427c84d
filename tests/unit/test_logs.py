"""The loggers of jmsql."""

from __future__ import annotations

import ast
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


NAMES = {
    "_name(number)",
    "child.name",
    "consumer",
    "destination.uri",
    "listener",
    "name",
    "self",
    "self.listener",
    "self.state",
    "session",
    "subscriber",
    "task.listener",
    "waiting",
    "origin.destination.uri",
    "' and '.join(names)",
}
"""Objects with which messages may begin."""
SENTENCES = {"_description(listener)", "reason", "record.as_json()", "what"}


def first_words(call: ast.Call) -> tuple[str, str] | None:
    """Return a log call's format and first argument; None: it is no log call, or has a format that is not literal."""
    function = call.func
    if not (isinstance(function, ast.Attribute) and ast.unparse(function.value) in {"logger", "self._logger"}):
        return None
    format_, *arguments = call.args[1:] if function.attr == "log" else call.args
    if not (isinstance(format_, ast.Constant) and isinstance(format_.value, str)):
        return None
    return format_.value, ast.unparse(arguments[0]) if arguments else ""


def test_messages_begin_with_a_capital_letter_or_a_name() -> None:
    root = Path(jmsql.__file__).parent
    calls = [
        (path.name, *found)
        for path in sorted(root.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and (found := first_words(node)) is not None
    ]
    assert len(calls) > 100
    begun = {each for each in calls if each[1][0].isupper()}
    named = {each for each in calls if each[1].startswith(("%s", "%r")) and each[2] in NAMES | SENTENCES}
    conditional = {each for each in calls if each[1] == "%s" and each[2].startswith("f'The old processes")}
    assert set(calls) - begun - named - conditional == set()
