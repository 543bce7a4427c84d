"""The application that a worker's command line names."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jmsql.worker.loading import RefusalError, load_application

PREFACE = """
import jmsql
from jmsql.worker import Application

app = Application()
"""
LISTENER = """
@app.listener("orders")
def handle(message):
    pass
"""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where modules are found."""
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("messaging", None)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("del app", "messaging has no 'app'; make it a jmsql.worker.Application."),
        ("app = 5", "messaging has another 'app'; make it a jmsql.worker.Application."),
        ("", "messaging:app has no listeners; register some with @app.listener('…')."),
        (
            "app.factory = jmsql.ConnectionFactory(client_id='me')" + LISTENER,
            "The factory of messaging:app has a client identifier",
        ),
    ],
    ids=["no application", "another object", "no listeners", "client identifier"],
)
def test_what_is_no_application_is_refused_in_a_line(directory: Path, source: str, reason: str) -> None:
    (directory / "messaging.py").write_text(PREFACE + source)
    with pytest.raises(RefusalError) as refusal:
        load_application("messaging:app")
    assert str(refusal.value).startswith(reason)
    assert "\n" not in str(refusal.value)
    assert refusal.value.traceback is None


def test_a_module_that_is_not_there_is_named(directory: Path) -> None:
    with pytest.raises(RefusalError, match="There is no module 'messaging' here") as refusal:
        load_application("messaging:app")
    assert refusal.value.traceback is None


@pytest.mark.parametrize("asks_for_session", [False, True])
def test_sqlalchemy_s_orm_is_loaded_if_a_handler_asks_for_a_session_of_it(asks_for_session: bool) -> None:
    """It takes a sixth of the time in which a process starts."""
    asking = "from sqlalchemy.orm import Session\ndef handle(database: Session): pass\n"
    handler = asking if asks_for_session else "def handle(database): pass\n"
    program = f"import sys\n{PREFACE}{handler}app.listener('orders')(handle)\nprint('sqlalchemy.orm' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == [str(asks_for_session)]
