"""The oldest packages that the library says it works with."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from tests.supported_versions import (
    INTERFACES,
    ROOT,
    RegistryUnreachableError,
    make_environment,
    run_tests,
    versions,
)


@pytest.mark.timeout(600)
def test_the_core_works_with_the_oldest_packages_that_it_admits(jmsql_server_url: str, tmp_path: Path) -> None:
    try:
        interpreter = make_environment(tmp_path / "environment", sys.executable, "lowest-direct")
    except RegistryUnreachableError:
        pytest.skip("the registry of packages does not answer")
    installed = versions(interpreter)
    declared = (ROOT / "pyproject.toml").read_text().partition("\ndependencies = [")[2].partition("\n]")[0]
    for name, oldest in re.findall(r'"(\w+)>=([\d.]+)', declared):
        assert re.search(rf"^{name}=={re.escape(oldest)}(\.0)*$", installed, re.MULTILINE), (name, installed)
    ran = run_tests(interpreter, jmsql_server_url, "--numprocesses", "0", "--route", "direct", *INTERFACES)
    assert ran.returncode == 0, ran.stdout + ran.stderr
