"""How much state lives and dies together, how much of it changes, and how much of that is written from outside.

The numbers are upper bounds, which a change may lower and not raise. A class more does not help: the objects of one
lifetime count together. A field that changes says beside it who writes it, and under which lock.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import pytest

import jmsql

PACKAGE = Path(jmsql.__file__).parent


class Lifetime(NamedTuple):
    """The classes whose objects live as long as one another.

    Args:
        classes: Their names, by module.
        names: The names of variables and attributes that hold their objects, by which other modules reach them.
        fields: How many fields their objects have.
        reassigned: How many of these are assigned after the constructor.
        writes: How many assignments to them are outside of the object that has them.
    """

    classes: dict[str, tuple[str, ...]]
    names: tuple[str, ...]
    fields: int
    reassigned: int
    writes: int = 0


LIFETIMES = {
    "a connection": Lifetime(
        {
            "client/_async/link/lease.py": ("Lease",),
            "client/_async/link/lent.py": ("LentLink",),
            "client/_async/link/own.py": ("OwnLink",),
            "client/_async/link/watched_connection.py": ("Traces", "Watch", "WatchedConnection"),
            "store/wire/_async/runner.py": ("WireConnection",),
        },
        ("database", "driver", "lease", "link"),
        fields=33,
        reassigned=12,
    ),
    "a consumer": Lifetime(
        {
            "client/consumer_state.py": ("ConsumerState",),
            "client/pacing.py": ("PollInterval",),
            "client/receiving/emptiness.py": ("BackOff", "Emptiness"),
            "client/receiving/fetching.py": (
                *("BatchSize", "ConsumerPolicy", "HeldRows", "PrefetchBuffer", "QueueSource", "Target"),
            ),
            "client/receiving/notified.py": ("PendingNotifications", "QueueChanges"),
            "client/_async/session/consumer.py": ("MessageConsumer", "QueueReceiver", "TopicSubscriber"),
        },
        (
            *("back_off", "batch", "buffer", "changes", "consumer", "copy", "each", "emptiness", "held", "notified"),
            *("other", "own", "policy", "poll", "source", "subscriber", "target"),
        ),
        fields=65,
        reassigned=18,
    ),
    # Of the classes for transactions and deliveries a session has one of each, chosen by its mode.
    "a session": Lifetime(
        {
            "client/savepoints.py": ("Savepoints",),
            "client/send_buffer.py": ("SendBuffer",),
            "client/_async/session/asynchronous_sender.py": ("AsynchronousSender",),
            "client/_async/session/claiming.py": ("Claiming",),
            "client/_async/session/claims.py": ("Claims",),
            "client/_async/session/delivery_records.py": ("Count", "DeliveryRecords"),
            "client/_async/session/dispatcher.py": ("Dispatcher",),
            "client/_async/session/locks.py": ("Delivered", "LockScan", "Locks"),
            "client/_async/session/receiving.py": ("Receiving",),
            "client/_async/session/session.py": ("HandlerSession", "Session"),
            "client/_async/session/session_state.py": ("SessionState",),
            "client/_async/session/transaction_claims.py": ("TransactionClaims",),
            "client/_async/session/transactions/handler.py": ("HandlerTransaction", "_HandlerLocks"),
            "client/_async/session/transactions/local.py": ("Lender", "LocalTransaction", "SessionWork"),
            "client/_async/session/transactions/none.py": (
                *("AutoAcknowledge", "ClientAcknowledge", "DupsOkAcknowledge", "NoTransaction", "OwnAcknowledge"),
            ),
            "client/_async/session/transactions/transaction.py": ("OwnTransaction", "Transaction"),
            "client/_async/session/transactions/xa.py": ("GlobalTransaction",),
        },
        (
            *("claimed", "claiming", "claims", "delivered", "delivery", "dispatcher", "lender", "locks", "received"),
            *("receiving", "records", "savepoints", "scan", "sender", "sends", "session", "state", "transaction"),
            "work",
        ),
        fields=137,
        reassigned=58,
    ),
    "the listeners' thread of a session": Lifetime(
        {
            "client/listened_queues.py": ("ListenedQueues",),
        },
        ("queues", "several"),
        fields=13,
        reassigned=10,
    ),
    # A consumer replaces it whole when it begins at the front of its queue again.
    "a consumer's reader of one queue": Lifetime(
        {
            "store/receiving/reader.py": ("FreedGroups", "QueueReader"),
        },
        ("freed", "reader"),
        fields=10,
        reassigned=4,
    ),
    # Transacted consumers of one client share it.
    "a position in one queue": Lifetime(
        {
            "store/receiving/late_messages.py": ("LateMessages",),
            "store/receiving/reader.py": ("ScanBounds", "ScanPosition"),
        },
        ("bounds", "late", "position"),
        fields=16,
        reassigned=9,
    ),
}
VALUES = {"BackOff", "BatchSize", "ConsumerPolicy", "Count", "Emptiness", "Target", "Traces", "Watch"}
"""Named tuples, whose fields cannot be assigned."""


@lru_cache
def parsed(path: Path) -> ast.Module:
    """Return a module."""
    return ast.parse(path.read_text("utf-8"))


def written_modules() -> Iterator[Path]:
    """Return the modules that people write, without those that are generated from them."""
    return (path for path in sorted(PACKAGE.rglob("*.py")) if "_sync" not in path.parts)


def assigned(node: ast.AST) -> Iterator[ast.Attribute]:
    """Return the attributes that a part of a module assigns to, deletes or adds to."""
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store | ast.Del):
            yield each


def methods(definition: ast.ClassDef) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Return the methods of a class."""
    return (each for each in definition.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))


