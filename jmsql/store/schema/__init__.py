"""The schema: its version, and how it is brought to another."""
