"""Schedules, with a server."""
