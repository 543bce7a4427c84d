"""A web backend that takes orders, and ships them in the same process. See README.md."""
