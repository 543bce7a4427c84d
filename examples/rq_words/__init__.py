"""A script for RQ, translated."""
