"""The package in a ZIP archive, as Spark brings it along with ``--py-files``."""

from __future__ import annotations

import zipfile
from pathlib import Path

import jmsql

_PACKAGES = {"jmsql": "jmsql", "migrations": "jmsql/migrations", "pyspark_jmsql": "pyspark_jmsql"}


def write_archive(archive: Path) -> None:
    """Write what the wheel has into an archive."""
    root = Path(jmsql.__file__).parents[1]
    with zipfile.ZipFile(archive, "w") as target:
        for package, place in _PACKAGES.items():
            for path in (root / package).rglob("*"):
                if path.is_file() and path.suffix != ".pyc":
                    target.write(path, Path(place, path.relative_to(root / package)))
