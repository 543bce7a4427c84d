"""How sessions send, receive, acknowledge and end what they have begun: one class for each way."""
