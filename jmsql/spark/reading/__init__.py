"""Reading messages in batches: a queue's waiting messages, or a destination's history. It consumes nothing."""
