"""The protocol between a client and PostgreSQL: statements on connections, one exchange at a time."""
