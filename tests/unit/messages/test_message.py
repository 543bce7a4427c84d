from __future__ import annotations

import pytest

from jmsql.exceptions import InvalidDestinationException, MessageFormatException, MessageNotWriteableException
from jmsql.messages import (
    DELIVERY_COUNT,
    BytesMessage,
    DeliveryMode,
    MapMessage,
    Message,
    ObjectMessage,
    StreamMessage,
    TextMessage,
)
from jmsql.values.destinations import Queue, Topic
from tests.unit.messages.rows import received


class TestHeaders:
    def test_new_message_has_the_headers_of_an_unsent_one(self) -> None:
        message = Message()
        assert message.jms_message_id is None
        assert (message.jms_timestamp, message.jms_expiration, message.jms_delivery_time) == (0, 0, 0)
        assert (message.jms_priority, message.jms_delivery_mode) == (4, DeliveryMode.PERSISTENT)
        assert (message.jms_destination, message.jms_reply_to, message.jms_redelivered) == (None, None, False)
        assert (message.jms_correlation_id, message.jms_type) == (None, None)

    def test_received_message_has_those_of_its_delivery(self) -> None:
        message = received(Message(), delivery_count=2)
        assert (message.jms_message_id, message.jms_timestamp) == ("ID:0193", 1_700_000_000_000)
        assert (message.jms_priority, message.jms_delivery_mode) == (7, DeliveryMode.NON_PERSISTENT)
        assert (message.jms_destination, message.jms_redelivered) == (Queue("orders"), True)

    @pytest.mark.parametrize("text", ["ID:7", "", "\0\ud800\ufffe", "é😀"])
    def test_text_headers_travel(self, text: str) -> None:
        message = Message()
        message.jms_correlation_id = text
        message.jms_type = text
        result = received(message)
        assert (result.jms_correlation_id, result.jms_type) == (text, text)

    @pytest.mark.parametrize("value", [b"text", 1])
    def test_text_headers_are_text(self, value: str) -> None:
        with pytest.raises(MessageFormatException, match="JMSCorrelationID"):
            Message().jms_correlation_id = value
        with pytest.raises(MessageFormatException, match="JMSType"):
            Message().jms_type = value

    @pytest.mark.parametrize("value", [b"", b"\x00\xff\xc3\xa9", bytes(range(256)), None])
    def test_correlation_id_as_bytes_travels(self, value: bytes | None) -> None:
        message = Message()
        message.jms_correlation_id_as_bytes = value
        assert received(message).jms_correlation_id_as_bytes == value

    def test_correlation_id_as_text_reads_as_utf_8_bytes(self) -> None:
        message = Message()
        message.jms_correlation_id = "é"
        assert message.jms_correlation_id_as_bytes == b"\xc3\xa9"
        message.jms_correlation_id = "\ud800"
        with pytest.raises(MessageFormatException, match="surrogate"):
            _ = message.jms_correlation_id_as_bytes

    @pytest.mark.parametrize("destination", [Queue("answers"), Topic("news\ufffe"), None])
    def test_reply_to_travels(self, destination: Queue | Topic | None) -> None:
        message = Message()
        message.jms_reply_to = destination
        assert received(message).jms_reply_to == destination

    def test_reply_to_is_a_destination(self) -> None:
        with pytest.raises(InvalidDestinationException, match="Queue or a Topic"):
            Message().jms_reply_to = "answers"  # type: ignore[assignment]

    def test_headers_of_a_received_message_may_be_changed(self) -> None:
        message = received(Message())
        message.jms_correlation_id = "new"
        message.jms_reply_to = Queue("answers")
        message.jms_type = "kind"
        assert message.encode()[:4] == ("Message", "new", "queue://answers", "kind")


class TestReceivedProperties:
    def test_are_read_only_until_they_are_cleared(self) -> None:
        message = Message()
        message.properties["color"] = "blue"
        message = received(message)
        with pytest.raises(MessageNotWriteableException, match="clear_properties"):
            message.set_int_property("weight", 1)
        with pytest.raises(MessageNotWriteableException):
            message.properties["weight"] = 1
        with pytest.raises(MessageNotWriteableException):
            del message.properties["color"]
        message.clear_properties()
        assert message.property_names == ()
        message.set_int_property("weight", 1)
        assert dict(message.properties) == {"weight": 1}

    def test_count_the_deliveries(self) -> None:
        message = received(Message(), delivery_count=3)
        assert message.get_int_property(DELIVERY_COUNT) == 3
        assert message.property_names == (DELIVERY_COUNT,)

    def test_null_is_kept_apart_from_missing(self) -> None:
        message = Message()
        message.set_string_property("nothing", None)
        message = received(message)
        assert message.property_exists("nothing")
        assert message.get_object_property("nothing") is None

    def test_ten_thousand_travel(self) -> None:
        message = Message()
        for number in range(10_000):
            message.set_int_property(f"property_{number}", number)
        properties = dict(received(message).properties)
        assert properties.pop(DELIVERY_COUNT) == 1
        assert properties == {f"property_{number}": number for number in range(10_000)}


class TestPropertiesAsAMapping:
    def test_is_the_message_s_own(self) -> None:
        message = Message()
        properties = message.properties
        properties["a"] = 1
        message.set_string_property("b", "x")
        assert dict(properties) == {"a": 1, "b": "x"}
        del properties["a"]
        assert not message.property_exists("a")
        assert len(properties) == 1
        assert "b" in properties

    def test_missing_is_a_key_error(self) -> None:
        with pytest.raises(KeyError):
            _ = Message().properties["missing"]

    def test_repr_names_no_values(self) -> None:
        message = Message()
        message.properties["password"] = "secret"
        assert "secret" not in repr(message.properties)


class TestAcknowledge:
    def test_reaches_the_session(self) -> None:
        calls: list[bool] = []
        received(Message(), acknowledger=lambda: calls.append(True)).acknowledge()
        assert calls == [True]

    def test_of_a_message_that_needs_none_does_nothing(self) -> None:
        Message().acknowledge()
        received(Message()).acknowledge()


class TestRepresentation:
    @pytest.mark.parametrize(
        "message",
        [Message(), TextMessage("secret"), ObjectMessage("secret"), BytesMessage(), MapMessage(), StreamMessage()],
    )
    def test_tells_kind_and_destination_and_no_content(self, message: Message) -> None:
        assert repr(message).startswith(f"<{type(message).__name__} without id, ")
        text = repr(received(message))
        assert text.startswith(f"<{type(message).__name__} ID:0193 to queue://orders, ")
        assert "secret" not in text
        assert len(text) < 100


def test_every_message_is_true_even_an_empty_map() -> None:
    assert MapMessage()
    assert received(MapMessage())
