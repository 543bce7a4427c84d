"""Messages as rows: their columns, formats and keys, and conditions on them."""
