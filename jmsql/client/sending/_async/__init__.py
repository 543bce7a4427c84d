"""The send under asyncio; that for threads is generated from this."""
