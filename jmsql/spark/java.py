"""The Java that Spark runs on: finding it, and ending it. PySpark is loaded with a session alone."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from jmsql.exceptions import ResourceAllocationException

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["OLDEST_JAVA", "find_java", "stop_with_java"]

OLDEST_JAVA = 17
"""The oldest release of Java that Spark 4 runs on."""

_ADVICE = (
    f"Spark needs Java {OLDEST_JAVA} or newer: install it (Debian, Ubuntu: apt-get install default-jre-headless; "
    "macOS: brew install openjdk), or set JAVA_HOME to where it is."
)


def _release(program: str | Path) -> int | None:
    """Return the release of a Java program, or None if it does not run."""
    try:
        shown = subprocess.run([program, "-version"], capture_output=True, text=True, check=False, timeout=60)
    except OSError:
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', shown.stderr)
    return int(found.group(1)) if found else None


def find_java() -> Path:
    """Return the Java program that Spark will run: that of JAVA_HOME, else the one on the PATH.

    Raises:
        ResourceAllocationException: There is none, or it is too old; the message says how to get one.
    """
    home = os.environ.get("JAVA_HOME")
    program = Path(home, "bin", "java") if home else shutil.which("java")
    if program is None:
        raise ResourceAllocationException(f"No Java was found. {_ADVICE}")
    release = _release(program)
    if release is None:
        raise ResourceAllocationException(f"There is no Java that runs at {program}. {_ADVICE}")
    if release < OLDEST_JAVA:
        raise ResourceAllocationException(f"{program} is Java {release}. {_ADVICE}")
    return Path(program)


def stop_with_java(spark: SparkSession) -> None:
    """Stop a session, and end its Java, so that the next one starts with settings of its own."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway  # PySpark has no public way to it
    spark.stop()
    if gateway is not None:
        gateway.shutdown()
        process = gateway.proc
        if process is not None:
            process.stdin.close()
            process.wait()
        SparkContext._gateway = SparkContext._jvm = None


if __name__ == "__main__":
    try:
        print(find_java())  # noqa: T201
    except ResourceAllocationException as error:
        sys.exit(str(error))
