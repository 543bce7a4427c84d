"""Sending: insertion, and notification of those who wait."""
