"""Running side by side and waiting, with the same names for threads and for asyncio's tasks.

The client's source is written for `tasks`; what is generated from it for threads imports the same names from `threads`.
"""

from typing import Final

__all__ = ["ASYNC"]

ASYNC: Final = True
"""Chooses, in the client's source, what differs: `make generate` keeps the other branch for threads."""
