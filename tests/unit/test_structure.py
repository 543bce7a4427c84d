"""How large one class is, how much it holds, and how many do the same, which readers have to keep in mind.

The numbers are upper bounds, which a change may lower and not raise.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import jmsql
from tests.unit.test_state import LIFETIMES

PACKAGE = Path(jmsql.__file__).parent

MOST_ATTRIBUTES = 14
MOST_BOOLEANS = 2
MOST_METHODS = 30
MOST_LINES = 250
LARGER = {
    "Administration": (73, 392),
    "Connection": (33, 273),
    "JMSContext": (45, 157),
    "JMSProducer": (40, 133),
    "EnlistedTransaction": (40, 208),
    "Session": (48, 247),
    "Transaction": (33, 72),
}
"""Classes with more methods or lines of code: JMS's and the application's interfaces, in which most are a line long;
and a session's mode, which sessions, consumers and producers ask."""
MOST_RUNNERS = 5
"""The loop over a decision; the three ways to run its statements (exchanges, psycopg's cursors, asyncpg); and the one
that has a greenlet wait for one of the last two."""
MOST_BRANCHES_FOR_ASYNCIO = 15
MOST_DEFINITIONS = {"begin": 4, "give_up": 0, "look": 0}
"""Words that have named many ideas at once. `begin` begins a transaction, and nothing else."""
DOCUMENTED = {"_asyncio_future_blocking", "_current_frames", "_exit"}
"""Names with an underscore that Python documents, with `asyncio.isfuture`, in `sys` and in `os`."""
PUBLIC_OF_TUPLES = {"_asdict", "_fields", "_make", "_replace"}
PRIVATE_NAMES = {
    "_gateway": "PySpark has no call that ends the Java that it has started.",
    "_jvm": "As `_gateway`, which a next session would use again.",
    "_tpc": "psycopg tells by an error alone that a transaction has begun as one of two phases.",
}
"""The private names of other packages that are read or set, and why."""


class State(NamedTuple):
    """What a class keeps in its objects."""

    attributes: set[str]
    booleans: set[str]


def written_files(*folders: str) -> Iterator[Path]:
    """Return the modules of some folders that people write, without those that are generated from them."""
    for folder in folders:
        yield from (path for path in sorted((PACKAGE / folder).rglob("*.py")) if "_sync" not in path.parts)


def is_boolean(annotation: ast.expr | None, value: ast.expr | None) -> bool:
    """Tell whether an attribute is True or False, as far as its assignment shows."""
    if annotation is not None:
        return ast.unparse(annotation) == "bool"
    if isinstance(value, ast.Call):
        return ast.unparse(value.func) == "bool"
    return isinstance(value, ast.Compare) or (isinstance(value, ast.Constant) and isinstance(value.value, bool))


