"""What sending is about, for threads and for asyncio: buffers and completion."""
