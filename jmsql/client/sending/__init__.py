"""One call that sends a message, wherever the caller is."""
