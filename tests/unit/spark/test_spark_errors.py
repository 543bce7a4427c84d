"""What Spark reports becomes one sentence."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from jmsql.exceptions import JMSException
from jmsql.spark.session import spark_errors


@pytest.mark.parametrize(
    ("reported", "said"),
    [
        (
            (
                "java.lang.RuntimeException: java.lang.ClassNotFoundException: "
                "Class org.apache.hadoop.fs.s3a.S3AFileSystem not found\n\tat org.apache.hadoop.conf.Configuration"
            ),
            (
                "Spark failed while looking: the session has no file system for s3a://. Bring its jars along: "
                "spark.jars.packages=org.apache.hadoop:hadoop-aws:VERSION, for the Hadoop of this Spark."
            ),
        ),
        (
            'org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "gs"\n\tat org.apache',
            (
                "Spark failed while looking: the session has no file system for gs://. Bring its jars along: "
                "spark.jars.packages=GROUP:ARTIFACT:VERSION, for the Hadoop of this Spark."
            ),
        ),
        (
            (
                "[STREAM_FAILED] Query terminated with exception: Traceback\n"
                "jmsql.JMSException: A message is gone.\n\tat java.lang"
            ),
            "Spark failed while looking: A message is gone.",
        ),
        (
            "[PATH_NOT_FOUND] Path does not exist.\n\tat java.lang",
            "Spark failed while looking: [PATH_NOT_FOUND] Path does not exist.",
        ),
    ],
)
def test_it_is_the_essence(reported: str, said: str) -> None:
    with pytest.raises(JMSException) as raised, spark_errors("looking"):
        raise PySparkException(reported)
    assert str(raised.value) == said
    assert isinstance(raised.value.__cause__, PySparkException)
