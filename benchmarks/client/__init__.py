"""What a client does, message by message and in batches, beside the floor."""
