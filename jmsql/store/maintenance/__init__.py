"""Maintenance: what one client does for all."""
