"""The application that a worker's command line names."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from jmsql import TextMessage
from jmsql.worker.handlers._sync.call import HandlerCall
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
        ("backend = app; del app", "messaging has no 'app'; did you mean messaging:backend?"),
        ("app = 5", "Expected messaging:app to be a jmsql.worker.Application, got int."),
        ("", "messaging:app has no listeners; register some with @app.listener('…')."),
        (
            "app.factory = jmsql.ConnectionFactory(client_id='me')" + LISTENER,
            "The factory of messaging:app has a client identifier",
        ),
    ],
    ids=["no application", "another name", "another object", "no listeners", "client identifier"],
)
def test_another_object_than_an_application_is_refused_in_a_line(directory: Path, source: str, reason: str) -> None:
    (directory / "messaging.py").write_text(PREFACE + source)
    with pytest.raises(RefusalError) as refusal:
        load_application("messaging:app")
    assert str(refusal.value).startswith(reason)
    assert "\n" not in str(refusal.value)
    assert refusal.value.traceback is None


@pytest.mark.parametrize("command", [["messaging.py"], ["-m", "messaging"], ["-c", "import messaging"]], ids=" ".join)
def test_a_program_and_its_worker_make_the_same_schedule(directory: Path, command: list[str]) -> None:
    periodic = """
@app.periodic("@daily")
def clean_up():
    pass

print([(schedule.name, str(schedule.destination)) for schedule in app.schedules])
"""
    (directory / "messaging.py").write_text(PREFACE + periodic)
    printed = subprocess.check_output([sys.executable, *command], cwd=directory, text=True)
    assert printed == "[('messaging.clean_up', 'queue://messaging.clean_up')]\n"


UNFINISHED = """
import dataclasses
import pydantic

class Model(pydantic.BaseModel):
    amount: "Decimal"

@dataclasses.dataclass
class Order:
    amount: "Decimal"
"""


@pytest.mark.parametrize("name", ["Model", "Order"])
def test_a_handler_whose_body_names_an_undefined_class_is_refused(directory: Path, name: str) -> None:
    """Else each of its messages would become a dead letter."""
    source = PREFACE + UNFINISHED + LISTENER.replace("message", f"order: {name}")
    (directory / "messaging.py").write_text(source)
    reason = f"handler messaging.handle cannot read its messages. An annotation in {name} .* 'Decimal' is not defined"
    with pytest.raises(RefusalError, match=reason) as refusal:
        load_application("messaging:app")
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("name", ["Model", "Order"])
def test_a_decimal_of_a_class_defined_below_the_handler_keeps_its_digits(directory: Path, name: str) -> None:
    below = "\nfrom decimal import Decimal\n"
    source = PREFACE + UNFINISHED + LISTENER.replace("message", f"order: {name}") + below
    (directory / "messaging.py").write_text(source)
    (listener,) = load_application("messaging:app").listeners
    message = TextMessage('{"amount": 0.12345678901234567890123}')
    order: Any = HandlerCall(listener, message, session=None).arguments()["order"]  # type: ignore[arg-type]
    assert order.amount == Decimal("0.12345678901234567890123")


@pytest.mark.parametrize(
    ("schedule", "reason"),
    [
        (
            "app.schedule('nightly', '@daily', 'orders', 'five')",
            "'nightly' .* messaging.handle .*: The body is not int",
        ),
        ("app.schedule('nightly', '@daily', handle)", "The handler takes int, and the message has no body"),
        (
            """
router = jmsql.worker.Router()

@router.periodic("@daily", body={"limit": 5})
def clean_up(limit: int):
    pass

app.include(router, "shop.")
""",
            "'shop.messaging.clean_up' .*: The body is not int",
        ),
    ],
    ids=["by name", "no body", "router"],
)
def test_a_schedule_whose_body_its_handler_cannot_read_is_refused(directory: Path, schedule: str, reason: str) -> None:
    (directory / "messaging.py").write_text(PREFACE + LISTENER.replace("message", "number: int") + schedule)
    with pytest.raises(RefusalError, match=f"The schedule .*{reason}"):
        load_application("messaging:app")


@pytest.mark.parametrize(
    "schedule",
    [
        "app.schedule('nightly', '@daily', 'orders', 5)",
        "app.schedule('nightly', '@daily', 'elsewhere', 'five')",
        "app.listener('orders', selector='JMSPriority > 4')(lambda: None)\napp.schedule('x', '@daily', 'orders')",
    ],
    ids=["readable", "no handler here", "several handlers"],
)
def test_other_schedules_are_accepted(directory: Path, schedule: str) -> None:
    (directory / "messaging.py").write_text(PREFACE + LISTENER.replace("message", "number: int") + schedule)
    assert load_application("messaging:app").schedules


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
