"""Sessions: their transactions, producers and consumers, and the calls of their listeners."""
