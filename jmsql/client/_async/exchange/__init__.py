"""Producers, consumers and browsers, as an application has them."""
