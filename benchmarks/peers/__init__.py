"""The peers: what a Python team would take instead of jmsql."""
