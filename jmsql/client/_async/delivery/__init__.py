"""How messages come to a session and leave the store: one strategy for each way to acknowledge."""
