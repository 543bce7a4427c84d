"""What `manage.py` can do with jmsql."""
