"""Sessions: their transactions, what they send and receive, and the calls of their listeners."""
