"""The connection that each client keeps beside its sessions, and what is known through it."""
