"""The store: every SQL statement, the schema, wake-ups and upkeep."""
