"""An archive to be killed: stops, and says so, when a batch is durable and not noted. Its argument is the target."""

from __future__ import annotations

import sys
import threading

from jmsql.spark import archive
from jmsql.spark.session import spark_session


def hold(doing: str, messages: int) -> None:
    """Wait for the end, once there is a batch."""
    if messages:
        sys.stdout.write("durable\n")
        sys.stdout.flush()
        threading.Event().wait()


if __name__ == "__main__":
    settings = {"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"}
    with spark_session("archive to be killed", settings=settings) as spark:
        archive(spark, sys.argv[1], max_messages_per_batch=20, progress=hold)
