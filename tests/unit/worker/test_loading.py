"""An application that cannot be imported is shown with its own lines."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jmsql.worker.loading import RefusalError, load_application

PREFACE = "from jmsql.worker import Application\napp = Application()\n"
BROKEN = """
def shape():
    try:
        int("shape")
    except ValueError as error:
        raise SystemError("broken") from error
shape()
"""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where modules are imported from."""
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("broken_messaging", None)


@pytest.mark.parametrize(
    ("source", "reason", "shown", "tracebacks"),
    [
        (BROKEN, "SystemError: broken", ["in shape\n", "ValueError: invalid literal", "SystemError: broken"], 2),
        ("import surely_missing", "No module named 'surely_missing'", ["import surely_missing"], 1),
        ("raise SystemExit('no settings')", "SystemExit: no settings", ["SystemExit: no settings"], 1),
        ("def broken(:", "SyntaxError: invalid syntax", ["def broken(:", "           ^"], 0),
        (
            "@app.listener('orders')\ndef handle(order): pass",
            "TypeError: The handler broken_messaging.handle has the parameter order",
            ["@app.listener('orders')"],
            1,
        ),
        (
            "@app.listener('orders', selector='color = = 5')\ndef handle(message): pass",
            "InvalidSelectorException: The selector of the handler broken_messaging.handle",
            ["\n    color = = 5\n            ^"],
            1,
        ),
    ],
    ids=["error", "missing import", "exit", "syntax", "signature", "selector"],
)
def test_it_shows_where_it_failed(directory: Path, source: str, reason: str, shown: list[str], tracebacks: int) -> None:
    (directory / "broken_messaging.py").write_text(PREFACE + source)
    with pytest.raises(RefusalError) as refused:
        load_application("broken_messaging:app")
    assert f"broken_messaging cannot be imported: {reason}" in str(refused.value)
    assert "\n" not in str(refused.value)
    traceback = refused.value.traceback
    assert traceback is not None
    assert traceback.count("Traceback (most recent call last)") == tracebacks
    assert all(text in traceback for text in shown)
    assert "jmsql/worker/loading.py" not in traceback
    assert "importlib" not in traceback


def test_a_module_that_is_not_there_has_no_traceback() -> None:
    with pytest.raises(RefusalError, match="There is no module 'surely_missing_messaging' here") as refused:
        load_application("surely_missing_messaging:app")
    assert refused.value.traceback is None
