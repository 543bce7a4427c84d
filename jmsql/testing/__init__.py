"""What tests of messaging code need: a real PostgreSQL, draining, and waiting without sleeping."""
