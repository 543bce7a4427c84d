"""The older interfaces, for queues alone and for topics alone."""
