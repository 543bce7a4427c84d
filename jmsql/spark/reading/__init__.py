"""Reading messages in batches: what waits in a queue, or what has left a destination. It consumes nothing."""