def state_of(definition: ast.ClassDef) -> tuple[set[str], set[str]]:
    """Return the fields of a class, and those that it assigns after the constructor."""
    fields, reassigned = set[str](), set[str]()
    is_data = any(ast.unparse(base) == "NamedTuple" for base in definition.bases) or any(
        "dataclass" in ast.unparse(each) for each in definition.decorator_list
    )
    if is_data:
        fields |= {ast.unparse(each.target) for each in definition.body if isinstance(each, ast.AnnAssign)}
    for method in methods(definition):
        own = {each.attr for each in assigned(method) if ast.unparse(each.value) == "self"}
        fields |= own
        if method.name != "__init__":
            reassigned |= own
    properties = {method.name for method in methods(definition)}
    return fields - properties, reassigned - properties


def state(lifetime: Lifetime) -> tuple[set[str], set[str]]:
    """Return the fields of a lifetime, and the reassigned ones, each with its class, or the first base that has it."""
    definitions = {
        each.name: each
        for module, names in lifetime.classes.items()
        for each in parsed(PACKAGE / module).body
        if isinstance(each, ast.ClassDef) and each.name in names
    }
    of_classes = {name: state_of(definition) for name, definition in definitions.items()}

    def owner(name: str, field: str) -> str:
        for base in definitions[name].bases:
            if ast.unparse(base) in definitions and field in of_classes[ast.unparse(base)][0]:
                return owner(ast.unparse(base), field)
        return f"{name}.{field}"

    fields, reassigned = set[str](), set[str]()
    for name, (own, changed) in of_classes.items():
        fields |= {owner(name, each) for each in own}
        reassigned |= {owner(name, each) for each in changed}
    return fields, reassigned


def writes_from_outside(lifetime: Lifetime) -> list[str]:
    """Return the assignments to fields of a lifetime that are not to the object's own."""
    fields = {each.partition(".")[2] for each in state(lifetime)[0] if each.partition(".")[0] not in VALUES}
    return [
        f"{path.relative_to(PACKAGE)}:{each.lineno}: {ast.unparse(each)}"
        for path in written_modules()
        for each in assigned(parsed(path))
        if each.attr in fields and ast.unparse(each.value).rpartition(".")[2].lstrip("_") in lifetime.names
    ]


@pytest.mark.parametrize("name", LIFETIMES)
def test_state_has_one_owner(name: str) -> None:
    lifetime = LIFETIMES[name]
    fields, reassigned = state(lifetime)
    writes = writes_from_outside(lifetime)
    assert len(writes) <= lifetime.writes, writes
    assert len(fields) <= lifetime.fields, sorted(fields)
    assert len(reassigned) <= lifetime.reassigned, sorted(reassigned)


@pytest.mark.parametrize("name", LIFETIMES)
def test_a_field_that_changes_has_a_docstring(name: str) -> None:
    undocumented: list[str] = []
    for module, names in LIFETIMES[name].classes.items():
        for definition in parsed(PACKAGE / module).body:
            if not isinstance(definition, ast.ClassDef) or definition.name not in names:
                continue
            reassigned = state_of(definition)[1]
            for method in methods(definition):
                if method.name == "__init__":
                    undocumented += undocumented_in(definition.name, method.body, reassigned)
    assert not undocumented


def undocumented_in(name: str, body: list[ast.stmt], fields: set[str]) -> Iterator[str]:
    """Return those of some fields that a constructor assigns without a docstring behind the assignment."""
    for statement, following in zip(body, [*body[1:], ast.Pass()], strict=True):
        is_documented = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
        for each in assigned(statement):
            if each.attr in fields and not is_documented:
                yield f"{name}.{each.attr}"


def test_writes_and_fields_are_found() -> None:
    (definition,) = ast.parse(
        "class A:\n def __init__(self):\n  self.a, self.b = 1, 2\n  self.c: int = 3\n"
        " def f(self):\n  self.b += 1\n  self.d = 4\n  other.a = 5\n"
    ).body
    assert isinstance(definition, ast.ClassDef)
    assert state_of(definition) == (set("abcd"), {"b", "d"})
    assert "other.a" in [ast.unparse(each) for each in assigned(definition)]
