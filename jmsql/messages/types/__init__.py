"""The types of JMS's values: conversions between them, and their formats."""
