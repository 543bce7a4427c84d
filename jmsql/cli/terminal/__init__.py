"""The terminal: output, tables, keys and interruption."""
