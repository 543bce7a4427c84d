"""What a user does who brings jmsql along: writes to the queue `orders`, streams it to `copies`, and reads that.

Its argument is the directory for the checkpoint. It runs by its path, where no test can be imported.
"""

import sys

import pyspark.sql
from pyspark.errors import StreamingQueryException

spark = pyspark.sql.SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
import jmsql.spark  # noqa: E402 - the session has put it on the path

jmsql.spark.register(spark)
rows = spark.createDataFrame([("one",), ("two",)], "text_body string")
rows.write.format("jmsql").option("queue", "orders").mode("append").save()
stream = spark.readStream.format("jmsql").options(queue="orders", columns="text_body").load().writeStream
copying = stream.format("jmsql").options(queue="copies", checkpointLocation=sys.argv[1]).trigger(availableNow=True)
while True:
    try:
        copying.start().awaitTermination()
        break
    except StreamingQueryException as error:
        # Spark gives a stream's Python ten seconds to start, which no setting changes: too few on a busy machine.
        if "failed to connect back" not in str(error):
            raise
read = spark.read.format("jmsql").options(queue="copies", columns="text_body", partitions="2").load()
sys.stdout.write(" ".join([jmsql.__file__, *sorted(row.text_body for row in read.collect())]))
spark.stop()
