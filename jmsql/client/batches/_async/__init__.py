"""Results under asyncio; those for threads are generated from this."""
