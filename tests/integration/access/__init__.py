"""Roles that try what they were not given."""
