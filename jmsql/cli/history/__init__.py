"""Commands for messages that have left their destinations: looked at, archived and counted."""
