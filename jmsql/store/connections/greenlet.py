"""The package greenlet, without which SQLAlchemy has no asyncio."""

from __future__ import annotations

from importlib.util import find_spec

from jmsql.exceptions import JMSException


def require_greenlet() -> None:
    """Refuse to go on without greenlet. SQLAlchemy says it late, and at length.

    Raises:
        JMSException: It is not installed.
    """
    if find_spec("greenlet") is None:
        raise JMSException(
            "jmsql.asyncio and coroutine functions as handlers need greenlet, for SQLAlchemy: "
            "pip install 'jmsql[asyncio]'."
        )
