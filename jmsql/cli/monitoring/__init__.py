"""Commands that watch a store: in a terminal, and by Prometheus."""
