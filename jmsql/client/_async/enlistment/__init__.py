"""Messages in the caller's own transaction."""
