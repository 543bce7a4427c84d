"""The pytest plugin of jmsql."""
