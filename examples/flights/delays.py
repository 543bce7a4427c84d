"""When flights are late: computed by Spark of the archived messages, and plotted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_BODY = "flight_id bigint, scheduled_departure string, departure_delay int"
_TIME_ZONE = "America/New_York"


class Delay(NamedTuple):
    """How late flights leave an airport that are to leave in an hour of the day, New York's."""

    origin: str
    hour: int
    flights: int
    cancelled: int
    mean_delay: float | None
    """In minutes."""


def compute_delays(spark: SparkSession, target: Path) -> tuple[Delay, ...]:
    """Compute the mean delay by airport and hour of the day, of the bodies of the archived messages."""
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    body = F.from_json("json_body", _BODY)
    scheduled = F.from_utc_timestamp(F.to_timestamp(F.col("body.scheduled_departure")), _TIME_ZONE)
    rows = (
        spark.read.parquet(str(target))
        .select(body.alias("body"), F.get_json_object("properties", "$.origin").alias("origin"))
        .groupBy("origin", F.hour(scheduled).alias("hour"))
        .agg(
            F.count("*").alias("flights"),
            F.count_if(F.col("body.departure_delay").isNull()).alias("cancelled"),
            F.avg("body.departure_delay").alias("mean_delay"),
        )
        .orderBy("origin", "hour")
        .collect()
    )
    return tuple(Delay(*row) for row in rows)


_COLORS = ("#4477aa", "#ee6677", "#228833")  # most people can tell them apart
_MARKERS = ("o", "s", "^")
_LINES = ("-", "--", ":")


def plot_delays(delays: Sequence[Delay], output: Path) -> tuple[Path, ...]:
    """Plot the delays to ``delays.png`` and ``delays.svg`` in a directory, and return the files."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MultipleLocator

    figure = Figure(figsize=(9, 4.6), layout="constrained")
    axes = figure.subplots()
    origins = sorted({delay.origin for delay in delays})
    for number, origin in enumerate(origins):
        shown = [delay for delay in delays if delay.origin == origin and delay.mean_delay is not None]
        axes.plot(
            [delay.hour for delay in shown],
            [delay.mean_delay or 0.0 for delay in shown],
            _LINES[number % len(_LINES)],
            marker=_MARKERS[number % len(_MARKERS)],
            color=_COLORS[number % len(_COLORS)],
            label=f"{origin} ({sum(delay.flights for delay in delays if delay.origin == origin):,} flights)",
        )
    axes.set_title("Mean delay of departure by hour and airport", loc="left")
    axes.set_xlabel("hour of the scheduled departure (New York)")
    axes.set_ylabel("mean delay of departure (minutes)")
    axes.xaxis.set_major_locator(MultipleLocator(2))
    axes.grid(visible=True, color="#d8dee4", linewidth=0.7)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    output.mkdir(parents=True, exist_ok=True)
    files = (output / "delays.png", output / "delays.svg")
    for file in files:
        figure.savefig(file, dpi=144)
    return files
