"""The directory of an archive, on whatever file system Spark can reach."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from jmsql.exceptions import JMSException
from jmsql.spark.jvm import hadoop_configuration, java_of
from jmsql.spark.session import spark_errors

__all__ = ["Target"]

_OVERWRITE = _RECURSIVELY = True
_PATTERN_CHARACTERS = frozenset("{}[]*?")


class Target:
    """A directory, which need not be there yet.

    Args:
        spark: The session, which knows the file systems.
        location: A local path, or a URL such as ``s3a://bucket/archive``.

    Raises:
        JMSException: The session has no such file system, or runs elsewhere (Spark Connect).
    """

    def __init__(self, spark: SparkSession, location: str) -> None:
        if not location or not _PATTERN_CHARACTERS.isdisjoint(location):
            raise JMSException(f"The target {location!r} is no directory; {{}}[]*? do not belong in its name.")
        if type(spark).__module__.startswith("pyspark.sql.connect"):
            raise JMSException("An archive needs a session of its own, not one of Spark Connect.")
        self._java = java_of(spark)
        with spark_errors(f"opening {location}"):
            path = self._java.org.apache.hadoop.fs.Path(location)
            self._files = path.getFileSystem(hadoop_configuration(spark))
            self._path = self._files.makeQualified(path)
        self.url = str(self._path.toString())
        """Where it is, with its scheme."""

    def __truediv__(self, name: str) -> str:
        return f"{self.url}/{name}"

    def exists(self, name: str) -> bool:
        """Tell whether there is something of that name in the directory."""
        with spark_errors(f"looking at {self / name}"):
            return bool(self._files.exists(self._child(name)))

    def names(self, name: str = "") -> list[str]:
        """Return the names of what is in the directory, or in one that is in it."""
        with spark_errors(f"listing {self.url}"):
            path = self._child(name) if name else self._path
            if not self._files.exists(path):
                return []
            return sorted(str(status.getPath().getName()) for status in self._files.listStatus(path))

    def read(self, name: str) -> str | None:
        """Return the text of a file, or None if it is not there."""
        if not self.exists(name):
            return None
        with spark_errors(f"reading {self / name}"):
            stream = self._files.open(self._child(name))
            try:
                return str(self._java.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
            finally:
                stream.close()

    def write(self, name: str, text: str) -> None:
        """Write a file; it is there as a whole or not at all."""
        with spark_errors(f"writing {self / name}"):
            stream = self._files.create(self._child(f"{name}.new"), _OVERWRITE)
            stream.write(bytearray(text.encode()))
            stream.close()
        self.replace(f"{name}.new", name)

    def replace(self, name: str, other: str) -> None:
        """Put what has a name in the place of what has another."""
        self.delete(other)
        with spark_errors(f"renaming {self / name}"):
            if not self._files.rename(self._child(name), self._child(other)):
                raise JMSException(f"{self / name} could not be renamed to {other}.")

    def delete(self, name: str) -> None:
        """Remove something with all that is in it, if it is there."""
        with spark_errors(f"deleting {self / name}"):
            self._files.delete(self._child(name), _RECURSIVELY)

    def _child(self, name: str) -> Any:
        return self._java.org.apache.hadoop.fs.Path(self / name)
