"""The connections of a client, and how its statements run on them."""
