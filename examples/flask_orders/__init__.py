"""A web backend that announces its orders on a topic, and a worker with two subscriptions. See README.md."""
