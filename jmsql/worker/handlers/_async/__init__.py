"""Handlers under asyncio; those in threads are generated from this."""
