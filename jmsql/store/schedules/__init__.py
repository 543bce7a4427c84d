"""Schedules: their definitions, and the ticks that are due."""
