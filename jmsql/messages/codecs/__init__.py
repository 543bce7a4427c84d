"""Objects in messages, and the codecs of their classes."""
