"""Running statements on connections, and what is remembered of a connection."""
