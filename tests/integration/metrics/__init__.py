"""Tests of metrics, against a real store."""
