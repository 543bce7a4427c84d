"""What happens when connections, clients and servers fail."""
