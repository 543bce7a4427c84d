"""JMSContext, sentence by sentence of its methods' text: Jakarta Messaging 3.1 chapter 2.8."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from jmsql import (
    AcknowledgeMode,
    BytesMessage,
    ConnectionFactory,
    IllegalStateException,
    InvalidClientIDException,
    InvalidDestinationException,
    InvalidSelectorException,
    JMSConsumer,
    JMSContext,
    JMSException,
    MapMessage,
    Message,
    ObjectMessage,
    Queue,
    StreamMessage,
    TextMessage,
    Topic,
)
from jmsql.testing import receive_all, wait_for
from tests.background import Background
from tests.compliance.held_listener import HeldListener

PATIENCE = 60.0
QUEUE = Queue("compliance")
TOPIC = Topic("compliance")
MODES = list(AcknowledgeMode)
NOT_TRANSACTED = [mode for mode in MODES if mode is not AcknowledgeMode.TRANSACTED]
Act = Callable[[JMSContext], object]


def bodies(context: JMSContext, destination: Queue = QUEUE) -> list[object]:
    with context.create_consumer(destination) as consumer:
        return [message.get_body(object) for message in receive_all(consumer)]


class TestCreateContext:
    @pytest.mark.parametrize("session_mode", MODES)
    def test_it_makes_a_session_of_the_mode_on_the_same_connection(
        self, context: JMSContext, session_mode: AcknowledgeMode
    ) -> None:
        with context.create_context(session_mode) as second:
            assert second.session_mode is session_mode
            assert second.transacted is (session_mode is AcknowledgeMode.TRANSACTED)
            assert second._connection is context._connection
            temporary = context.create_temporary_queue()
            second.create_consumer(temporary).close()  # as those of the same connection may

    def test_the_mode_is_auto_unless_it_is_given(self, context: JMSContext) -> None:
        assert context.session_mode is AcknowledgeMode.AUTO
        assert not context.transacted

    @pytest.mark.parametrize("session_mode", [7, -1, None, "AUTO"])
    def test_another_mode_is_refused(self, context: JMSContext, session_mode: AcknowledgeMode) -> None:
        with pytest.raises(JMSException):
            context.create_context(session_mode)

    def test_it_does_not_start_the_connection_which_a_consumer_of_any_context_does(self, context: JMSContext) -> None:
        context.auto_start = False
        consumer = context.create_consumer(QUEUE)
        with context.create_context(AcknowledgeMode.AUTO) as second:
            second.create_producer().send(QUEUE, "text")
            assert consumer.receive_no_wait() is None
            second.create_consumer(TOPIC)
            assert consumer.receive_body(str, PATIENCE) == "text"


class TestClientIdentifier:
    def test_it_is_that_of_the_factory_and_is_not_changed_then(self, jmsql_factory: ConnectionFactory) -> None:
        with jmsql_factory.create_context() as context:
            context.client_id = "desk"
            assert context.client_id == "desk"
            with context.create_context(AcknowledgeMode.AUTO) as second:
                assert second.client_id == "desk"
            with pytest.raises(IllegalStateException):
                context.client_id = "other"

    @pytest.mark.parametrize(
        "use",
        [
            lambda context: context.create_producer(),
            lambda context: context.create_consumer(QUEUE),
            lambda context: context.create_message(),
            lambda context: context.start(),
            lambda context: context.stop(),
        ],
    )
    def test_it_is_set_before_anything_else_is_done(self, context: JMSContext, use: Act) -> None:
        use(context)
        with pytest.raises(IllegalStateException):
            context.client_id = "late"

    @pytest.mark.parametrize("client_id", ["", None, 7])
    def test_an_invalid_one_is_refused(self, context: JMSContext, client_id: str) -> None:
        with pytest.raises(InvalidClientIDException):
            context.client_id = client_id

    def test_that_of_a_live_connection_is_refused(self, context: JMSContext, other: JMSContext) -> None:
        other.client_id = "desk"
        with pytest.raises(InvalidClientIDException):
            context.client_id = "desk"


class TestStartAndStop:
    def test_stop_inhibits_receives_while_their_time_runs_on(self, context: JMSContext, other: JMSContext) -> None:
        consumer = context.create_consumer(QUEUE)
        other.create_producer().send(QUEUE, "text")
        context.stop()
        context.stop()
        assert consumer.receive(0.05) is None
        waiting = Background(consumer.receive)
        waiting.wait_until_it_waits()
        context.start()
        context.start()
        message = waiting.result()
        assert message is not None
        assert message.get_body(str) == "text"

    def test_a_stopped_context_sends(self, context: JMSContext, other: JMSContext) -> None:
        context.stop()
        context.create_producer().send(QUEUE, "text")
        assert bodies(other) == ["text"]

    @pytest.mark.parametrize("mode", MODES)
    def test_stop_waits_for_listeners_which_keep_all_services(
        self, context: JMSContext, other: JMSContext, mode: AcknowledgeMode
    ) -> None:
        def use_everything(message: Message) -> None:
            assert context.session_mode is mode
            context.create_producer().send(Queue("answers"), message.get_body(str))
            with context.create_context(AcknowledgeMode.AUTO) as another:
                another.create_producer().send(Queue("answers"), "of another context")
            assert context.metadata.jms_provider_name == "jmsql"
            if context.transacted:
                context.commit()
            else:
                context.acknowledge()

        listener = HeldListener(use_everything)
        context.create_consumer(QUEUE).message_listener = listener
        other.create_producer().send(QUEUE, "a").send(QUEUE, "b")
        listener.wait_until_called()
        listener.must_return_before(context.stop)
        assert listener.errors == []
        assert len(listener.messages) == 1
        assert sorted(map(str, bodies(other, Queue("answers")))) == ["a", "of another context"]
        context.start()
        wait_for(lambda: len(listener.messages) == 2)

    def test_a_listener_may_stop_its_own_context(self, context: JMSContext, other: JMSContext) -> None:
        heard: list[str | None] = []

        def stop(message: Message) -> None:
            context.stop()
            heard.append(message.get_body(str))

        consumer = context.create_consumer(QUEUE)
        consumer.message_listener = stop
        other.create_producer().send(QUEUE, "a").send(QUEUE, "b")
        wait_for(lambda: heard)
        context.stop()  # waits until the first message is acknowledged
        assert heard == ["a"]
        consumer.close()
        assert bodies(other) == ["b"]

    def test_without_auto_start_a_consumer_does_not_start_the_connection(self, context: JMSContext) -> None:
        assert context.auto_start
        context.auto_start = False
        assert not context.auto_start
        consumer = context.create_consumer(QUEUE)
        context.create_producer().send(QUEUE, "text")
        assert consumer.receive_no_wait() is None
        context.auto_start = True  # which itself starts nothing
        assert consumer.receive_no_wait() is None
        context.start()
        assert consumer.receive_body(str, PATIENCE) == "text"

    @pytest.mark.parametrize(
        "create",
        [
            lambda context: context.create_consumer(TOPIC),
            lambda context: context.create_consumer(TOPIC, "a = 1"),
            lambda context: context.create_consumer(TOPIC, None, no_local=True),
            lambda context: context.create_durable_consumer(TOPIC, "durable"),
            lambda context: context.create_shared_consumer(TOPIC, "shared"),
            lambda context: context.create_shared_durable_consumer(TOPIC, "shared and durable"),
        ],
    )
    def test_each_kind_of_consumer_starts_it(self, context: JMSContext, create: Act) -> None:
        context.client_id = "compliance"
        assert context._connection is not None
        assert not context._connection._client.started
        create(context)
        assert context._connection._client.started


class TestClose:
    def test_it_closes_the_contexts_producers_and_consumers(self, context: JMSContext) -> None:
        producer, consumer = context.create_producer(), context.create_consumer(QUEUE)
        browser = context.create_browser(QUEUE)
        context.close()
        context.close()
        for call in (
            lambda: producer.send(QUEUE, "text"),
            consumer.receive_no_wait,
            lambda: consumer.receive_body(str),
            lambda: browser.enumeration,
        ):
            with pytest.raises(IllegalStateException):
                call()

    USES: tuple[Act, ...] = (
        lambda context: context.create_context(AcknowledgeMode.AUTO),
        lambda context: context.create_producer(),
        lambda context: context.create_consumer(QUEUE),
        lambda context: context.create_durable_consumer(TOPIC, "durable"),
        lambda context: context.create_shared_consumer(TOPIC, "shared"),
        lambda context: context.create_shared_durable_consumer(TOPIC, "shared"),
        lambda context: context.create_browser(QUEUE),
        lambda context: context.create_queue("queue"),
        lambda context: context.create_topic("topic"),
        lambda context: context.create_temporary_queue(),
        lambda context: context.create_temporary_topic(),
        lambda context: context.create_message(),
        lambda context: context.create_text_message(),
        lambda context: context.create_bytes_message(),
        lambda context: context.create_map_message(),
        lambda context: context.create_stream_message(),
        lambda context: context.create_object_message(),
        lambda context: context.unsubscribe("durable"),
        lambda context: context.start(),
        lambda context: context.stop(),
        lambda context: context.commit(),
        lambda context: context.rollback(),
        lambda context: context.recover(),
        lambda context: context.acknowledge(),
        lambda context: context.client_id,
        lambda context: setattr(context, "client_id", "late"),
        lambda context: context.metadata,
        lambda context: context.exception_listener,
        lambda context: setattr(context, "exception_listener", print),
        lambda context: context.session_mode,
        lambda context: context.transacted,
    )

    @pytest.mark.parametrize("has_sibling", [True, False])
    def test_a_closed_context_is_of_no_use_even_where_its_connection_is_open(
        self, context: JMSContext, has_sibling: bool
    ) -> None:
        sibling = context.create_context(AcknowledgeMode.AUTO) if has_sibling else None
        context.close()
        for use in self.USES:
            with pytest.raises(IllegalStateException, match="closed"):
                use(context)
        if sibling is not None:
            sibling.create_producer().send(QUEUE, "text")
            assert sibling.create_consumer(QUEUE).receive_body(str, PATIENCE) == "text"
            sibling.close()

    def test_the_connection_closes_with_its_last_context_and_temporary_destinations_with_it(
        self, context: JMSContext, other: JMSContext
    ) -> None:
        second = context.create_context(AcknowledgeMode.AUTO)
        temporary = context.create_temporary_queue()
        context.close()
        other.create_producer().send(temporary, "text")
        assert second.create_consumer(temporary).receive_body(str, PATIENCE) == "text"
        second.close()
        assert second._connection is not None
        assert second._connection._client.closed
        with pytest.raises(InvalidDestinationException):
            other.create_producer().send(temporary, "text")

    def test_it_ends_receives_that_wait(self, context: JMSContext) -> None:
        receiving = Background(context.create_consumer(QUEUE).receive)
        receiving.wait_until_it_waits()
        context.close()
        assert receiving.result() is None

    @pytest.mark.parametrize("mode", MODES)
    def test_it_waits_for_listeners_which_keep_all_services(
        self, context: JMSContext, other: JMSContext, mode: AcknowledgeMode
    ) -> None:
        def use_the_context(message: Message) -> None:
            assert context.transacted is (mode is AcknowledgeMode.TRANSACTED)
            context.create_producer().send(Queue("answers"), message.get_body(str))
            context.start()
            context.stop()
            if context.transacted:
                context.commit()
            else:
                context.acknowledge()

        listener = HeldListener(use_the_context)
        context.create_consumer(QUEUE).message_listener = listener
        other.create_producer().send(QUEUE, "text")
        listener.wait_until_called()
        listener.must_return_before(context.close)
        assert listener.errors == []
        assert bodies(other, Queue("answers")) == ["text"]
        assert bodies(other) == []

    def test_a_listener_may_close_its_context_and_its_message_is_acknowledged(
        self, context: JMSContext, other: JMSContext
    ) -> None:
        closed = threading.Event()

        def close(_: Message) -> None:
            context.close()
            closed.set()

        context.create_consumer(QUEUE).message_listener = close
        other.create_producer().send(QUEUE, "a").send(QUEUE, "b")
        assert closed.wait(PATIENCE)
        connection = context._connection
        assert connection is not None
        wait_for(lambda: not connection._sessions)
        assert bodies(other) == ["b"]

    @pytest.mark.parametrize("mode", [AcknowledgeMode.TRANSACTED])
    def test_it_rolls_back(self, context: JMSContext, other: JMSContext) -> None:
        other.create_producer().send(QUEUE, "received")
        context.create_producer().send(Queue("answers"), "sent")
        assert context.create_consumer(QUEUE).receive_body(str, PATIENCE) == "received"
        context.close()
        assert bodies(other) == ["received"]
        assert bodies(other, Queue("answers")) == []

    @pytest.mark.parametrize("mode", [AcknowledgeMode.CLIENT])
    def test_it_acknowledges_nothing_and_nothing_is_acknowledged_after_it(
        self, context: JMSContext, other: JMSContext
    ) -> None:
        other.create_producer().send(QUEUE, "text")
        message = context.create_consumer(QUEUE).receive(PATIENCE)
        assert message is not None
        context.close()
        with pytest.raises(IllegalStateException):
            message.acknowledge()
        assert bodies(other) == ["text"]


class TestMessages:
    @pytest.mark.parametrize(
        ("create", "kind"),
        [
            (lambda context: context.create_message(), Message),
            (lambda context: context.create_text_message(), TextMessage),
            (lambda context: context.create_text_message("text"), TextMessage),
            (lambda context: context.create_bytes_message(), BytesMessage),
            (lambda context: context.create_map_message(), MapMessage),
            (lambda context: context.create_stream_message(), StreamMessage),
            (lambda context: context.create_object_message(), ObjectMessage),
            (lambda context: context.create_object_message([1]), ObjectMessage),
        ],
    )
    def test_each_kind_is_made_and_can_be_sent_by_another_context(
        self, context: JMSContext, other: JMSContext, create: Callable[[JMSContext], Message], kind: type[Message]
    ) -> None:
        message = create(context)
        assert type(message) is kind
        other.create_producer().send(QUEUE, message)
        received = context.create_consumer(QUEUE).receive(PATIENCE)
        assert type(received) is kind
        if kind is not StreamMessage:
            assert received.get_body(object) == message.get_body(object)


class TestTransactions:
    @pytest.mark.parametrize("mode", [AcknowledgeMode.TRANSACTED])
    def test_commit_and_rollback_end_them(self, context: JMSContext, other: JMSContext) -> None:
        producer, consumer = context.create_producer(), context.create_consumer(Queue("input"))
        other.create_producer().send(Queue("input"), "input")
        producer.send(QUEUE, "forgotten")
        assert consumer.receive_body(str, PATIENCE) == "input"
        context.rollback()
        again = consumer.receive(PATIENCE)
        assert again is not None
        assert again.jms_redelivered
        producer.send(QUEUE, "kept")
        assert bodies(other) == []
        context.commit()
        assert bodies(other) == ["kept"]
        assert bodies(other, Queue("input")) == []
        with pytest.raises(IllegalStateException):
            context.recover()

    @pytest.mark.parametrize("mode", NOT_TRANSACTED)
    def test_other_sessions_have_none(self, context: JMSContext) -> None:
        for call in (context.commit, context.rollback):
            with pytest.raises(IllegalStateException):
                call()

    @pytest.mark.parametrize("mode", [AcknowledgeMode.CLIENT])
    def test_recover_delivers_unacknowledged_messages_again(self, context: JMSContext, other: JMSContext) -> None:
        other.create_producer().send(QUEUE, "a").send(QUEUE, "b").send(QUEUE, "c")
        consumer = context.create_consumer(QUEUE)
        assert consumer.receive_body(str, PATIENCE) == "a"
        context.acknowledge()
        assert consumer.receive_body(str, PATIENCE) == "b"
        context.recover()
        received = receive_all(consumer)
        assert [(message.get_body(str), message.jms_redelivered) for message in received] == [("b", True), ("c", False)]
        context.acknowledge()
        context.recover()
        assert receive_all(consumer) == []

    @pytest.mark.parametrize("mode", [AcknowledgeMode.CLIENT])
    def test_acknowledge_acknowledges_all_that_the_session_has_received(
        self, context: JMSContext, other: JMSContext
    ) -> None:
        other.create_producer().send(QUEUE, "a").send(Queue("second"), "b").send(QUEUE, "c")
        first, second = context.create_consumer(QUEUE), context.create_consumer(Queue("second"))
        assert [first.receive_body(str, PATIENCE), second.receive_body(str, PATIENCE)] == ["a", "b"]
        context.acknowledge()
        context.close()
        assert bodies(other) == ["c"]
        assert bodies(other, Queue("second")) == []

    @pytest.mark.parametrize("mode", [mode for mode in MODES if mode is not AcknowledgeMode.CLIENT])
    def test_in_other_modes_acknowledge_has_no_effect(
        self, context: JMSContext, other: JMSContext, mode: AcknowledgeMode
    ) -> None:
        other.create_producer().send(QUEUE, "text")
        assert context.create_consumer(QUEUE).receive_body(str, PATIENCE) == "text"
        context.acknowledge()
        if context.transacted:
            context.rollback()
        context.close()
        assert bodies(other) == (["text"] if mode is AcknowledgeMode.TRANSACTED else [])


class TestDestinations:
    def test_they_are_made_by_name(self, context: JMSContext) -> None:
        assert context.create_queue("orders") == Queue("orders")
        assert context.create_topic("prices") == Topic("prices")
        assert context.create_queue("orders").queue_name == "orders"
        assert context.create_topic("prices").topic_name == "prices"

    def test_temporary_ones_last_until_they_are_deleted(self, context: JMSContext, other: JMSContext) -> None:
        queue, topic = context.create_temporary_queue(), context.create_temporary_topic()
        consumer, subscriber = context.create_consumer(queue), context.create_consumer(topic)
        other.create_producer().send(queue, "queued").send(topic, "published")
        assert consumer.receive_body(str, PATIENCE) == "queued"
        assert subscriber.receive_body(str, PATIENCE) == "published"
        consumer.close()
        subscriber.close()
        queue.delete()
        topic.delete()
        for destination in (queue, topic):
            with pytest.raises(InvalidDestinationException):
                other.create_producer().send(destination, "late")


class TestConsumers:
    def test_no_local_leaves_out_the_connections_own_messages(self, context: JMSContext, other: JMSContext) -> None:
        local = context.create_consumer(TOPIC)
        no_local = context.create_consumer(TOPIC, no_local=True)
        with context.create_context(AcknowledgeMode.AUTO) as sibling:
            sibling.create_producer().send(TOPIC, "own")
        other.create_producer().send(TOPIC, "other")
        assert [message.get_body(str) for message in receive_all(local)] == ["own", "other"]
        assert [message.get_body(str) for message in receive_all(no_local)] == ["other"]

    @pytest.mark.parametrize(
        "create",
        [
            lambda context, topic: context.create_consumer(topic),
            lambda context, topic: context.create_durable_consumer(topic, "name"),
            lambda context, topic: context.create_shared_consumer(topic, "name"),
            lambda context, topic: context.create_shared_durable_consumer(topic, "name"),
            lambda context, topic: context.create_browser(topic),
        ],
    )
    def test_an_invalid_destination_is_refused(
        self, context: JMSContext, create: Callable[[JMSContext, object], object]
    ) -> None:
        context.client_id = "compliance"
        for topic in (None, "jms://compliance", object()):
            with pytest.raises(InvalidDestinationException):
                create(context, topic)

    @pytest.mark.parametrize(
        "create",
        [
            lambda context: context.create_consumer(QUEUE, "colour ="),
            lambda context: context.create_durable_consumer(TOPIC, "name", "colour ="),
            lambda context: context.create_shared_consumer(TOPIC, "name", "colour ="),
            lambda context: context.create_shared_durable_consumer(TOPIC, "name", "colour ="),
            lambda context: context.create_browser(QUEUE, "colour ="),
        ],
    )
    def test_an_invalid_selector_is_refused(self, context: JMSContext, create: Act) -> None:
        context.client_id = "compliance"
        with pytest.raises(InvalidSelectorException):
            create(context)

    def test_a_durable_subscription_is_its_clients_and_has_one_consumer(
        self, context: JMSContext, other: JMSContext
    ) -> None:
        with pytest.raises(IllegalStateException, match="client"):
            other.create_durable_consumer(TOPIC, "name")
        context.client_id = "compliance"
        consumer = context.create_durable_consumer(TOPIC, "name", "colour = 'blue'")
        with pytest.raises(JMSException):
            context.create_durable_consumer(TOPIC, "name", "colour = 'blue'")
        with pytest.raises(JMSException):
            context.create_shared_durable_consumer(TOPIC, "name", "colour = 'blue'")
        context.create_shared_consumer(TOPIC, "name")  # of the same name, and apart
        consumer.close()
        for colour in ("blue", "red"):
            other.create_producer(properties={"colour": colour}).send(TOPIC, colour)
        consumer = context.create_durable_consumer(TOPIC, "name", "colour = 'blue'")
        assert [message.get_body(str) for message in receive_all(consumer)] == ["blue"]
        consumer.close()
        other.create_producer(properties={"colour": "blue"}).send(TOPIC, "collected")
        consumer = context.create_durable_consumer(TOPIC, "name", "colour = 'red'")  # as if it were made again
        assert receive_all(consumer) == []

    @pytest.mark.parametrize("durable", [True, False])
    def test_a_shared_subscription_is_shared_by_consumers_that_want_the_same(
        self, context: JMSContext, other: JMSContext, durable: bool
    ) -> None:
        def create(of: JMSContext, selector: str | None = None) -> list[Message]:
            make = of.create_shared_durable_consumer if durable else of.create_shared_consumer
            consumer = make(TOPIC, "name", selector)
            consumers.append(consumer)
            heard: list[Message] = []
            consumer.message_listener = heard.append
            return heard

        consumers: list[JMSConsumer] = []
        one, two = create(context), create(other)
        for number in range(20):
            context.create_producer().send(TOPIC, number)
        wait_for(lambda: len(one) + len(two) == 20)
        assert sorted(int(str(message.get_body(object))) for message in one + two) == list(range(20))
        with pytest.raises(JMSException):
            create(context, "colour = 'blue'")
        for consumer in consumers:
            consumer.close()
        context.create_producer().send(TOPIC, "collected")
        three = create(context)
        if durable:
            wait_for(lambda: len(three) == 1)
        else:
            context.create_producer().send(TOPIC, "later")
            wait_for(lambda: [message.get_body(str) for message in three] == ["later"])

    @pytest.mark.parametrize("mode", [AcknowledgeMode.CLIENT])
    def test_unsubscribe_ends_a_durable_subscription_that_is_not_in_use(
        self, context: JMSContext, other: JMSContext
    ) -> None:
        context.client_id = "compliance"
        with pytest.raises(InvalidDestinationException):
            context.unsubscribe("name")
        consumer = context.create_durable_consumer(TOPIC, "name")
        with pytest.raises(IllegalStateException):
            context.unsubscribe("name")
        other.create_producer().send(TOPIC, "text")
        assert consumer.receive_body(str, PATIENCE) == "text"
        consumer.close()
        with pytest.raises(IllegalStateException):
            context.unsubscribe("name")
        context.acknowledge()
        context.unsubscribe("name")
        other.create_producer().send(TOPIC, "late")
        assert receive_all(context.create_durable_consumer(TOPIC, "name")) == []

    def test_a_browser_shows_waiting_messages_and_leaves_them(self, context: JMSContext) -> None:
        producer = context.create_producer()
        producer.set_property("colour", "blue").send(QUEUE, "a")
        producer.set_property("colour", "red").send(QUEUE, "b")
        assert [message.get_body(str) for message in context.create_browser(QUEUE).enumeration] == ["a", "b"]
        browser = context.create_browser(QUEUE, "colour = 'red'")
        assert [message.get_body(str) for message in browser] == ["b"]
        assert browser.message_selector == "colour = 'red'"
        assert context.create_browser(QUEUE, "").message_selector is None
        iteration = browser.enumeration
        browser.close()
        for look in (lambda: browser.enumeration, lambda: iter(browser), lambda: next(iteration)):
            with pytest.raises(IllegalStateException, match="closed"):
                look()
        assert bodies(context) == ["a", "b"]


class TestExceptionListener:
    def test_it_is_that_of_the_connection(self, context: JMSContext) -> None:
        assert context.exception_listener is None
        told: list[JMSException] = []
        listener = told.append
        context.exception_listener = listener
        with context.create_context(AcknowledgeMode.AUTO) as second:
            assert second.exception_listener is listener
        context.exception_listener = None
        assert context.exception_listener is None
