"""Commands for what has left its destination: looked at, archived and counted."""
