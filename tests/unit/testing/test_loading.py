"""Every run of pytest loads the plugin where jmsql is installed, also if no test has to do with messaging."""

from __future__ import annotations

import subprocess
import sys

import pytest

import jmsql.testing


def test_the_plugin_loads_no_library_and_nothing_else_of_the_package() -> None:
    program = (
        "import sys, jmsql.testing.plugin\n"
        "print(*sorted(name for name in sys.modules if name.partition('.')[0] == 'jmsql'))\n"
        "assert not {'alembic', 'lark', 'psycopg', 'sqlalchemy'} & sys.modules.keys()"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["jmsql", "jmsql.testing", "jmsql.testing.plugin"]


def test_all_names_can_be_imported_at_once() -> None:
    program = "from jmsql.testing import *; import jmsql.testing; assert set(jmsql.testing.__all__) <= globals().keys()"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match=r"module 'jmsql\.testing' has no attribute 'drian'"):
        jmsql.testing.drian  # type: ignore[attr-defined]  # noqa: B018
