"""State that a connection shares with its sessions."""
