"""Global transactions, by two-phase commit."""
