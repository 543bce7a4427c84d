"""When flights are late: computed by Spark of the archived messages, and plotted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import MultipleLocator
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

from jmsql.cli.demo.pipeline import Delay
from jmsql.spark.statistics.plots import COLORS, Plot, render

__all__ = ["compute_delays", "plot_delays"]

_BODY = "flight_id bigint, scheduled_departure string, departure_delay int"
_TIME_ZONE = "America/New_York"
_MARKERS = ("o", "s", "^")
_LINES = ("-", "--", ":")


def compute_delays(spark: SparkSession, target: Path) -> tuple[Delay, ...]:
    """Compute the mean delay by airport and hour of the day, of the bodies of the archived messages.

    Args:
        spark: The session.
        target: The archive.
    """
    body = F.from_json("json_body", _BODY)
    scheduled = F.from_utc_timestamp(F.to_timestamp(F.col("body.scheduled_departure")), _TIME_ZONE)
    rows = (
        spark.read.parquet(str(target))
        .select(body.alias("body"), F.col("properties")["origin"]["string"].alias("origin"))
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


def plot_delays(delays: Sequence[Delay], output: Path) -> tuple[Path, ...]:
    """Plot the delays to ``delays.png`` and ``delays.svg`` in a directory, and return the files."""
    title = "Mean delay of departure by hour and airport"

    def draw() -> Figure:
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
                color=COLORS[number % len(COLORS)],
                label=f"{origin} ({sum(delay.flights for delay in delays if delay.origin == origin):,} flights)",
            )
        axes.set_title(title)
        axes.set_xlabel("hour of the scheduled departure (New York)")
        axes.set_ylabel("mean delay of departure (minutes)")
        axes.xaxis.set_major_locator(MultipleLocator(2))
        axes.legend()
        return figure

    images = render(Plot("delays", title, title, draw), "light", "png", "svg")
    output.mkdir(parents=True, exist_ok=True)
    files = (output / "delays.png", output / "delays.svg")
    for file, image in zip(files, images, strict=True):
        file.write_bytes(image)
    return files
