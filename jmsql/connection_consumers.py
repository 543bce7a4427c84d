"""Concurrent processing of a destination's messages in an application server's sessions (JMS 1.1, chapter 8.2)."""

from jmsql.client._sync.connection.connection_consumer import ConnectionConsumer, ServerSession, ServerSessionPool
from jmsql.client._sync.connection.server_session_pool import ThreadServerSessionPool

__all__ = ["ConnectionConsumer", "ServerSession", "ServerSessionPool", "ThreadServerSessionPool"]
