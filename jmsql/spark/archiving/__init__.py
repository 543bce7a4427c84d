"""The archive: the history of messages as Parquet files, partitioned by destination and day."""
