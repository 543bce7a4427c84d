"""Opening connections."""
