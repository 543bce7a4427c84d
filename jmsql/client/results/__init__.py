"""The results of messages, and their states, wherever the caller is."""
