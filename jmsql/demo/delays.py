"""When flights are late: computed by Spark of the archived messages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Delay", "compute_delays"]

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
    """Compute the mean delay by airport and hour of the day, of the bodies of the archived messages.

    Args:
        spark: The session.
        target: The archive.
    """
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
