"""Many messages, many consumers, and a long time."""
