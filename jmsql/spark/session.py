"""A Spark session for jmsql's own jobs: quiet, and on this machine unless its settings name another; and its Java."""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

from jmsql import JMSException, ResourceAllocationException
from jmsql.spark import register
from jmsql.spark.connection import default_database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_OLDEST_JAVA = 17
"""The oldest release of Java that Spark 4 runs on."""

_ADVICE = (
    f"Spark needs Java {_OLDEST_JAVA} or newer: install it (Debian, Ubuntu: apt-get install default-jre-headless; "
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
    """Return the Java program that Spark will run: from JAVA_HOME, else from the PATH.

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
    if release < _OLDEST_JAVA:
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


_LOCAL_SETTINGS = {
    "spark.master": "local[*]",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": str(max(8, 2 * (os.cpu_count() or 1))),
}
_SETTINGS = {
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_LINES_OF_THE_LOG = 5
_IS_STACK = re.compile(r"\s+at |\s*$")
_OWN_ERROR = re.compile(r"^jmsql\.\w+: (.+)$", re.MULTILINE)
_MISSING_FILE_SYSTEM = re.compile(
    r'No FileSystem for scheme "(?P<scheme>[^"]+)"|Class org\.apache\.hadoop\.fs\.(?P<package>\w+)\.\w+ not found'
)
_FILE_SYSTEMS = {
    "s3a": ("s3a", "org.apache.hadoop:hadoop-aws"),
    "azurebfs": ("abfss", "org.apache.hadoop:hadoop-azure"),
}
"""The schemes of file systems that Spark does not bring along, and where they are, by their Java packages."""


@contextmanager
def spark_session(
    name: str, url: str | None = None, settings: Mapping[str, str] | None = None, *, verbose: bool = False
) -> Iterator[SparkSession]:
    """Start a session for the time of the block. If this process has one already, that is used, and left running.

    The data source is registered in it: Spark looks for data sources once, in a process of its own, and finds none for
    the rest of the session if that process dies.

    Args:
        name: The application's name.
        url: The database that the data source reads where no option names one. It is handed on by the environment, so
            that a password in it is seen nowhere. Executors on other machines have to find it in theirs.
        settings: Spark's settings, such as ``spark.master``; they go before those that it has by itself.
        verbose: Whether Spark's log goes to standard error.

    Raises:
        ResourceAllocationException: There is no PySpark or no Java, or the session does not start.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ResourceAllocationException(f'{error.name} is missing: pip install "jmsql[spark]".') from error
    running = SparkSession.getActiveSession()
    if running is not None:
        with default_database(url):
            register(running)
            yield running
        return
    find_java()
    with tempfile.TemporaryDirectory(prefix="jmsql-spark-") as directory, default_database(url):
        session = _start(name, settings or {}, Path(directory), verbose=verbose)
        try:
            register(session)
            yield session
        finally:
            stop_with_java(session)


def _start(name: str, settings: Mapping[str, str], directory: Path, *, verbose: bool) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    chosen = dict(_SETTINGS)
    if settings.get("spark.master", "local").startswith("local"):
        # The executors are processes of this machine, and find their code as this one does.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        chosen |= _LOCAL_SETTINGS
        chosen |= {"spark.local.dir": str(directory), "spark.sql.warehouse.dir": str(directory / "warehouse")}
    configuration = SparkConf(loadDefaults=False).setAll(list({"spark.app.name": name, **chosen, **settings}.items()))
    if not verbose:
        # It tells of each question that an interruption has left without an answer.
        logging.getLogger("py4j").setLevel(logging.CRITICAL)
    log = directory / "log"
    with log.open("wb") as sink:
        streams: dict[str, IO[bytes]] = {} if verbose else {"stdout": sink, "stderr": sink}
        try:
            gateway = launch_gateway(configuration, streams)  # type: ignore[no-untyped-call]
            with _interruption_as_before():
                return SparkSession(SparkContext(gateway=gateway, conf=configuration))
        except Exception as error:
            lines = log.read_text(errors="replace").strip().splitlines()
            shown = [line for line in lines if not _IS_STACK.match(line)][-_LINES_OF_THE_LOG:]
            raise ResourceAllocationException("\n".join([f"Spark does not start: {_text(error)}", *shown])) from error


@contextmanager
def _interruption_as_before() -> Iterator[None]:
    """Restore the handler of Ctrl-C: Spark's calls Java to cancel its jobs, possibly in the middle of another call."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def spark_errors(doing: str) -> Iterator[None]:
    """Convert Spark's errors, which are many lines long, into a short one of jmsql.

    Raises:
        JMSException: Spark has raised an error.
    """
    try:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException
    except ImportError as error:
        raise ResourceAllocationException(f'{error.name} is missing: pip install "jmsql[spark]".') from error
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise JMSException(f"Spark failed while {doing}: {_text(error)}") from error


def _text(error: BaseException) -> str:
    """Return the text of jmsql's own error in a Spark process, else the error's first line."""
    java = getattr(error, "java_exception", None)
    shown = str(error if java is None else java).strip()
    missing = _MISSING_FILE_SYSTEM.search(shown)
    if missing is not None:
        name = missing["scheme"] or missing["package"]
        scheme, artifact = _FILE_SYSTEMS.get(name, (name, "GROUP:ARTIFACT"))
        return (
            f"the session has no file system for {scheme}://. Bring its jars along: "
            f"spark.jars.packages={artifact}:VERSION, for the Hadoop of this Spark."
        )
    own = _OWN_ERROR.findall(shown)
    return own[-1] if own else shown.split("\n", 1)[0]


if __name__ == "__main__":
    try:
        print(find_java())  # noqa: T201
    except ResourceAllocationException as error:
        sys.exit(str(error))
