"""What pytest does for all tests: their order, their processes, their skips and their budget."""
