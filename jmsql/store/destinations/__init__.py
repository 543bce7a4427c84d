"""Queues, topics and subscriptions: found by name, made, changed and deleted."""
