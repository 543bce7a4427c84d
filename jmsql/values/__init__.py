"""Values that all layers know: destinations, policies, durations and names."""
