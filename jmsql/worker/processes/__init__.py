"""The processes of a worker: the supervisor, and those that it starts."""
