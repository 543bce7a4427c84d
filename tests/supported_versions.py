"""The core's tests in a virtual environment of their own: with the oldest packages, or with another Python.

`make pythons` runs them with each Python that is installed; `make test` with the oldest packages alone.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from jmsql.testing.servers import server_for_tests

ROOT = Path(__file__).parents[1]
UV = Path(sys.executable).with_name("uv")
SUPPORTED = ("3.11", "3.12", "3.13", "3.14")

CORE = (
    "tests/unit/client",
    "tests/unit/store",
    "tests/unit/messages/test_codecs.py",
    "tests/unit/selectors/test_syntax.py",
    "tests/compliance/acknowledgement/test_client_acknowledge.py",
    "tests/compliance/transactions/test_commit.py",
    "tests/compliance/topics/test_durable_subscriber.py",
    "tests/compliance/messages/test_object_message.py",
    "tests/compliance/transactions/test_rollback.py",
    "tests/integration/enlistment/test_psycopg.py",
    "tests/integration/enlistment/test_sqlalchemy.py",
    "tests/integration/enlistment/test_transactions.py",
    "tests/integration/store/test_migration.py",
)
"""What is run with another Python: what uses psycopg, SQLAlchemy, Alembic and Lark."""

INTERFACES = (
    *(
        f"tests/unit/selectors/test_syntax.py::{name}"
        for name in (
            "test_blank_tab_form_feed_and_line_ends_separate",
            "test_errors_say_where_and_why",
            "test_other_names_are_refused",
            "test_precedence",
        )
    ),
    "tests/compliance/acknowledgement/test_client_acknowledge.py::test_acknowledging_the_last_message_covers_all",
    "tests/compliance/transactions/test_commit.py::test_commit_after_a_statement_failed_is_a_rollback",
    "tests/compliance/transactions/test_commit.py::test_commit_that_ends_in_a_rollback_says_so",
    "tests/integration/enlistment/test_psycopg.py",
    "tests/integration/enlistment/test_sqlalchemy.py",
    *(
        f"tests/integration/enlistment/test_transactions.py::{name}"
        for name in (
            "test_a_commit_does_both_and_a_rollback_neither",
            "test_a_lost_connection_is_reported_and_sqlalchemy_goes_on",
            "test_a_rollback_to_a_savepoint_undoes_only_later_work",
            "test_in_autocommit_mode_each_send_and_receive_is_on_its_own",
            "test_messages_of_all_kinds_arrive",
        )
    ),
    "tests/integration/store/test_migration.py::test_it_joins_the_alembic_of_an_application",
    "tests/integration/store/test_migration.py::test_newer_schema_is_refused_in_a_sentence",
    "tests/integration/two_phase_commit/test_context.py::test_receipts_and_sends_are_prepared_together",
    *(
        f"tests/integration/two_phase_commit/test_in_doubt.py::{name}"
        for name in (
            "test_refused_preparation_rolls_back_and_frees_the_session",
            "test_cut_connection_costs_the_transaction_that_is_not_prepared",
        )
    ),
)
"""What is run with other packages alone: each function and method of theirs that jmsql calls is called at least once.

Found by `sys.setprofile` around each test of `CORE` and of two-phase commits.
"""

TEST_PACKAGES = (
    *("asyncpg", "hypothesis", "msgspec", "pydantic", "pytest", "pytest-asyncio", "pytest-randomly", "pytest-timeout"),
    "pytest-xdist",
)
"""What the core's tests need; they are installed in the versions that run here."""

Resolution = Literal["highest", "lowest-direct"]


class RegistryUnreachableError(RuntimeError):
    """The registry of packages does not answer, so that no other versions can be installed."""


def make_environment(directory: Path, python: str, resolution: Resolution) -> Path:
    """Make a virtual environment with jmsql, what it needs and what its tests need.

    Args:
        directory: Where.
        python: The interpreter, or its version.
        resolution: Which versions of jmsql's own dependencies to take.

    Returns:
        Its interpreter.

    Raises:
        RegistryUnreachableError: The registry of packages does not answer.
        RuntimeError: There are no such versions, or something else failed.
    """
    interpreter = directory / "bin" / "python"
    _uv("venv", "--python", python, "--no-python-downloads", str(directory))
    tests = [f"{name}=={importlib.metadata.version(name)}" for name in TEST_PACKAGES]
    # The tests of `enlist` need what `sqlalchemy[asyncio]` brings, which jmsql itself does not.
    _uv(
        *("pip", "install", "--python", str(interpreter), "--resolution", resolution, "--editable", str(ROOT)),
        *("psycopg[binary]", "sqlalchemy[asyncio]", *tests),
    )
    return interpreter


def versions(interpreter: Path) -> str:
    """Return the names and versions of an environment's packages, one on each line."""
    return _uv("pip", "freeze", "--python", str(interpreter))


def run_tests(interpreter: Path, server_url: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run tests of the core, on a database of their own.

    Args:
        interpreter: That of the environment.
        server_url: The server on which to make the database.
        arguments: The tests, and what else pytest is given.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    command = [str(interpreter), "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    return subprocess.run(
        command,
        cwd=ROOT,
        env=environment | {"JMSQL_TEST_URL": server_url},
        capture_output=True,
        text=True,
        check=False,
    )


def _uv(*arguments: str) -> str:
    ran = subprocess.run([UV, "--quiet", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if ran.returncode:
        failure = RegistryUnreachableError if "error sending request for url" in ran.stderr else RuntimeError
        raise failure(f"uv {' '.join(arguments)}: {ran.stderr}")
    return ran.stdout


def installed_pythons() -> list[str]:
    """Return the interpreters of supported versions that are on this computer, one of each version."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    found = []
    for version in SUPPORTED:
        candidates = [shutil.which(f"python{version}"), *sorted(map(str, pyenv.glob(f"{version}.*/bin/python3")))]
        # What pyenv puts into the search path does not run unless that version is chosen.
        found += [each for each in candidates if each is not None and _runs(each)][:1]
    return found


def _runs(python: str) -> bool:
    return subprocess.run([python, "-c", "import venv"], capture_output=True, check=False).returncode == 0


def main(pythons: Iterable[str]) -> int:
    """Run the core's tests with each of the interpreters, with the newest packages and with the oldest."""
    failures = 0
    with server_for_tests() as server_url:
        for python in pythons:
            for resolution in ("highest", "lowest-direct"):
                with tempfile.TemporaryDirectory(prefix="jmsql-python-") as directory:
                    interpreter = make_environment(Path(directory), python, resolution)
                    ran = run_tests(interpreter, server_url, *CORE)
                summary = ran.stdout.rstrip().rpartition("\n")[2]
                print(f"{python}, {resolution}: {summary}", flush=True)
                if ran.returncode:
                    failures += 1
                    print(ran.stdout, ran.stderr, sep="\n", flush=True)
    return failures


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("python", nargs="*", help="interpreters or versions; none: all that are installed")
    sys.exit(main(parser.parse_args().python or installed_pythons()))
