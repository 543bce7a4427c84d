"""Workers: jmsql's beside its peers', each with the same handler, which inserts one row."""
