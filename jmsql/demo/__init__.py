"""The demonstration: a backend, workers and two accidents, on real data, with the proof that no message was lost.

An application of jmsql's public names alone, as any other is: `jmsql`, `jmsql.spark`, and the views of the schema.
"""
