"""A target's record of its archive: the archive's source, its end, and the change in progress.

All changes of an archive's files are made by `Manifest.commit`. The new files are written under hidden names first.
Then the manifest, which is replaced as a whole, records their places, the files that they replace, and the archive's
new end: from then on they are part of it. A run that finds a change that was not carried out carries it out. No file is
visible beside those that it replaces.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from typing import Any, NamedTuple
from urllib.parse import unquote

from jmsql import IllegalStateException
from jmsql.spark.archiving.target import Target

MANIFEST = "_archive.json"
NEW = "_new"
"""The directory of files that are not part of the archive yet."""

_LAYOUT = 2
_LISTINGS = 10
"""The most listings of the files until one fits the manifest."""

_PLACE = re.compile(r"destination=(?P<destination>[^/]+)/day=(?P<day>[^/]+)/batch=(?P<batch>\d+)/[^/]+\.parquet")


@dataclass
class Progress:
    """How far an archive goes in the history of a destination.

    Args:
        source: The number under which the database knows its reader.
        destination: Whose history; None: all of them.
        transaction: With the sequence, the first place that was not archived.
        sequence: The place within the transaction.
    """

    source: str
    destination: str | None
    transaction: int = 0
    sequence: int = 0


@dataclass
class Change:
    """A change of the files of an archive.

    Args:
        remove: Files that are no longer part of it.
        move: Files that become part of it: where they are, and where they belong.
    """

    remove: list[str] = field(default_factory=list)
    move: list[list[str]] = field(default_factory=list)


@dataclass(frozen=True)
class NewFile:
    """A file that is complete, and not part of the archive yet.

    Args:
        name: Where it is in the target.
        directory: The directory to which it belongs: ``destination=…``, with ``/day=…`` if it is of the history.
        messages: How many messages are in it.
    """

    name: str
    directory: str
    messages: int


class ArchivedFile(NamedTuple):
    """A file that is part of an archive. Its messages are of one destination and day, which are no columns of it."""

    destination: str
    """The destination of its messages, as a URI."""
    day: date
    """The day, in UTC, on which they left it."""
    batch: int
    """The number of the change that has added it."""
    place: str
    """Where it belongs, within the target."""
    name: str
    """Where it is, within the target: at its place, or still under a hidden name."""
    size: int
    """Its bytes."""

    @property
    def directory(self) -> str:
        """The directory of its destination and day."""
        return self.place.partition("/batch=")[0]


class Manifest:
    """The file `MANIFEST` of a target; its destinations are URIs, or None for all."""

    def __init__(self, target: Target, schema: str, destinations: list[str] | None, properties: str) -> None:
        self._target = target
        self._wanted: dict[str, Any] = {
            "layout": _LAYOUT,
            "schema": schema,
            "destinations": destinations,
            "properties": properties,
        }
        self.progress: list[Progress] = []
        """How far it goes; empty if there is no archive yet."""
        self.batch = 0
        """The number of the last batch."""
        self.change = Change()
        """The change that was decided last, and perhaps not carried out."""

    def read(self) -> None:
        """Read the target: it has this archive, or nothing.

        Raises:
            IllegalStateException: It has something else.
        """
        url = self._target.url
        found = self._target.read(MANIFEST)
        if found is None:
            if any(not name.startswith(("_", ".")) for name in self._target.names()):
                raise IllegalStateException(f"{url} holds something else: name a directory that is empty or not there.")
            return
        there = _parse(found, url)
        for name, value in self._wanted.items():
            if there.get(name) != value:
                raise IllegalStateException(
                    f"{url} is an archive with {name} {_shown(there.get(name))}, not {_shown(value)}. An archive stays "
                    "what it is: name another target."
                )
        self.progress = [Progress(**progress) for progress in there["progress"]]
        self.batch = there["batch"]
        self.change = Change(**there["change"])

    def record_next(self, progress: Iterable[Progress]) -> None:
        """Record the target's next contents."""
        self.progress = list(progress)
        self._write()

    def commit(self, files: Sequence[NewFile], remove: Iterable[str] = ()) -> None:
        """Make files, in the order of their messages, part of the archive in the place of others; note the progress."""
        self._target.make_durable(file.name for file in files)
        self.batch += 1
        move = [
            [file.name, f"{file.directory}/batch={self.batch}/part-{number:05}.parquet"]
            for number, file in enumerate(files)
        ]
        self.change = Change(list(remove), move)
        self._write()
        self.finish()

    def finish(self) -> None:
        """Carry out the rest of the last decision."""
        for name in self.change.remove:
            self._target.delete(name)
        for name, place in self.change.move:
            if self._target.exists(name):
                self._target.move(name, place)
            elif not self._target.exists(place):
                raise IllegalStateException(f"The archive in {self._target.url} has lost a file: {place}.")

    def close(self) -> None:
        """Record that all is carried out, and remove unused files."""
        if self.change != Change():
            self.change = Change()
            self._write()
        for name, _ in self._target.files(NEW):
            self._target.delete(name)

    def files(self) -> list[ArchivedFile]:
        """Return the files of the archive, in the order of their batches."""
        return _files(self._target, self.change)[0]

    def _write(self) -> None:
        document = {
            **self._wanted,
            "batch": self.batch,
            "progress": [asdict(progress) for progress in self.progress],
            "change": asdict(self.change),
        }
        self._target.write(MANIFEST, json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def archived_files(location: str | os.PathLike[str]) -> tuple[ArchivedFile, ...]:
    """Return the files of which an archive consists at one moment, each message once, also while a run writes to it.

    A run may move or merge files later. So a reader asks again when a file is gone.

    Args:
        location: The directory of the archive: a local path, or a URL such as ``s3://bucket/archive``.

    Returns:
        The files, in the order of their destinations, days and batches.

    Raises:
        IllegalStateException: There is no archive, or one of another version, or it has lost a file.
        JMSException: The file system has failed.
    """
    target = Target(location)
    content = target.read(MANIFEST)
    for _ in range(_LISTINGS):
        document = {} if content is None else _parse(content, target.url)
        if document.get("layout") != _LAYOUT:
            raise IllegalStateException(f"{target.url} is not an archive that this version of jmsql reads.")
        files, complete = _files(target, Change(**document["change"]))
        before, content = content, target.read(MANIFEST)
        if complete and content == before:
            return tuple(files)
    raise IllegalStateException(f"The archive in {target.url} has lost a file, or changes faster than it is listed.")


def _parse(content: bytes, url: str) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise IllegalStateException(
            f"{MANIFEST} in {url} is damaged: it is not a JSON object. Name another target for what follows."
        )
    return found


def _files(target: Target, change: Change) -> tuple[list[ArchivedFile], bool]:
    """Return the files after a change that may be half carried out, and whether those that it adds are all there."""
    sizes = dict(target.files())
    places = {name: name for name in sizes} | {place: name for name, place in change.move if name in sizes}
    found = [
        ArchivedFile(
            unquote(at["destination"]), date.fromisoformat(at["day"]), int(at["batch"]), place, name, sizes[name]
        )
        for place, name in places.items()
        if place not in change.remove and (at := _PLACE.fullmatch(place))
    ]
    return sorted(found), all(place in places for _, place in change.move)


def _shown(value: Any) -> str:
    match value:
        case None:
            return "all"
        case list():
            return ", ".join(map(str, value))
        case _:
            return str(value)
