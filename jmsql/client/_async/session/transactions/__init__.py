"""The ways in which sessions send, receive, acknowledge and end transactions: one class for each."""
