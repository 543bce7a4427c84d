"""The Spark session that the benchmarks share, and what they need of its surroundings."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy
from pyspark.sql import SparkSession

from benchmarks.setting import Setting

_JDBC_DRIVER = Path("/usr/share/java/postgresql.jar")
"""PostgreSQL's JDBC driver, where Debian's package `libpostgresql-jdbc-java` puts it."""


@contextmanager
def spark_session(setting: Setting) -> Iterator[SparkSession]:
    """A session with two threads, whose processes find the database."""
    # The JVM, and with it the environment of all workers, stays for the sessions that follow.
    password = sqlalchemy.make_url(setting.database.url).password
    os.environ |= {"PYSPARK_PYTHON": sys.executable, **({} if password is None else {"PGPASSWORD": str(password)})}
    with tempfile.TemporaryDirectory(prefix="jmsql-benchmarks-spark-") as directory:
        builder = (
            SparkSession.builder.master("local[2]")
            .appName("benchmarks")
            .config("spark.driver.memory", "2g")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.local.dir", directory)
            .config("spark.log.level", "ERROR")
            .config("spark.sql.warehouse.dir", f"{directory}/warehouse")
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
        )
        if _JDBC_DRIVER.exists():
            builder = builder.config("spark.jars", str(_JDBC_DRIVER))
        session = builder.getOrCreate()
        try:
            yield session
        finally:
            session.stop()


def jmsql_options(setting: Setting) -> dict[str, str]:
    """Return what the data source needs to reach the database."""
    url = sqlalchemy.make_url(setting.database.url)._replace(password=None)
    return {"url": url.render_as_string()}


def jdbc_options(setting: Setting) -> dict[str, str] | None:
    """Return what Spark's JDBC source needs to reach the database; None if it cannot."""
    url = sqlalchemy.make_url(setting.database.url)
    if not _JDBC_DRIVER.exists():
        setting.skip("JDBC", "its driver is not there (Debian: apt-get install libpostgresql-jdbc-java)")
    elif not url.host or url.host.startswith("/"):
        setting.skip("JDBC", "it needs a server that listens on TCP: name one with --url")
    else:
        return {
            "url": f"jdbc:postgresql://{url.host}:{url.port or 5432}/{url.database}",
            "driver": "org.postgresql.Driver",
            "user": url.username or "",
            "password": url.password or "",
        }
    return None
