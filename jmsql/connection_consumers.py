"""Concurrent processing of a destination's messages in an application server's sessions (JMS 1.1, chapter 8.2)."""

from jmsql.client._sync.connection.connection_consumer import ConnectionConsumer
from jmsql.client._sync.connection.server_session_pool import ThreadServerSessionPool
from jmsql.client._sync.connection.server_sessions import ServerSession, ServerSessionPool

__all__ = ["ConnectionConsumer", "ServerSession", "ServerSessionPool", "ThreadServerSessionPool"]
