"""Doing something in the database that may be done twice, though its connection breaks."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

import psycopg

from jmsql.store.errors import is_connection_lost, jms_errors

__all__ = ["do_with_reconnection"]

logger = logging.getLogger("jmsql")

Result = TypeVar("Result")


def do_with_reconnection(doing: str, action: Callable[[], Result], close: Callable[[], None]) -> Result:
    """Do something that may be done twice; if the connection breaks, once more with a new one.

    Args:
        doing: What, for messages.
        action: Does it, and connects if there is no connection.
        close: Gives up the connection.
    """
    with jms_errors(doing):
        try:
            return action()
        except psycopg.Error as error:
            if not is_connection_lost(error):
                raise
            logger.warning("The stream's connection was lost while %s: %s", doing, error)
            close()
        return action()
