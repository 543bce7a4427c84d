"""Receiving: candidates, claims, acknowledgement and redelivery."""
