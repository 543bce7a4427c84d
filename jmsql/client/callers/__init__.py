"""Interfaces to an application's transaction, with the same names for asyncio and threads.

The client's source imports the names of `tasks`. The code that is generated from it for threads imports the same
names from `threads`.
"""
