"""The control connection that each client keeps beside its sessions, and its duties."""
