"""Batches: a set of messages, and a message that is sent when all of them have ended."""
