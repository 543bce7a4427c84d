"""The worker of docker-compose.yml: what is sent to the queue `orders` is written to its log."""

from __future__ import annotations

import logging

from jmsql.worker import Application

app = Application()


@app.listener("orders")
def handle(body: str | None) -> None:
    """Handle an order: `jmsql send orders hello`. An empty one fails, and becomes a dead letter in the end."""
    if not body:
        raise ValueError("An order has at least one character.")
    logging.getLogger("orders").info("handled %s", body)
