"""A web backend that takes orders, and a worker that ships them. See README.md."""
