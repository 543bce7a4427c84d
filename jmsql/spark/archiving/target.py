"""The directory of an archive, on this machine or in an object store, and the lock of the process that writes to it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType, LocalFileSystem

from jmsql import JMSException
from jmsql.extension.statements import Runner, SqlFile, nothing, value
from jmsql.spark.database import allow_idleness

_PATTERN_CHARACTERS = frozenset("{}[]*")
_LONGEST_NAME = 255
"""Bytes of the name of a file or directory, on all usual file systems."""

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


class Target:
    """A directory, which need not be there yet. Names of files are within it.

    Args:
        location: A local path, or a URL as `pyarrow.fs` reads it, such as ``s3://bucket/archive?region=eu-central-1``;
            ``s3a://`` is the same as ``s3://``.

    Raises:
        JMSException: There is no such file system here, or the URL holds a password.
    """

    def __init__(self, location: str | os.PathLike[str]) -> None:
        location = os.fspath(location)
        if not location:
            raise JMSException("The target has no name: give a directory, as a path or a URL.")
        location = re.sub("^file:/(?!/)", "file:///", location)  # as Hadoop and Spark write it
        if re.match("file:(?!///)", location):
            raise JMSException(
                f"The target {location!r} is not the URL of a file: write file:///path, or the path alone."
            )
        if not _PATTERN_CHARACTERS.isdisjoint(location):
            raise JMSException(f"The target {location!r} is not a directory; {{}}[]* do not belong in its name.")
        if _SCHEME.match(location):
            if urlsplit(location).password is not None:
                raise JMSException("The target's URL holds a password, which logs would show: leave it out.")
            self.url = re.sub("^s3[an]://", "s3://", location)
            with _file_errors(f"opening {self.url}"):
                self.file_system, self._path = FileSystem.from_uri(self.url)
        else:
            self.url = os.path.realpath(location)
            self.file_system, self._path = LocalFileSystem(), self.url
        self._is_local = isinstance(self.file_system, LocalFileSystem)
        if self._is_local:
            self._path = os.path.realpath(self._path)
        self._path = self._path.rstrip("/")
        self.lock_name = self._path if self._is_local else self._object_name()
        """The same for each way to name a directory."""

    def _object_name(self) -> str:
        """Return a URL without its parameters, such as the region."""
        host = parse_qs(urlsplit(self.url).query).get("endpoint_override")
        store = "" if host is None else f"?endpoint_override={host[-1]}"
        return f"{self.file_system.type_name}://{self._path}{store}"

    def __truediv__(self, name: str) -> str:
        return f"{self._path}/{name}"

    def check_directory(self, name: str) -> None:
        """Make sure that a directory can be made, before anything is decided that needs it.

        Raises:
            JMSException: A part of its name is too long.
        """
        if self._is_local and any(len(os.fsencode(part)) > _LONGEST_NAME for part in name.split("/")):
            raise JMSException(
                f"The archive {self.url} cannot have the directory {name}, since no name on a disk may have more than "
                f"{_LONGEST_NAME} bytes: archive to an object store, or the other destinations alone."
            )

    @contextmanager
    def create(self, name: str) -> Iterator[pa.NativeFile]:
        """Open a new file for writing, in the place of one of that name."""
        with self.errors(f"writing {name}"):
            if self._is_local:
                self.file_system.create_dir(str(PurePosixPath(self / name).parent))
            with self.file_system.open_output_stream(self / name) as stream:
                yield stream

    def open(self, name: str) -> pa.NativeFile:
        """Open a file for reading."""
        with self.errors(f"reading {name}"):
            return self.file_system.open_input_file(self / name)

    def read(self, name: str) -> bytes | None:
        """Return a file's contents, or None if it does not exist."""
        with self.errors(f"reading {name}"):
            try:
                with self.file_system.open_input_stream(self / name) as stream:
                    return bytes(stream.read())
            except FileNotFoundError:
                return None

    def write(self, name: str, text: str) -> None:
        """Write a file, which is there as a whole or not at all, and stays."""
        # An object store shows a file only when it is complete.
        written = f"{name}.new" if self._is_local else name
        with self.create(written) as stream:
            stream.write(text.encode())
        if self._is_local:
            self.make_durable([written])
            self.move(written, name)

    def files(self, directory: str = "") -> list[tuple[str, int]]:
        """Return the names of all files in a directory and below, in order, and how many bytes each has."""
        found = self._list(directory, recursive=True)
        names = ((info.path.removeprefix(f"{self._path}/"), info.size) for info in found if info.type is FileType.File)
        return sorted((name, size or 0) for name, size in names)

    def names(self) -> list[str]:
        """Return the names of the files and directories in the target."""
        return [info.base_name for info in self._list("", recursive=False)]

    def exists(self, name: str) -> bool:
        """Tell whether there is a file of that name."""
        with self.errors(f"looking at {name}"):
            return bool(self.file_system.get_file_info(self / name).type is FileType.File)

    def make_durable(self, names: Iterable[str]) -> None:
        """Make sure that files outlive the end of the machine. An object store's do."""
        if not self._is_local:
            return
        files = [PurePosixPath(name) for name in names]
        directories = dict.fromkeys(directory for file in files for directory in file.parents)
        with self.errors("writing"):
            for path in (self / str(name) for name in (*files, *directories)):
                descriptor = os.open(path, os.O_RDONLY)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)

    def move(self, name: str, other: str) -> None:
        """Put a file in the place of another, or of none."""
        with self.errors(f"moving {name} to {other}"):
            if self._is_local:
                place = Path(self / other)
                place.parent.mkdir(parents=True, exist_ok=True)
                Path(self / name).replace(place)
                self.make_durable([other])
            else:
                self.file_system.move(self / name, self / other)

    def delete(self, name: str) -> None:
        """Remove a file, if it is there, and the directories that it leaves empty."""
        with self.errors(f"removing {name}"):
            with suppress(FileNotFoundError):
                self.file_system.delete_file(self / name)
            if self._is_local:
                with suppress(OSError):  # one is not empty
                    for parent in PurePosixPath(name).parents[:-1]:
                        Path(self / str(parent)).rmdir()

    def _list(self, directory: str, *, recursive: bool) -> list[FileInfo]:
        with self.errors("listing it"):
            path = self / directory if directory else self._path
            return list(self.file_system.get_file_info(FileSelector(path, allow_not_found=True, recursive=recursive)))

    @contextmanager
    def errors(self, doing: str) -> Iterator[None]:
        """Convert errors of files into jmsql's."""
        with _file_errors(f"{doing} in the archive {self.url}"):
            yield


@contextmanager
def _file_errors(doing: str) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowException) as error:
        raise JMSException(f"Failed while {doing}: {str(error).strip().splitlines()[0]}") from error


_sql = SqlFile("archive", "jmsql.spark")
_DOING = "making sure that no other run writes to the archive"
_begin = _sql.statement("begin", _DOING, nothing)
_lock = _sql.statement("lock", _DOING, value(bool))
_check = _sql.statement("check", _DOING, nothing)


class ArchiveLock:
    """An advisory lock of a transaction, which also a pooler in transaction mode leaves on its connection.

    The transaction reads nothing meanwhile, so that it holds up neither vacuum nor those who follow the history.
    """

    def __init__(self, runner: Runner, target: str) -> None:
        self._runner = runner
        self._name = f"jmsql archive {target}"

    def acquire(self) -> bool:
        """Take the lock until the transaction ends, and tell whether it was free."""
        self._runner.run(_begin.bind())
        self._runner.run(allow_idleness)
        return self._runner.run(_lock.bind(name=self._name))

    def check(self) -> None:
        """Make sure that the transaction still lives, and with it the lock.

        Raises:
            JMSException: It does not: another run may have the lock.
        """
        self._runner.run(_check.bind())
