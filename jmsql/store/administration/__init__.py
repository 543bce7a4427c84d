"""Administration: the contents of destinations, dead letters, indexes, diagnosis."""
