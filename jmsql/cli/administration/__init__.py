"""Commands for the schema, its roles, and the objects that are bound to names."""
