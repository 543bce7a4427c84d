"""Connections, sessions, producers and consumers: the objects of JMS's API."""
