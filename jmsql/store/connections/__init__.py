"""How a URL becomes connections to PostgreSQL."""
