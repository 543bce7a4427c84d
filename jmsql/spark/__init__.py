"""Spark: messages as a data source for batch and streaming reads and writes."""
