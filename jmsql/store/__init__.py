"""The store: every SQL statement, the schema, notifications and maintenance."""
