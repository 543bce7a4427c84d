"""What the sessions of a connection share with it."""
