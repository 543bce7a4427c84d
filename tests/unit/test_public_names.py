"""The public names: where programs import them from, and what they say of themselves."""

from __future__ import annotations

import ast
import dataclasses
import importlib
import importlib.metadata
import pickle
import re
import subprocess
import sys
import typing
from pathlib import Path
from types import FunctionType, ModuleType

import pytest

import jmsql

ROOT = Path(__file__).parents[2]
IMPORTED_BY_JMSQL = (
    "jmsql",
    "jmsql.admin",
    "jmsql.connection_consumers",
    "jmsql.domains",
    "jmsql.types",
    "jmsql.xa",
)
AWAITED = tuple(f"jmsql.asyncio{suffix}" for suffix in ("", ".admin", ".connection_consumers", ".domains", ".xa"))
"""The modules with the names of others, awaited."""
THREADS_AND_TASKS = {"ThreadServerSessionPool": "TaskServerSessionPool"}
"""Names that differ between the two."""
PACKAGES = (
    "jmsql.console",
    "jmsql.embedded",
    "jmsql.metrics",
    "jmsql.testing",
    "jmsql.tracing",
    "jmsql.worker",
)
MODULES = [*IMPORTED_BY_JMSQL, *PACKAGES]


def public(module: str) -> ModuleType:
    return importlib.import_module(module)


def public_values() -> list[tuple[str, str, object]]:
    return [(module, name, getattr(public(module), name)) for module in MODULES for name in public(module).__all__]


def awaited_values() -> list[tuple[str, str, object]]:
    """What is another class or function where it is awaited."""
    return [
        (module, name, value)
        for module in AWAITED
        for name in public(module).__all__
        if (value := getattr(public(module), name)) is not getattr(blocking(module), name, None)
    ]


def blocking(module: str) -> ModuleType:
    return public(module.replace("jmsql.asyncio", "jmsql"))


VALUES = public_values() + awaited_values()
CLASSES = [value for _, _, value in VALUES if isinstance(value, type)]


def is_upper_first(name: str) -> tuple[bool, str]:
    return name[0].islower(), name


@pytest.mark.parametrize("module", [*MODULES, *AWAITED])
def test_names_are_sorted_classes_first(module: str) -> None:
    names = public(module).__all__
    assert names == sorted(names, key=is_upper_first)


def test_a_name_is_public_in_one_place() -> None:
    places: dict[str, list[str]] = {}
    for module, name, _ in public_values():
        places.setdefault(name, []).append(module)
    assert {name: modules for name, modules in places.items() if len(modules) > 1} == {}


@pytest.mark.parametrize("module", AWAITED)
def test_the_awaited_api_has_the_same_names(module: str) -> None:
    assert {THREADS_AND_TASKS.get(name, name) for name in blocking(module).__all__} == {*public(module).__all__}


def test_the_package_itself_has_the_names_that_most_programs_need() -> None:
    assert 35 <= len(jmsql.__all__) <= 60


@pytest.mark.parametrize(("module", "name", "value"), VALUES, ids=lambda value: value if isinstance(value, str) else "")
def test_a_class_or_function_says_that_it_is_from_where_it_is_imported(module: str, name: str, value: object) -> None:
    if isinstance(value, type | FunctionType):
        assert (value.__module__, value.__qualname__) == (module, name)


def test_they_say_so_as_soon_as_the_package_is_imported() -> None:
    program = (
        "import jmsql\n"
        "from jmsql.client._sync.domains import QueueConnectionFactory\n"
        "from jmsql.store.administration.inspection import QueueSummary\n"
        "print(jmsql.JMSContext, QueueConnectionFactory, QueueSummary)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == (
        "<class 'jmsql.JMSContext'> <class 'jmsql.domains.QueueConnectionFactory'> <class 'jmsql.admin.QueueSummary'>\n"
    )


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_a_class_is_pickled_by_its_public_name(kind: type) -> None:
    pickled = pickle.dumps(kind, protocol=0)
    assert f"{kind.__module__}\n{kind.__qualname__}\n".encode() in pickled
    assert pickle.loads(pickled) is kind


@pytest.mark.parametrize(
    "kind",
    [kind for kind in CLASSES if dataclasses.is_dataclass(kind) or issubclass(kind, tuple)],
    ids=lambda kind: kind.__name__,
)
def test_the_annotations_of_a_class_of_data_can_be_read(kind: type) -> None:
    """Frameworks that validate and serialize read them, and look names up in the class's `__module__`."""
    assert all(not isinstance(hint, str) for hint in typing.get_type_hints(kind).values())


def test_an_error_in_a_traceback_is_named_as_programs_catch_it() -> None:
    program = "import jmsql; raise jmsql.JMSException('A message is gone.')"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.stderr.splitlines()[-1] == "jmsql.JMSException: A message is gone."


def test_the_documentation_lists_each_name_where_it_is_imported_from() -> None:
    pages = "\n".join(path.read_text() for path in ROOT.glob("docs/**/*.md"))
    entries = re.findall(r"^::: (jmsql[\w.]*)\n((?:    .*\n)*)", pages, re.MULTILINE)
    assert len(entries) == len({path for path, _ in entries})
    modules = {*MODULES, *AWAITED}
    whole = {path for path, options in entries if path in modules and "members: false" not in options}
    listed = {path for path, _ in entries if path not in modules}
    listed |= {f"{module}.{name}" for module in whole for name in public(module).__all__}
    names = {f"{module}.{name}" for module, name, _ in VALUES}
    assert names <= listed
    assert {path for path in listed - names if not path.startswith(("jmsql.django.", "jmsql.spark."))} == set()


def test_the_version_is_that_of_the_installed_package() -> None:
    assert jmsql.__version__ == importlib.metadata.version("jmsql")


def test_importing_the_package_loads_no_module_that_a_program_does_not_use() -> None:
    program = (
        "import sys, jmsql\n"
        "libraries = {'alembic', 'lark', 'psycopg', 'sqlalchemy'}\n"
        "assert not libraries & sys.modules.keys()\n"
        "jmsql.Queue('orders'), jmsql.Timings(), jmsql.RedeliveryPolicy(), jmsql.JMSException\n"
        "assert not libraries & sys.modules.keys()\n"
        "jmsql.xa.XAConnectionFactory\n"
        "assert {'psycopg', 'sqlalchemy'} <= sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_type_checkers_see_the_names_that_there_are() -> None:
    tree = ast.parse(Path(jmsql.__file__).read_text())
    [block] = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    seen = {
        alias.name: public(f"jmsql.{alias.name}")
        if node.module == "jmsql"
        else getattr(public(str(node.module)), alias.name)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert seen.keys() == {*jmsql.__all__, *(module.partition(".")[2] for module in IMPORTED_BY_JMSQL[1:])}
    assert {name: getattr(jmsql, name) for name in seen} == seen


def test_all_names_can_be_imported_at_once() -> None:
    program = "from jmsql import *; import jmsql; assert set(jmsql.__all__) <= globals().keys()"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_names_are_listed_before_they_are_used() -> None:
    program = "import jmsql; print(*dir(jmsql))"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert {*jmsql.__all__, "__version__", "admin", "types", "xa"} <= set(ran.stdout.split())


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match="module 'jmsql' has no attribute 'ConnectionFactroy'"):
        jmsql.ConnectionFactroy  # type: ignore[attr-defined]  # noqa: B018
