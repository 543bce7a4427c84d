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
        ("app = 5", "Expected messaging:app to be a jmsql.worker.Application, got int."),
        ("", "messaging:app has no listeners; register some with @app.listener('…')."),
        (
            "app.factory = jmsql.ConnectionFactory(client_id='me')" + LISTENER,
            "The factory of messaging:app has a client identifier",
        ),
    ],
    ids=["no application", "another object", "no listeners", "client identifier"],
)
def test_another_object_than_an_application_is_refused_in_a_line(directory: Path, source: str, reason: str) -> None:
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


@pytest.mark.parametrize(
    ("modules", "advice"),
    [
        (["orders"], "Name one, shop.orders:app, or have shop import at its end what does."),
        (["orders", "mail.sending"], "they are not imported. Have shop import at its end what does."),
    ],
)
def test_modules_of_a_package_that_nothing_imports_are_named(directory: Path, modules: list[str], advice: str) -> None:
    files = {f"shop/{module.replace('.', '/')}.py": f"from shop import app\n{LISTENER}" for module in modules}
    files |= {"shop/__init__.py": PREFACE, "shop/models.py": "", "shop/mail/__init__.py": ""}
    for name, source in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(source)
    try:
        with pytest.raises(RefusalError) as refusal:
            load_application("shop:app")
        names = ", ".join(sorted(f"shop.{module}" for module in modules))
        assert str(refusal.value).startswith(f"shop:app has no listeners: {names} may register some, but")
        assert str(refusal.value).endswith(advice)
        assert load_application("shop.orders:app").listeners
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
            del sys.modules[name]
