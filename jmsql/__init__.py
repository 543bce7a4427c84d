"""JMS messaging inside the PostgreSQL database that an application already has."""

from jmsql.client.acknowledge_mode import AcknowledgeMode
from jmsql.client.browser import QueueBrowser
from jmsql.client.connection import Connection, ExceptionListener
from jmsql.client.consumer import MessageConsumer, MessageListener
from jmsql.client.factory import ConnectionFactory
from jmsql.client.metadata import ConnectionMetaData
from jmsql.client.producer import MessageProducer
from jmsql.client.session import Session
from jmsql.destinations import Destination, Queue, Topic
from jmsql.store.migration import migrate
