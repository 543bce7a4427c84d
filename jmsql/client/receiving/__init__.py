"""What receiving is about, for threads and for asyncio: buffers, listeners, waiting."""