def targets(node: ast.AST) -> Iterator[tuple[ast.expr, ast.expr | None, ast.expr | None]]:
    """Return what an assignment assigns to, with its annotation and value."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            for each in target.elts if isinstance(target, ast.Tuple) else [target]:
                yield each, None, node.value
    elif isinstance(node, ast.AnnAssign):
        yield node.target, node.annotation, node.value


def state_of(definition: ast.ClassDef) -> State:
    """Return what a class keeps in its objects: what it assigns to `self`, or the fields of a data class."""
    state = State(set(), set())
    properties = {each.name for each in definition.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
    is_data_class = any("dataclass" in ast.unparse(each) for each in definition.decorator_list)
    fields = [each for each in definition.body if isinstance(each, ast.AnnAssign)] if is_data_class else []
    for node in (*ast.walk(definition), *fields):
        for target, annotation, value in targets(node):
            is_own = isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self"
            if is_own or node in fields:
                name = target.attr if isinstance(target, ast.Attribute) else ast.unparse(target)
                if name not in properties:
                    state.attributes.add(name)
                    if is_boolean(annotation, value):
                        state.booleans.add(name)
    return state


def classes(*folders: str) -> Iterator[ast.ClassDef]:
    """Return the classes of some folders."""
    for path in written_files(*folders):
        yield from (each for each in ast.walk(ast.parse(path.read_text("utf-8"))) if isinstance(each, ast.ClassDef))


def size_of(definition: ast.ClassDef, source: Sequence[str]) -> tuple[int, int]:
    """Return how many methods a class has, and how many lines of code: no docstring, comment or empty line."""
    texts = [
        each.value
        for each in ast.walk(definition)
        if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant) and isinstance(each.value.value, str)
    ]
    described = {line for text in texts for line in range(text.lineno, (text.end_lineno or text.lineno) + 1)}
    written = range(definition.lineno, (definition.end_lineno or definition.lineno) + 1)
    code = [line for line in written if line not in described and source[line - 1].strip()[:1] not in {"", "#"}]
    methods = [each for each in definition.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    return len(methods), len(code)


def lines(pattern: str) -> list[str]:
    """Return the lines of all modules that match a pattern."""
    return [line for path in written_files(".") for line in re.findall(pattern, path.read_text("utf-8"), re.MULTILINE)]


def test_no_class_of_the_client_or_the_store_keeps_much_in_its_objects() -> None:
    # Where the fields of a lifetime are counted together, to divide a class would hide none.
    counted = {name for lifetime in LIFETIMES.values() for names in lifetime.classes.values() for name in names}
    found = {}
    for definition in classes("client", "store"):
        state = state_of(definition)
        has_many = len(state.attributes) > MOST_ATTRIBUTES and definition.name not in counted
        if has_many or len(state.booleans) > MOST_BOOLEANS:
            found[definition.name] = len(state.attributes), len(state.booleans)
    assert not found


def test_no_class_of_the_client_or_the_store_is_large() -> None:
    found = {}
    for path in written_files("client", "store"):
        source = path.read_text("utf-8")
        for definition in ast.walk(ast.parse(source)):
            if isinstance(definition, ast.ClassDef):
                methods, code = size_of(definition, source.splitlines())
                most = LARGER.get(definition.name, (MOST_METHODS, MOST_LINES))
                if methods > most[0] or code > most[1]:
                    found[definition.name] = methods, code
    assert not found


def test_the_size_of_a_class_is_counted() -> None:
    source = (
        'class A:\n    """One."""\n\n    # Two.\n    def a(self):\n        """Three."""\n        return 1\n    b = 2\n'
    )
    (definition,) = ast.parse(source).body
    assert isinstance(definition, ast.ClassDef)
    assert size_of(definition, source.splitlines()) == (1, 4)


def test_the_state_of_a_class_is_seen() -> None:
    (definition,) = (each for each in classes("client") if each.name == "PrefetchBuffer")
    state = state_of(definition)
    assert {"source", "held", "looks_again"} <= state.attributes
    assert "looks_again" in state.booleans
    assert "rest" not in state.attributes


def test_few_classes_run_statements() -> None:
    names = [each.name for each in classes(".") if each.name.endswith(("Runner", "Executor"))]
    assert 0 < len(names) <= MOST_RUNNERS, names


def test_two_places_enter_a_pipeline_of_libpq() -> None:
    # Exchanges, and the cursor that sends BEGIN with a statement. A handler's own, on psycopg's connection, is passed
    # on to psycopg.
    assert len(lines(r"\.enter_pipeline_mode\(|(?<!super\(\))\.pipeline\(\)")) == 2


def test_few_branches_tell_asyncio_from_threads() -> None:
    assert 0 < len(lines(r"^ *if (?:not )?ASYNC:")) <= MOST_BRANCHES_FOR_ASYNCIO


def private_names(path: Path) -> set[str]:
    """Return the names with an underscore that a module reads or sets in objects, and does not define."""
    tree = ast.parse(path.read_text("utf-8"))
    own: set[str] = set()
    for definition in (each for each in ast.walk(tree) if isinstance(each, ast.ClassDef)):
        own |= state_of(definition).attributes
        own |= {each.name for each in definition.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) not in {"self", "cls", "super()"}
    }
    return {name for name in used - own - PUBLIC_OF_TUPLES if re.match("_[^_]", name)}


def test_few_private_names_of_other_packages_are_used() -> None:
    found = {name for path in written_files(".") for name in private_names(path)} - DOCUMENTED
    assert found == set(PRIVATE_NAMES)


def test_a_word_names_one_idea() -> None:
    for word, most in MOST_DEFINITIONS.items():
        assert len(lines(rf"\bdef {word}\(")) <= most, word
