"""What a target says of the archive in it, so that nothing else is ever written there."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import SparkSession

from jmsql.exceptions import IllegalStateException
from jmsql.spark.archiving.settings import ArchiveSettings
from jmsql.spark.archiving.target import Target

__all__ = ["MANIFEST", "Manifest"]

MANIFEST = "_archive.json"
_LAYOUT = 1


class Manifest:
    """The file `MANIFEST` of a target.

    Args:
        spark: The session.
        target: The target.
        settings: What is to be archived.
        checkpoint: Where the progress of the archive is kept; None: within the target.
    """

    def __init__(
        self, spark: SparkSession, target: Target, settings: ArchiveSettings, checkpoint: str | None = None
    ) -> None:
        self._target = target
        place = Target(spark, target / "_checkpoint" if checkpoint is None else checkpoint)
        self._wanted: dict[str, Any] = {
            "layout": _LAYOUT,
            "format": str(settings.format),
            "schema": settings.schema,
            "destinations": settings.uris,
            "checkpoint": place.url,
        }
        self._has_begun = place.exists("offsets")
        self.checkpoint = place.url
        """Where the progress of the archive is kept."""

    def check(self) -> None:
        """Make sure that the target has this archive, or nothing.

        A batch has a number, and takes the place of what has the same number. So numbers must not start again beside
        batches that are there.

        Raises:
            IllegalStateException: It has something else, or a part of it is gone.
        """
        url = self._target.url
        found = self._target.read(MANIFEST)
        has_batches = any(not name.startswith(("_", ".")) for name in self._target.names())
        if found is None:
            if has_batches:
                raise IllegalStateException(f"{url} holds something else: name a directory that is empty or not there.")
            if self._has_begun:
                raise IllegalStateException(
                    f"The checkpoint {self.checkpoint} belongs to an archive that is not in {url}: name another."
                )
            return
        there = json.loads(found)
        for name, value in self._wanted.items():
            if there.get(name) != value:
                raise IllegalStateException(
                    f"{url} is an archive with {name} {_shown(there.get(name))}, not {_shown(value)}. An archive stays "
                    "what it is: name another target."
                )
        if has_batches and not self._has_begun:
            raise IllegalStateException(
                f"The checkpoint {self.checkpoint} is gone, which says how far the archive in {url} goes. Bring it "
                "back, or name another target for what follows."
            )

    def write(self) -> None:
        """Say what the target has, if it does not yet."""
        if not self._target.exists(MANIFEST):
            self._target.write(MANIFEST, json.dumps(self._wanted, indent=2, ensure_ascii=False) + "\n")


def _shown(value: Any) -> str:
    match value:
        case None:
            return "all"
        case list():
            return ", ".join(map(str, value))
        case _:
            return str(value)
