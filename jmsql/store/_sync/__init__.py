"""Runners of statements for threads, and the connections that they run them on."""
