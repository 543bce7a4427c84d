"""Interfaces to an application's transaction, with the same names for asyncio and threads.

The client's source is written for `tasks`; what is generated from it for threads imports the same names from `threads`.
"""
