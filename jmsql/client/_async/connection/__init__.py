"""Connections, the factories that make them, contexts, and what application servers need."""
