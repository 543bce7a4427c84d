"""Commands for the messages of queues and subscriptions: sent, received, browsed, moved, deleted and sent again."""
