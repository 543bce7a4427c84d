"""The password in the database's URL, which every other test of this directory uses, is nowhere to be seen."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession

import jmsql
from tests.spark.conftest import SECRET
from tests.spark.streaming import run_now, stream


def traces(directory: Path) -> str:
    """Everything that is written there."""
    return "\n".join(path.read_text(errors="replace") for path in directory.rglob("*") if path.is_file())


def test_password_is_in_no_plan_event_checkpoint_or_error(
    spark: SparkSession,
    context: jmsql.JMSContext,
    spark_directory: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    context.create_producer().send(context.create_queue("orders"), "0001")
    context.commit()
    read = spark.read.format("jmsql").options(queue="orders", columns="text_body").load()
    read.explain(extended=True)
    read.write.format("jmsql").option("queue", "copies").mode("append").save()
    run_now(stream(spark, columns="text_body"), tmp_path)

    shown = []
    for failing in (
        lambda: spark.read.format("jmsql").option("queue", "nowhere").load().collect(),
        lambda: read.selectExpr("text_body", "'x' as reply_to").write.format("jmsql").option("queue", "c").save(),
    ):
        with pytest.raises(PySparkException) as raised:
            failing()
        shown.append(str(raised.value))
    with pytest.raises(StreamingQueryException) as broken:
        run_now(stream(spark, queue="nowhere"), tmp_path, "broken")
    shown.append(str(broken.value))

    written = traces(spark_directory / "events")
    assert "jmsql" in written
    found = {
        "events": written,
        "checkpoints": traces(tmp_path),
        "errors": "\n".join(shown),
        "output": "".join(capfd.readouterr()),
    }
    assert {name: text.count(SECRET) for name, text in found.items()} == dict.fromkeys(found, 0)
