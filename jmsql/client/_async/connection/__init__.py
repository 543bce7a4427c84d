"""Connections, their factories, contexts, and the interface for application servers."""
