"""A Django project that takes orders, and ships them in a worker with Django's models. See README.md."""
