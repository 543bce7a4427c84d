"""Sending: insertion, and notification of waiting consumers."""
