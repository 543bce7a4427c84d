"""Administration: destinations, messages, access, administered objects and history."""
