from __future__ import annotations

from pathlib import Path

import pytest

from jmsql import ResourceAllocationException
from jmsql.spark.session import find_java


def fake_java(directory: Path, version: str) -> Path:
    program = directory / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize("version", ["17.0.15", "21", "25.0.1"])
def test_java_of_java_home_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    program = fake_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert find_java() == program


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.2"])
def test_old_java_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    fake_java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ResourceAllocationException, match=r"is Java (8|11)\. Spark needs Java 17 or newer: install"):
        find_java()


def test_missing_java_is_told_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ResourceAllocationException, match=r"No Java was found\. Spark needs .* or set JAVA_HOME"):
        find_java()


def test_java_home_without_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ResourceAllocationException, match="There is no Java that runs at"):
        find_java()
