"""The batches of a streaming read in the database, beside maintenance that all clients share."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

import jmsql
from jmsql.spark.streaming.queue_stream import BatchLimits, SparkStream, Start, create_source
from jmsql.store.destinations.lookup import queue_id
from jmsql.store.receiving.redelivery import Release, lost_claims, release
from jmsql.store.wire._sync.runner import PsycopgRunner, Runner

NOBODY = 4711
"""The number of a connection that is not there."""


@pytest.fixture
def stream(jmsql_factory: jmsql.ConnectionFactory) -> Iterator[SparkStream]:
    """A read of a queue with three messages, which no client is connected to."""
    with jmsql_factory.create_context() as context:
        for body in "abc":
            context.create_producer().send(jmsql.Queue("orders"), body)
    assert jmsql_factory.url is not None
    with psycopg.connect(jmsql_factory.url, autocommit=True) as connection:
        driver = PsycopgRunner(connection, "jmsql")
        source = driver.run(create_source(driver.run(queue_id("orders")), Start()))
        yield SparkStream.open(driver, source, None, lambda _: None)


@pytest.fixture
def control(jmsql_clean_url: str) -> Iterator[Runner]:
    with psycopg.connect(jmsql_clean_url, autocommit=True) as connection:
        yield PsycopgRunner(connection, "jmsql")


@pytest.fixture
def releases(stream: SparkStream, control: Runner) -> list[Release]:
    """What maintenance is about to release of the stream's first batch, which a dead driver has claimed."""
    assert stream.next_batch(0, BatchLimits(), NOBODY, look_everywhere=True) == 1
    releases = [Release(claim.key, claim.claim_id, 1) for claim in control.run(lost_claims(100))]
    assert len(releases) == 3
    return releases


def test_batch_that_is_frozen_before_its_claims_are_released_stays_whole(
    stream: SparkStream, control: Runner, releases: list[Release]
) -> None:
    frozen = stream.freeze(1, lambda _: 1)
    assert frozen is not None
    assert [part.messages for part in frozen.parts] == [3]
    control.run(release(releases))
    assert stream.freeze(1, lambda _: 1) == frozen
    assert control.run(lost_claims(100)) == []


def test_batch_that_is_frozen_later_has_the_claims_that_are_left(
    stream: SparkStream, control: Runner, releases: list[Release]
) -> None:
    control.run(release(releases[:2]))
    frozen = stream.freeze(1, lambda _: 1)
    assert frozen is not None
    assert ([part.messages for part in frozen.parts], frozen.missing) == ([1], 0)
    assert control.run(lost_claims(100)) == []
