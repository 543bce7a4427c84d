"""Runners of statements."""
