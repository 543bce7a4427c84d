"""One Spark session for all tests of the data source, on the database of the test session.

Spark's processes find the database by the environment variable `JMSQL_URL`, whose URL has a password in it: PostgreSQL
asks for none here, and no test may find it anywhere.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Generator, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
import sqlalchemy
from psycopg.conninfo import conninfo_to_dict
from pyspark.sql import SparkSession

import jmsql
from jmsql.spark.session import stop_with_java
from tests.integration.client.server import Server
from tests.spark.programs.python_server import python_server
from tests.spark.shared_classes import QUICK_START, archive_in, using
from tests.spark.subprocesses import SETTINGS, environment

ROOT = Path(__file__).parents[2]
REDACTION = re.compile(r"^spark\.redaction\.regex .*$", re.MULTILINE)

SECRET = "marker-that-nobody-may-see"

LOGGING = """
rootLogger.level = info
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {file}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %p %c{{1}}: %m%n%ex
"""


@pytest.fixture(scope="session")
def spark_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the session leaves its traces."""
    return tmp_path_factory.mktemp("spark")


@pytest.fixture(scope="session")
def secret_url(jmsql_url: str) -> str:
    """The URL of the database, with a password that is not needed."""
    url = sqlalchemy.make_url(jmsql_url)
    return url.set(username=url.username or "postgres", password=SECRET).render_as_string(hide_password=False)


def write_services(path: Path, **services: str) -> None:
    """Write a service file of PostgreSQL's: each service as the URL says it."""
    lines = []
    for name, url in services.items():
        parameters = conninfo_to_dict(url.replace("postgresql+psycopg", "postgresql"))
        lines += [f"[{name}]", *(f"{parameter}={value}" for parameter, value in parameters.items())]
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="session")
def services(spark_directory: Path) -> Path:
    """The service file that Spark's processes read each time they connect."""
    return spark_directory / "services.conf"


def _shared_classes(config: pytest.Config) -> Path:
    assert config.cache is not None
    return archive_in(config.cache.mkdir("spark"))


@cache
def _try_to_share_classes(config: pytest.Config) -> None:
    with suppress(Exception):  # which the fixture will raise
        _shared_classes(config)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Make the archive before the time begins that a test may take: on a busy machine it takes more than that."""
    if Path(__file__).parent in item.path.parents:
        _try_to_share_classes(item.config)
    return (yield)


@pytest.fixture(scope="session", autouse=True)
def quick_start(pytestconfig: pytest.Config) -> Iterator[None]:
    """Let each JVM of the tests start quickly: there are many, and most live for a few seconds.

    All processes that run tests share the archive of classes, and those of the next run.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_LAUNCHER_OPTS", QUICK_START)
        archive = _shared_classes(pytestconfig)
        patch.setenv("SPARK_SUBMIT_OPTS", using(archive))
        patch.setenv("SPARK_DAEMON_JAVA_OPTS", using(archive))
        yield


@pytest.fixture(scope="session")
def python() -> Iterator[Path]:
    """What Spark starts instead of Python, and need not wait for."""
    # The socket's path must be short.
    with (
        tempfile.TemporaryDirectory(prefix="jmsql-python-") as directory,
        python_server(Path(directory), environment("")) as program,
    ):
        yield program


@pytest.fixture(scope="session")
def cluster_settings(secret_url: str, spark_directory: Path) -> Path:
    """The file of Spark's settings, as the page about Spark has them where executors get the password from them."""
    redaction = REDACTION.search((ROOT / "docs/spark.md").read_text())
    assert redaction is not None
    variables = ("JMSQL_URL", "JMSQL_CONNECTION_SHOP")
    lines = [redaction[0], *(f"spark.executorEnv.{variable} {secret_url}" for variable in variables)]
    path = spark_directory / "cluster.properties"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="session")
def spark(
    secret_url: str, spark_directory: Path, services: Path, python: Path, cluster_settings: Path
) -> Iterator[SparkSession]:
    """A session with two threads in one process."""
    events = spark_directory / "events"
    events.mkdir()
    logging = spark_directory / "log4j2.properties"
    logging.write_text(LOGGING.format(file=spark_directory / "spark.log"))
    write_services(services, marked=secret_url)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JMSQL_URL", secret_url)
        patch.setenv("JMSQL_CONNECTION_SHOP", secret_url)
        patch.setenv("PGSERVICEFILE", str(services))
        patch.setenv("PYSPARK_PYTHON", str(python))
        patch.setenv("PYSPARK_SUBMIT_ARGS", f"--properties-file {cluster_settings} pyspark-shell")
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))))
        session = (
            SparkSession.builder.master("local[2,3]")
            .appName("tests")
            .config(map=SETTINGS)
            .config("spark.driver.extraJavaOptions", f"-Dlog4j2.configurationFile={logging.as_uri()}")
            .config("spark.eventLog.compress", "false")
            .config("spark.eventLog.enabled", "true")
            .config("spark.eventLog.dir", events.as_uri())
            .config("spark.local.dir", str(spark_directory))
            .config("spark.sql.warehouse.dir", str(spark_directory / "warehouse"))
            .config("spark.ui.showConsoleProgress", "false")
            .getOrCreate()
        )
    # Its processes have their environment from its JVM. The other tests of this process shall have nothing of it.
    yield session
    stop_with_java(session)


@pytest.fixture(scope="package", autouse=True)
def surroundings_of_the_driver(secret_url: str, python: Path) -> Iterator[None]:
    """Let jobs that are started here find the database as Spark's processes do, and drivers beside this one Python."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JMSQL_URL", secret_url)
        patch.setenv("PYSPARK_PYTHON", str(python))
        yield


@pytest.fixture
def context(jmsql_factory: jmsql.ConnectionFactory) -> Iterator[jmsql.JMSContext]:
    """A transacted client of an empty store."""
    with jmsql_factory.create_context(session_mode=jmsql.AcknowledgeMode.TRANSACTED) as context:
        yield context


@pytest.fixture
def server(jmsql_clean_url: str) -> Iterator[Server]:
    """The server, seen as an administrator sees it."""
    import psycopg

    with psycopg.connect(jmsql_clean_url, autocommit=True) as connection:
        yield Server(connection)
