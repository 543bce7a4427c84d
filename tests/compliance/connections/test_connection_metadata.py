"""The facts that a connection tells about its provider: JMS 1.1 chapters 3.5.9 and 4.3.7, and Jakarta Messaging 3.1."""

from __future__ import annotations

import importlib.metadata
import inspect

import pytest

import jmsql
from jmsql import Connection, JMSProducer, Message, MessageFormatException, Queue, Session

JMSX_PROPERTIES = (
    *("JMSXUserID", "JMSXAppID", "JMSXDeliveryCount", "JMSXGroupID", "JMSXGroupSeq", "JMSXProducerTXID"),
    *("JMSXConsumerTXID", "JMSXRcvTimestamp", "JMSXState"),
)
"""All that JMS defines; only the groups' and the delivery count are not optional."""


@pytest.mark.requirement("connection.metadata.properties")
@pytest.mark.case("connection-metadata-01")
def test_group_properties_and_delivery_count_are_listed(connection: Connection) -> None:
    assert {"JMSXGroupID", "JMSXGroupSeq", "JMSXDeliveryCount"} <= set(connection.metadata.jmsx_property_names)


@pytest.mark.requirement("connection.metadata.properties")
def test_messages_have_exactly_the_listed_properties(connection: Connection, session: Session, queue: Queue) -> None:
    """What a client sets can be set if it is listed, and what the provider sets is there in a received message."""
    message = Message()
    message.set_string_property("JMSXGroupID", "group")
    message.set_int_property("JMSXGroupSeq", 1)
    session.create_producer(queue).send(message)
    received = session.create_consumer(queue).receive(timeout=60)
    assert received is not None
    assert sorted(received.property_names) == sorted(connection.metadata.jmsx_property_names)
    for name in set(JMSX_PROPERTIES) - set(connection.metadata.jmsx_property_names):
        assert received.get_object_property(name) is None
        with pytest.raises(MessageFormatException, match="provider's to set"):
            message.set_string_property(name, "value")


@pytest.mark.requirement("connection.metadata.properties")
@pytest.mark.case("connection-metadata-01")
def test_versions_agree_with_their_numbers(connection: Connection) -> None:
    metadata = connection.metadata
    assert metadata.jms_version == f"{metadata.jms_major_version}.{metadata.jms_minor_version}" == "3.1"
    assert metadata.provider_version == importlib.metadata.version("jmsql")
    assert metadata.provider_version.startswith(f"{metadata.provider_major_version}.{metadata.provider_minor_version}")
    assert metadata.jms_provider_name == "jmsql"


# The methods of each interface, by the names that they have here: getters and setters are attributes.

TYPES = ("boolean", "byte", "short", "int", "long", "float", "double", "string", "object")

