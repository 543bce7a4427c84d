"""The command `jmsql demo`: it runs the application in `jmsql.demo`, and shows its progress and its outcome."""
