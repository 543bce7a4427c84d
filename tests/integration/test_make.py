"""`make packages` installs what the tests need beside Python, or says what is missing."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDED = ("sh", "ls", "make", "sed", "touch", "true", "chmod", "rm")
# Looked for where the tests look, too, which a search path does not hide.
HIDDEN = ["iproute2", "chromium", "chromium-driver", "prometheus", "default-jre-headless"]


class Machine:
    """A machine on which only what `make` itself needs is on the search path.

    Args:
        directory: The search path.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.asked = directory / "asked"
        self.policy = directory / "policy-rc.d"
        for name in NEEDED:
            (directory / name).symlink_to(str(shutil.which(name)))

    def program(self, name: str, script: str) -> None:
        """Put a program on the search path."""
        file = self._directory / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    def make(self, target: str) -> subprocess.CompletedProcess[str]:
        """Run `make`; what makes the virtual environment is up to date."""
        others = {"JAVA_HOME", "MAKEFLAGS", "MAKELEVEL", "MFLAGS"}  # the tests themselves are run by make
        environment = {name: value for name, value in os.environ.items() if name not in others}
        return subprocess.run(
            ["make", "--old-file=.venv/.complete", f"POLICY={self.policy}", target],
            cwd=ROOT,
            env=environment | {"PATH": str(self._directory)},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    machine.program("id", "echo 0")
    machine.program("apt-get", f'echo "$@" >>{machine.asked}')
    return machine


def test_root_on_debian_has_all_that_is_missing_installed_at_once(machine: Machine) -> None:
    result = machine.make("packages")
    assert (result.returncode, result.stderr) == (0, "")
    update, install = machine.asked.read_text().splitlines()
    assert update == "update -qq"
    assert install.startswith("install -y -qq --no-install-recommends ")
    assert [name for name in install.split() if name in HIDDEN] == HIDDEN
    assert result.stdout.startswith("Installing ")


@pytest.mark.parametrize("has_policy", [False, True])
def test_servers_among_the_packages_do_not_start(machine: Machine, has_policy: bool) -> None:
    """Debian starts what it installs, unless its policy says 101; a policy that is there already stays."""
    if has_policy:
        machine.program(machine.policy.name, "exit 104")
    machine.program("apt-get", f"sh {machine.policy} prometheus start; echo $? >>{machine.asked}; exit 100")
    assert machine.make("packages").returncode == 0
    assert set(machine.asked.read_text().split()) == {"104" if has_policy else "101"}
    assert machine.policy.exists() is has_policy


def test_installed_packages_are_not_installed_again(machine: Machine) -> None:
    for name in ("ip", "chromium", "chromedriver", "promtool", "pgbouncer"):
        machine.program(name, "true")
    machine.program("java", "echo 'openjdk version \"21.0.2\"' >&2")
    assert machine.make("packages").returncode == 0
    asked = machine.asked.read_text() if machine.asked.exists() else ""
    assert not [name for name in [*HIDDEN, "pgbouncer"] if name in asked.split()]


@pytest.mark.parametrize(("name", "script"), [("id", "echo 1000"), ("apt-get", "exit 100")], ids=["user", "offline"])
def test_missing_packages_are_named_in_a_sentence(machine: Machine, name: str, script: str) -> None:
    """And tests run without it."""
    machine.program(name, script)
    result = machine.make("packages")
    assert result.returncode == 0
    [sentence] = result.stderr.splitlines()
    assert sentence.startswith("Not installed: ")
    assert "are skipped, and those of Spark fail without Java" in sentence
    assert [name for name in sentence.partition(".")[0].split() if name in HIDDEN] == HIDDEN
    assert not machine.asked.exists()


def test_java_alone_is_required_where_it_is_asked_for(machine: Machine) -> None:
    machine.program("apt-get", "exit 100")
    result = machine.make("java")
    assert result.returncode != 0
    assert "No Java was found. Spark needs Java 17 or newer" in result.stderr
    assert "chromium" not in result.stdout
