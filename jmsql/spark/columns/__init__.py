"""The columns of messages in Spark, and values in them."""
