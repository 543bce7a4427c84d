"""Connections that speak in exchanges, and the runners of statements on them."""
