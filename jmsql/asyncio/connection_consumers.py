"""The interface for application servers, awaited (JMS 1.1, chapter 8.2)."""

from jmsql.client._async.connection.connection_consumer import ConnectionConsumer, ServerSession, ServerSessionPool
from jmsql.client._async.connection.server_session_pool import TaskServerSessionPool

__all__ = ["ConnectionConsumer", "ServerSession", "ServerSessionPool", "TaskServerSessionPool"]
