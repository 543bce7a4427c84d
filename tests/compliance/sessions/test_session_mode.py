"""The mode of a session: by the arguments of JMS 1.1, and by the one of JMS 2.0."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

import jmsql.asyncio.domains
import jmsql.asyncio.xa
import jmsql.domains
import jmsql.xa
from jmsql import AcknowledgeMode, ConnectionFactory, JMSException
from jmsql.concurrency.tasks import obtain
from tests.compliance.apis import Api

MODES = list(AcknowledgeMode)

KINDS = {
    "connection": (jmsql, "ConnectionFactory", []),
    "queue_connection": (jmsql.domains, "QueueConnectionFactory", ["create_queue_session"]),
    "topic_connection": (jmsql.domains, "TopicConnectionFactory", ["create_topic_session"]),
    "xa_queue_connection": (jmsql.xa, "XAQueueConnectionFactory", ["create_queue_session"]),
    "xa_topic_connection": (jmsql.xa, "XATopicConnectionFactory", ["create_topic_session"]),
}
kinds = pytest.mark.parametrize("kind", KINDS)
worlds = pytest.mark.parametrize("is_async", [False, True], ids=["threads", "asyncio"])


@asynccontextmanager
async def creators(url: str, kind: str, *, is_async: bool) -> AsyncIterator[list[Callable[..., Any]]]:
    """Return the methods of a connection that make sessions."""
    module, name, methods = KINDS[kind]
    if is_async:
        module = (
            getattr(jmsql.asyncio, module.__name__.removeprefix("jmsql.")) if module is not jmsql else jmsql.asyncio
        )
    connection = await obtain(getattr(getattr(module, name)(url), f"create_{kind}"))
    yield [getattr(connection, method) for method in ("create_session", *methods)]
    await obtain(connection.close)


@worlds
@kinds
async def test_a_session_has_the_mode_that_was_asked_for(jmsql_url: str, kind: str, is_async: bool) -> None:
    async with creators(jmsql_url, kind, is_async=is_async) as methods:
        for create in methods:
            for mode in MODES:
                assert {create(mode).acknowledge_mode, create(transacted=mode).acknowledge_mode} == {mode}
                assert create(mode).transacted is (mode is AcknowledgeMode.TRANSACTED)
                # Of a transacted session JMS ignores it.
                assert create(True, mode).acknowledge_mode is AcknowledgeMode.TRANSACTED
                if mode is not AcknowledgeMode.TRANSACTED:
                    assert create(False, mode).acknowledge_mode is mode


WRONG: list[tuple[tuple[Any, ...], str]] = [
    ((False, AcknowledgeMode.TRANSACTED), "has no mode TRANSACTED"),
    ((False, 0), "has no mode TRANSACTED"),
    ((AcknowledgeMode.CLIENT, AcknowledgeMode.DUPS_OK), "Expected one AcknowledgeMode"),
    ((AcknowledgeMode.CLIENT, False), "Expected one AcknowledgeMode"),
    ((2,), "Expected True or False"),
    ((0,), "Expected True or False"),
    (("TRANSACTED",), "Expected True or False"),
    ((None,), "Expected True or False"),
    ((False, 7), "Expected an AcknowledgeMode"),
    ((False, True), "Expected an AcknowledgeMode"),
    ((False, None), "Expected an AcknowledgeMode"),
    ((False, jmsql.DeliveryMode.PERSISTENT), "Expected an AcknowledgeMode"),
]


@worlds
@kinds
async def test_another_argument_is_no_mode(jmsql_url: str, kind: str, is_async: bool) -> None:
    async with creators(jmsql_url, kind, is_async=is_async) as methods:
        for create in methods:
            for arguments, why in WRONG:
                with pytest.raises(JMSException, match=why):
                    create(*arguments)


@pytest.mark.parametrize("mode", MODES)
def test_a_context_has_the_mode_that_was_asked_for(api: Api, jmsql_url: str, mode: AcknowledgeMode) -> None:
    factory = api.factory(ConnectionFactory(jmsql_url))
    with factory.create_context(mode) as context, factory.create_context(session_mode=mode) as by_name:
        assert context.session_mode is by_name.session_mode is mode
        with context.create_context(mode) as second:
            assert second.session_mode is mode


def test_another_argument_is_no_mode_of_a_context(api: Api, jmsql_url: str) -> None:
    factory: Any = api.factory(ConnectionFactory(jmsql_url))
    for wrong in (True, "CLIENT", None, 7):
        with pytest.raises(JMSException, match="Expected an AcknowledgeMode"):
            factory.create_context(session_mode=wrong)
    with pytest.raises(JMSException, match="Expected one AcknowledgeMode"):
        factory.create_context(AcknowledgeMode.CLIENT, session_mode=AcknowledgeMode.DUPS_OK)
    for user, password in ((2, None), (True, None), ("app", 5)):
        with pytest.raises(TypeError, match="Expected a text or None for"):
            factory.create_context(user, password)
    with pytest.raises(TypeError, match="for user, got AcknowledgeMode"):
        factory.create_connection(AcknowledgeMode.CLIENT)
    with factory.create_context() as context:
        for wrong in (True, None):
            with pytest.raises(JMSException, match="Expected an AcknowledgeMode"):
                context.create_context(wrong)
