"""The history: messages that have left their destinations."""
