"""The files whose changes bring a new process."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from jmsql.worker.supervisor import SourceFiles


def touch(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1_000_000_000))


@pytest.fixture
def watched(tmp_path: Path) -> Path:
    """A directory with a program."""
    touch(tmp_path / "shop" / "messaging.py")
    return tmp_path


@pytest.mark.parametrize(
    "change",
    [
        lambda directory: touch(directory / "shop" / "messaging.py"),
        lambda directory: touch(directory / "another.py"),
        lambda directory: (directory / "shop" / "messaging.py").unlink(),
    ],
    ids=["changed", "made", "deleted"],
)
def test_a_change_is_told_once(watched: Path, change: Callable[[Path], None]) -> None:
    files = SourceFiles(watched, 0.0)
    assert not files.have_changed()
    change(watched)
    assert files.have_changed()
    assert not files.have_changed()


@pytest.mark.parametrize(
    "name", ["notes.txt", ".venv/lib/module.py", "venv/lib/site-packages/module.py", "shop/__pycache__/module.py"]
)
def test_other_files_are_left_alone(watched: Path, name: str) -> None:
    files = SourceFiles(watched, 0.0)
    touch(watched / name)
    assert not files.have_changed()


def test_the_directory_is_not_read_before_the_interval_is_over(tmp_path: Path) -> None:
    files = SourceFiles(tmp_path, 60.0)
    assert not files.have_changed()
    touch(tmp_path / "messaging.py")
    assert not files.have_changed()
