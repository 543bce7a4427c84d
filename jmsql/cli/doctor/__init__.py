"""`jmsql doctor`: what is well with a database, and what is not."""
