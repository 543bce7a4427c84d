"""The command `jmsql demo`: a backend, workers and an accident, on real data, with the proof that nothing was lost."""