INTERFACES = {
    "BytesMessage": "body_length read_boolean read_byte read_unsigned_byte read_short read_unsigned_short read_char"
    " read_int read_long read_float read_double read_utf read_bytes write_boolean write_byte write_short write_char"
    " write_int write_long write_float write_double write_utf write_bytes write_object reset",
    "Connection": "create_session client_id metadata exception_listener start stop close create_connection_consumer"
    " create_shared_connection_consumer create_durable_connection_consumer create_shared_durable_connection_consumer",
    "ConnectionConsumer": "server_session_pool close",
    "ConnectionFactory": "create_connection create_context",
    "ConnectionMetaData": "jms_version jms_major_version jms_minor_version jms_provider_name provider_version"
    " provider_major_version provider_minor_version jmsx_property_names",
    "DeliveryMode": "NON_PERSISTENT PERSISTENT",
    "JMSConsumer": "message_selector message_listener receive receive_no_wait close receive_body receive_body_no_wait",
    "JMSContext": "create_context create_producer client_id metadata exception_listener start stop auto_start close"
    " create_bytes_message create_map_message create_message create_object_message create_stream_message"
    " create_text_message transacted session_mode commit rollback recover create_consumer create_queue create_topic"
    " create_durable_consumer create_shared_durable_consumer create_shared_consumer create_browser"
    " create_temporary_queue create_temporary_topic unsubscribe acknowledge",
    "JMSException": "error_code linked_exception",
    "JMSProducer": "send disable_message_id disable_message_timestamp delivery_mode priority time_to_live"
    " delivery_delay completion_listener set_disable_message_id set_disable_message_timestamp set_delivery_mode"
    " set_priority set_time_to_live set_delivery_delay set_async set_property clear_properties property_exists"
    " property_names jms_correlation_id_as_bytes jms_correlation_id jms_type jms_reply_to"
    " set_jms_correlation_id_as_bytes set_jms_correlation_id set_jms_type set_jms_reply_to "
    + " ".join(f"get_{kind}_property" for kind in TYPES),
    "MapMessage": "map_names item_exists " + " ".join(f"get_{kind} set_{kind}" for kind in (*TYPES, "char", "bytes")),
    "Message": "jms_message_id jms_timestamp jms_correlation_id_as_bytes jms_correlation_id jms_reply_to"
    " jms_destination jms_delivery_mode jms_redelivered jms_type jms_expiration jms_delivery_time jms_priority"
    " clear_properties property_exists property_names acknowledge clear_body get_body is_body_assignable_to "
    + " ".join(f"get_{kind}_property set_{kind}_property" for kind in TYPES),
    "MessageConsumer": "message_selector message_listener receive receive_no_wait close",
    "MessageProducer": "disable_message_id disable_message_timestamp delivery_mode priority time_to_live"
    " delivery_delay destination close send",
    "ObjectMessage": "object",
    "Queue": "queue_name __str__",
    "QueueBrowser": "queue message_selector enumeration close",
    "QueueConnection": "create_queue_session create_connection_consumer",
    "QueueConnectionFactory": "create_queue_connection",
    "QueueReceiver": "queue",
    "QueueRequestor": "request close",
    "QueueSender": "queue send",
    "QueueSession": "create_queue create_receiver create_sender create_browser create_temporary_queue",
    "ServerSession": "session start",
    "ServerSessionPool": "get_server_session",
    "Session": "create_bytes_message create_map_message create_message create_object_message create_stream_message"
    " create_text_message transacted acknowledge_mode commit rollback close recover message_listener run"
    " create_producer create_consumer create_shared_consumer create_queue create_topic create_durable_subscriber"
    " create_durable_consumer create_shared_durable_consumer create_browser create_temporary_queue"
    " create_temporary_topic unsubscribe",
    "StreamMessage": "reset " + " ".join(f"read_{kind} write_{kind}" for kind in (*TYPES, "char", "bytes")),
    "TemporaryQueue": "delete",
    "TemporaryTopic": "delete",
    "TextMessage": "text",
    "Topic": "topic_name __str__",
    "TopicConnection": "create_topic_session create_connection_consumer create_durable_connection_consumer",
    "TopicConnectionFactory": "create_topic_connection",
    "TopicPublisher": "topic publish",
    "TopicRequestor": "request close",
    "TopicSession": "create_topic create_subscriber create_durable_subscriber create_publisher create_temporary_topic"
    " unsubscribe",
    "TopicSubscriber": "topic no_local",
    "XAConnection": "create_xa_session create_session",
    "XAConnectionFactory": "create_xa_connection create_xa_context",
    "XAJMSContext": "tpc_begin tpc_prepare tpc_commit tpc_rollback tpc_recover transacted commit rollback",
    "XAQueueConnection": "create_xa_queue_session create_queue_session",
    "XAQueueConnectionFactory": "create_xa_queue_connection",
    "XAQueueSession": "create_receiver create_sender tpc_begin tpc_prepare tpc_commit tpc_rollback tpc_recover",
    "XASession": "tpc_begin tpc_prepare tpc_commit tpc_rollback tpc_recover transacted commit rollback",
    "XATopicConnection": "create_xa_topic_session create_topic_session",
    "XATopicConnectionFactory": "create_xa_topic_connection",
    "XATopicSession": "create_subscriber create_publisher tpc_begin tpc_prepare tpc_commit tpc_rollback tpc_recover",
}

PUBLIC = {
    name: getattr(module, name)
    for module in (jmsql, jmsql.connection_consumers, jmsql.domains, jmsql.types, jmsql.xa)
    for name in module.__all__
}

EXCEPTIONS = (
    *("IllegalState", "InvalidClientID", "InvalidDestination", "InvalidSelector", "MessageEOF", "MessageFormat"),
    *("MessageNotReadable", "MessageNotWriteable", "ResourceAllocation", "TransactionInProgress"),
    *("TransactionRolledBack", "JMSSecurity"),
)


@pytest.mark.parametrize("interface", INTERFACES)
def test_every_method_of_the_latest_version_is_there(interface: str) -> None:
    kind = PUBLIC[interface]
    names = set(dir(kind)) | {name for base in kind.__mro__ for name in inspect.get_annotations(base)}
    if inspect.isfunction(kind.__init__):
        names |= set(kind.__init__.__code__.co_names)  # what only the constructor sets
    assert [name for name in INTERFACES[interface].split() if name not in names] == []


def test_a_producer_can_be_called_in_a_chain() -> None:
    """What sets something returns the producer, as the interface has it."""
    for name, method in vars(JMSProducer).items():
        if name.startswith("set_") or name in ("send", "clear_properties"):
            assert inspect.signature(method).return_annotation == "Self", name


@pytest.mark.parametrize("exception", EXCEPTIONS)
def test_every_exception_of_the_latest_version_is_there(exception: str) -> None:
    assert issubclass(getattr(jmsql, f"{exception}Exception"), jmsql.JMSException)
