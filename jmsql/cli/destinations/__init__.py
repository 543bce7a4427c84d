"""Commands for queues, topics, their subscriptions and their clients."""
