"""The state of one consumer: the messages that it holds, and where and when it fetches the next ones."""
