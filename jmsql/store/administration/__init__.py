"""What administrators ask and do: destinations' contents, dead letters, indexes, diagnosis."""
