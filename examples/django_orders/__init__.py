"""A Django project that takes orders, and a worker that ships them with Django's models. See README.md."""
