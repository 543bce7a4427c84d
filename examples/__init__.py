"""Programs that show jmsql at work; each is run by a test."""
