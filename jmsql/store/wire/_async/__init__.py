"""Connections that speak in exchanges, and what runs statements on them."""
