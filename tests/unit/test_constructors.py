"""What makes an object neither connects nor waits nor starts a thread; nor does what looks like an attribute.

Names are all that is looked at: what a constructor calls may connect and go unnoticed, unless it is named below.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import jmsql

PACKAGE = Path(jmsql.__file__).parent
CONSTRUCTORS = {"__init__", "__post_init__", "__new__"}
EFFECTS = {
    *("connect", "open", "open_runner", "raw_connection", "begin", "get_database"),
    *("execute", "scalar", "run", "start", "sleep", "wait"),
}
"""What connects, runs statements, starts threads or waits. Strings join, so `join` is not there."""
SUGAR = {"client/_sync/session/session.py:Session.database"}
"""Properties of the public interface that do no more than call the method of the same name: `get_database`. What sets
properties as JMS does, such as `client_id`, calls methods too: `set_client_id`."""


def makers() -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield all constructors and all properties, without what sets them."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for owner in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(owner, ast.ClassDef):
                continue
            for function in owner.body:
                if isinstance(function, ast.FunctionDef) and (function.name in CONSTRUCTORS or is_property(function)):
                    yield f"{path.relative_to(PACKAGE).as_posix()}:{owner.name}.{function.name}", function


def is_property(function: ast.FunctionDef) -> bool:
    return any(isinstance(each, ast.Name) and each.id.endswith("property") for each in function.decorator_list)


def calls(node: ast.AST) -> Iterator[str]:
    """Yield the names of what is called, but not by functions that are only defined."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Lambda | ast.FunctionDef):
            continue
        if isinstance(child, ast.Call):
            yield child.func.attr if isinstance(child.func, ast.Attribute) else getattr(child.func, "id", "")
        yield from calls(child)


def effects(function: ast.FunctionDef) -> set[str]:
    return EFFECTS.intersection(calls(function))


def test_no_constructor_or_property_connects_or_waits_or_starts_a_thread() -> None:
    found = {name for name, function in makers() if effects(function)}
    assert found == SUGAR, "give it a method or a class method that does this"


@pytest.mark.parametrize(
    "body", ["self.x = engine.connect()", "threading.Thread(target=f).start()", "if a:\n    time.sleep(1)"]
)
def test_an_effect_is_seen(body: str) -> None:
    function = ast.parse("def __init__(self):\n    " + body.replace("\n", "\n    ")).body[0]
    assert isinstance(function, ast.FunctionDef)
    assert effects(function)


def test_a_function_that_is_only_defined_is_no_effect() -> None:
    function = ast.parse("def __init__(self):\n    self.later = lambda: engine.connect()").body[0]
    assert isinstance(function, ast.FunctionDef)
    assert not effects(function)
