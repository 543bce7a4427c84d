"""A program for Celery, translated."""
