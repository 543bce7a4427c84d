"""`jmsql send`, `receive` and `browse`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

import jmsql as library
from jmsql.testing import receive_all
from tests.integration.cli.conftest import Command

pytestmark = pytest.mark.usefixtures("maintenance_suspended")

ORDERS = library.Queue("orders")


def received(factory: library.ConnectionFactory) -> list[library.Message]:
    """Return all messages of the queue, read to their ends."""
    with factory.create_connection() as connection, connection.create_session() as session:
        connection.start()
        return receive_all(session.create_consumer(ORDERS))


class TestSend:
    def test_an_argument_is_sent_as_text(self, jmsql: Command, jmsql_factory: library.ConnectionFactory) -> None:
        outcome = jmsql("send", "orders", "grüße")
        assert outcome.exit_code == 0
        [message] = received(jmsql_factory)
        assert message.get_body(str) == "grüße"
        assert message.jms_message_id is not None
        assert message.jms_message_id in outcome.text

    @pytest.mark.parametrize(
        ("destination", "remark"),
        [
            ("ordres", "queue://ordres is new: this send has made it.\n"),
            ("topic://prices", "topic://prices is new: without a subscription it keeps no message.\n"),
        ],
    )
    def test_a_destination_that_the_send_makes_is_named(self, jmsql: Command, destination: str, remark: str) -> None:
        assert jmsql("send", destination, "x").errors == remark
        assert jmsql("send", destination, "x").errors == ""

    def test_a_step_that_does_not_exist_is_named(self, jmsql: Command) -> None:
        jmsql("send", "resize", "x", "--then", "publish")
        options = ("--then", "resize", "--then", "publsh", "--then", "publsh", "--then", "topic://sold")
        assert jmsql("send", "resize", "x", *options).errors == (
            "There is no queue://publsh yet: the step before makes it.\n"
            "There is no topic://sold yet: without a subscription it keeps no message.\n"
        )

    def test_a_message_that_is_dropped_does_not_count_as_sent(self, jmsql: Command) -> None:
        for option in ("--deduplication-id", "--coalesce"):
            assert jmsql("send", "orders", "x", option, "payment 17", "--json").document["sent"] == 1
            again = jmsql("send", "orders", "x", option, "payment 17")
            assert again.text.startswith("Sent 0 messages to queue://orders, in ")
            assert again.errors.startswith("1 message was not sent: ")
            assert jmsql("send", "orders", "x", option, "payment 17", "--json").document["last_message_id"] is None
        batch = jmsql("send", "orders", "x", "--count", "3", "-p", "JMS_jmsql_DeduplicationID=payment 18")
        assert batch.text.startswith("Sent 1 message to queue://orders, in ")
        assert batch.errors.startswith("2 messages were not sent: ")

    def test_group_and_next_steps_travel_with_the_message(
        self, jmsql: Command, jmsql_factory: library.ConnectionFactory
    ) -> None:
        options = ("--group", "customer 5", "--then", "bills", "--then", "topic://sold")
        assert jmsql("send", "orders", "x", *options).exit_code == 0
        [message] = received(jmsql_factory)
        assert message.get_string_property("JMSXGroupID") == "customer 5"
        assert message.get_string_property("JMS_Then") == '["queue://bills", "topic://sold"]'

    def test_headers_and_typed_properties_are_set(
        self, jmsql: Command, jmsql_factory: library.ConnectionFactory
    ) -> None:
        properties = ("color=blue", "weight:int=2600", "size:short=3", "ratio:float=0.5", "fresh:boolean=true")
        options = [word for text in properties for word in ("--property", text)]
        headers = ["--priority", "7", "--correlation-id", "c1", "--reply-to", "answers", "--jms-type", "order"]
        outcome = jmsql("send", "orders", "x", *options, *headers, "--time-to-live", "60", "--non-persistent")
        assert outcome.exit_code == 0
        [message] = received(jmsql_factory)
        assert message.get_string_property("color") == "blue"
        assert message.get_int_property("weight") == 2600
        assert message.get_short_property("size") == 3
        assert message.get_float_property("ratio") == 0.5
        assert message.get_boolean_property("fresh") is True
        assert message.jms_priority == 7
        assert message.jms_correlation_id == "c1"
        assert message.jms_reply_to == library.Queue("answers")
        assert message.jms_type == "order"
        assert message.jms_expiration == message.jms_timestamp + 60_000
        assert message.jms_delivery_mode == library.DeliveryMode.NON_PERSISTENT

    def test_json_becomes_a_map_or_an_object(self, jmsql: Command, jmsql_factory: library.ConnectionFactory) -> None:
        jmsql("send", "orders", '{"number": 1, "note": null}', "--type", "map")
        jmsql("send", "orders", '{"lines": [1, 2.5, "three"]}', "--type", "object")
        fields, thing = received(jmsql_factory)
        assert isinstance(fields, library.MapMessage)
        assert dict(fields) == {"number": 1, "note": None}
        assert isinstance(thing, library.ObjectMessage)
        assert thing.object == {"lines": [1, 2.5, "three"]}

    def test_a_file_and_the_standard_input_are_sent_as_they_are(
        self, jmsql: Command, jmsql_factory: library.ConnectionFactory, tmp_path: Path
    ) -> None:
        (tmp_path / "body").write_bytes(b"\x00\xff")
        jmsql("send", "orders", "--file", str(tmp_path / "body"), "--type", "bytes")
        jmsql("send", "orders", stdin=b"two\nlines\n")
        first, second = received(jmsql_factory)
        assert first.get_body(bytes) == b"\x00\xff"
        assert second.get_body(str) == "two\nlines\n"

    def test_each_line_can_be_a_message(self, jmsql: Command, jmsql_factory: library.ConnectionFactory) -> None:
        outcome = jmsql("send", "orders", "--lines", "--json", stdin=b"one\r\n\nthree")
        assert outcome.document["sent"] == 3
        assert [message.get_body(str) for message in received(jmsql_factory)] == ["one", "", "three"]

    def test_a_bad_line_is_named_with_the_number_of_messages_sent_before(self, jmsql: Command) -> None:
        lines = [*(b'{"number": %d}' % number for number in range(8000)), b"no JSON", b"{}"]
        outcome = jmsql("send", "orders", "--lines", "--type", "map", stdin=b"\n".join(lines))
        assert outcome.exit_code == 2
        [sent] = re.findall(r"([\d,]+) messages were sent before\.", outcome.errors)
        assert "Line 8001: " in outcome.errors
        assert jmsql("purge", "orders", "--yes", "--json").document["deleted"] == int(sent.replace(",", "")) > 0

    def test_lines_are_sent_as_they_come(self, jmsql_factory: library.ConnectionFactory, jmsql_clean_url: str) -> None:
        with (
            subprocess.Popen(
                [sys.executable, "-m", "jmsql", "send", "orders", "--lines"],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                env=os.environ | {"JMSQL_URL": jmsql_clean_url},
            ) as process,
            jmsql_factory.create_connection() as connection,
            connection.create_session() as session,
        ):
            assert process.stdin is not None
            connection.start()
            consumer = session.create_consumer(ORDERS)
            for line in ("one", "two"):
                process.stdin.write(line.encode() + b"\n")
                process.stdin.flush()
                message = consumer.receive(timeout=60)
                assert message is not None
                assert message.get_body(str) == line

    def test_a_body_is_repeated(self, jmsql: Command, jmsql_factory: library.ConnectionFactory) -> None:
        assert jmsql("send", "orders", "again", "--count", "1500", "--json").document["sent"] == 1500
        assert len(received(jmsql_factory)) == 1500

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (("x", "-p", "weight:int=heavy"), "An integer has digits alone"),
            (("x", "-p", "weight:int=2147483648"), "2147483648"),
            (("x", "-p", "fresh:boolean=perhaps"), "true or false"),
            (("x", "-p", "weight:mass=1"), "boolean, byte, short"),
            (("x", "-p", "1st=1"), "cannot name a property"),
            (("x", "-p", "color"), "name=value"),
            (("{", "--type", "map"), "not JSON"),
            (("[1]", "--type", "map"), "a JSON object"),
            (('{"a": [1]}', "--type", "map"), "not fit the type map: The entry 'a'"),
            (('{"a": [1]}', "--type", "map"), "Send it with --type object"),
            (("x", "--lines"), "--lines"),
            (("x", "--file", "/dev/null"), "--file"),
            (("--lines", "--count", "2"), "--count"),
            (("[" * 100_000, "--type", "object"), "levels of brackets"),
            (("x", "--time-to-live", "inf"), "--time-to-live"),
        ],
    )
    def test_wrong_arguments_are_refused(self, jmsql: Command, arguments: tuple[str, ...], said: str) -> None:
        outcome = jmsql("send", "orders", *arguments)
        assert outcome.exit_code == 2
        assert said in " ".join(outcome.errors.replace("│", "").split())
        assert jmsql("queues", "--json").document == []

    def test_bytes_are_no_text(self, jmsql: Command) -> None:
        outcome = jmsql("send", "orders", stdin=b"\xff")
        assert outcome.exit_code == 2
        assert "--type bytes" in outcome.errors


class TestReceive:
    def test_bodies_are_printed_and_taken_off_the_queue(self, jmsql: Command) -> None:
        jmsql("send", "orders", "--lines", stdin=b"one\ntwo\nthree\n")
        assert jmsql("receive", "orders").text == "one\n"
        assert jmsql("receive", "orders", "--count", "5").text == "two\nthree\n"
        nothing = jmsql("receive", "orders")
        assert (nothing.exit_code, nothing.text, nothing.errors) == (1, "", "No message came.\n")

    def test_bytes_are_printed_raw(self, jmsql: Command) -> None:
        jmsql("send", "orders", "--type", "bytes", stdin=b"\x00\xff\n")
        assert jmsql("receive", "orders").output == b"\x00\xff\n"

    def test_json_lines_have_all_that_is_known_of_a_message(self, jmsql: Command) -> None:
        jmsql("send", "orders", '{"number": 1}', "--type", "map", "-p", "weight:long=5", "--reply-to", "answers")
        jmsql("send", "orders", "--type", "bytes", stdin=b"\xff")
        first, second = jmsql("receive", "orders", "--all", "--json").lines
        assert first["body"] == {"number": 1}
        assert first["properties"] == {"weight": 5}
        assert first["property_types"] == {"weight": "long"}
        assert first["reply_to"] == "queue://answers"
        assert first["delivery_mode"] == "PERSISTENT"
        assert (first["redelivered"], first["delivery_count"]) == (False, 1)
        assert (second["type"], second["body"]) == ("BytesMessage", "/w==")

    def test_all_formats_show_the_body(self, jmsql: Command) -> None:
        jmsql("send", "orders", "hello", "-p", "color=blue", "--count", "3")
        assert jmsql("receive", "orders", "--format", "text").text == "hello\n"
        assert json.loads(jmsql("receive", "orders", "--format", "json").output)["body"] == "hello"
        full = jmsql("receive", "orders", "--format", "full").text
        assert "property color (String): blue\n" in full
        assert full.endswith("\n\nhello\n\n")

    def test_a_selector_chooses(self, jmsql: Command) -> None:
        jmsql("send", "orders", "red", "-p", "color=red")
        jmsql("send", "orders", "blue", "-p", "color=blue")
        assert jmsql("receive", "orders", "--all", "--selector", "color = 'blue'").text == "blue\n"
        assert jmsql("receive", "orders", "--all").text == "red\n"

    def test_it_waits_for_a_message(self, jmsql_clean_url: str, jmsql_factory: library.ConnectionFactory) -> None:
        with jmsql_factory.create_connection() as connection, connection.create_session() as session:
            producer = session.create_producer(ORDERS)  # which makes the queue
            with subprocess.Popen(
                [sys.executable, "-m", "jmsql", "receive", "orders", "--timeout", "60"],
                stdout=subprocess.PIPE,
                env=os.environ | {"JMSQL_URL": jmsql_clean_url},
            ) as process:
                producer.send(session.create_text_message("late"))
                assert process.communicate()[0] == b"late\n"
            assert process.returncode == 0

    def test_a_timeout_ends_the_wait(self, jmsql: Command) -> None:
        jmsql("send", "orders", "x", "-p", "color=red")
        started = time.monotonic()
        assert jmsql("receive", "orders", "--timeout", "0.3", "--selector", "color = 'blue'").exit_code == 1
        assert time.monotonic() - started >= 0.3

    def test_a_message_that_cannot_be_printed_stays_in_the_queue(self, jmsql: Command, jmsql_clean_url: str) -> None:
        jmsql("send", "orders", "x" * 1000, "--count", "300")
        read_end, write_end = os.pipe()
        os.close(read_end)
        process = subprocess.run(
            [sys.executable, "-m", "jmsql", "receive", "orders", "--all"],
            stdout=write_end,
            stderr=subprocess.PIPE,
            env=os.environ | {"JMSQL_URL": jmsql_clean_url},
            check=False,
        )
        os.close(write_end)
        assert (process.returncode, process.stderr) == (141, b"")
        [queue] = jmsql("queues", "--json").document
        assert queue["ready"] == 300


class TestBrowse:
    def test_messages_are_shown_and_stay(self, jmsql: Command) -> None:
        jmsql("send", "orders", "later", "--priority", "1")
        jmsql("send", "orders", "sooner", "--priority", "9", "-p", "color=blue")
        for _ in range(2):
            lines = jmsql("browse", "orders").text.splitlines()
            assert [line.split()[-1] for line in lines[1:]] == ["sooner", "later"]
            assert "color=blue" in lines[1]

    def test_json_shows_the_state_too(self, jmsql: Command, jmsql_factory: library.ConnectionFactory) -> None:
        jmsql("send", "orders", "--lines", stdin=b"one\ntwo\n")
        with jmsql_factory.create_connection() as connection:
            session = connection.create_session(acknowledge_mode=library.AcknowledgeMode.CLIENT)
            connection.start()
            assert session.create_consumer(ORDERS).receive(timeout=60) is not None
            states = [line["state"] for line in jmsql("browse", "orders", "--json").lines]
            assert states == ["claimed", "ready"]
        assert [line["delivery_count"] for line in jmsql("browse", "orders", "--json").lines] == [1, 0]

    def test_delayed_messages_come_last_by_delivery_time(
        self, jmsql: Command, jmsql_factory: library.ConnectionFactory
    ) -> None:
        with jmsql_factory.create_context() as context:
            for hours in (2, 1):
                context.create_producer(delivery_delay=3600 * hours).send(ORDERS, f"in {hours} h")
        jmsql("send", "orders", "now", "--priority", "0")
        shown = [(line["state"], line["body"]) for line in jmsql("browse", "orders", "--json").lines]
        assert shown == [("ready", "now"), ("delayed", "in 1 h"), ("delayed", "in 2 h")]
        assert len(jmsql("browse", "orders", "--json", "--limit", "2").lines) == 2

    def test_a_limit_and_a_selector_choose(self, jmsql: Command) -> None:
        jmsql("send", "orders", "x", "--count", "250", "-p", "color=red")
        jmsql("send", "orders", "x", "-p", "color=blue")
        assert len(jmsql("browse", "orders", "--json").lines) == 20
        assert len(jmsql("browse", "orders", "--json", "--limit", "300").lines) == 251
        assert len(jmsql("browse", "orders", "--json", "--selector", "color = 'blue'").lines) == 1

    def test_nothing_found(self, jmsql: Command) -> None:
        jmsql("send", "orders", "x")
        outcome = jmsql("browse", "orders", "--selector", "color = 'blue'")
        assert (outcome.exit_code, outcome.text, outcome.errors) == (1, "", "No message found.\n")


def test_a_message_is_delayed(jmsql: Command) -> None:
    jmsql("send", "orders", "later", "--delivery-delay", "3600")
    [queue] = [each for each in jmsql("queues", "--json").document if each["queue"] == "orders"]
    assert (queue["ready"], queue["delayed"]) == (0, 1)
    [message] = jmsql("browse", "orders", "--json").lines
    assert message["delivery_time"] == message["timestamp"] + 3_600_000
    assert jmsql("send", "orders", "x", "--delivery-delay", "-1").exit_code == 2
