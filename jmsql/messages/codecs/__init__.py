"""Objects in messages, and how those of each class travel."""
