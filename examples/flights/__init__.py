"""A backend, workers and two accidents, on real data, with the proof that no message was lost. See docs/demo.md."""
