"""Writing rows as messages, exactly once."""
