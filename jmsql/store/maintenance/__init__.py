"""Maintenance: work that one client does for all."""
