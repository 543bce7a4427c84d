"""News wakes one of the consumers that wait for the same messages, and more while there are some."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import NamedTuple

import pytest

from jmsql.store.control.wake_ups import Competition, StandingWait, Wait, WakeUps, bucket_of

QUEUE = 7
TOPIC = -3
ORDERS = Competition(QUEUE, None)
CHOSEN = Competition(QUEUE, "n = 1")


class Waits(NamedTuple):
    """Waits that go on, and the names of those that were woken, in turn."""

    wake_ups: WakeUps
    stack: ExitStack
    woken: list[str]

    def begin(
        self,
        name: str,
        competition: Competition | None = ORDERS,
        channels: tuple[int, ...] = (QUEUE,),
        count: int | None = None,
    ) -> Wait:
        known = self.wake_ups.count(channels) if count is None else count
        wait = Wait(self.wake_ups, competition, channels, known, lambda: self.woken.append(name))
        return self.stack.enter_context(wait)


@pytest.fixture
def waits() -> Iterator[Waits]:
    with ExitStack() as stack:
        yield Waits(WakeUps(), stack, [])


def test_news_wakes_one_after_the_other_of_those_that_wait_for_the_same(waits: Waits) -> None:
    for name in ("a", "b", "c"):
        waits.begin(name)
    waits.wake_ups.wake(QUEUE)
    assert waits.woken == ["a"]
    waits.wake_ups.wake(QUEUE)
    assert waits.woken == ["a", "b"]


def test_news_wakes_one_for_each_selector_and_all_that_cannot_be_replaced(waits: Waits) -> None:
    for number in range(2):
        waits.begin(f"all {number}")
        waits.begin(f"chosen {number}", CHOSEN)
        waits.begin(f"holder {number}", None)
    waits.wake_ups.wake(QUEUE)
    assert set(waits.woken) == {"all 0", "chosen 0", "holder 0", "holder 1"}


def test_a_change_wakes_all(waits: Waits) -> None:
    for name in ("a", "b", "c"):
        waits.begin(name)
    waits.wake_ups.wake(QUEUE, everyone=True)
    assert waits.woken == ["a", "b", "c"]


def test_news_of_a_topic_wakes_one_for_each_subscription(waits: Waits) -> None:
    for queue_id in (8, 9):
        for number in range(2):
            waits.begin(f"{queue_id} {number}", Competition(queue_id, None), (queue_id, TOPIC))
    waits.wake_ups.wake(TOPIC)
    assert waits.woken == ["8 0", "9 0"]
    waits.wake_ups.wake(8)
    assert waits.woken[2:] == ["8 1"]


def test_news_since_the_last_look_ends_a_wait_at_once(waits: Waits) -> None:
    before = waits.wake_ups.count([QUEUE])
    waits.wake_ups.wake(QUEUE)
    assert waits.begin("late", count=before).is_chosen
    assert waits.woken == ["late"]


def test_a_consumer_that_has_found_a_message_wakes_another_one(waits: Waits) -> None:
    for name in ("a", "b", "c", "d"):
        waits.begin(name)
    waits.wake_ups.wake(QUEUE)
    waits.wake_ups.wake_more(ORDERS)
    assert waits.woken == ["a", "b"]


def test_an_empty_fetch_holds_for_competing_consumers_until_a_notification(waits: Waits) -> None:
    wake_ups = waits.wake_ups
    wake_ups.record_empty(wake_ups.start_fetch(ORDERS, (QUEUE,)))
    assert wake_ups.is_known_empty(wake_ups.start_fetch(ORDERS, (QUEUE,)), 60.0)
    assert not wake_ups.is_known_empty(wake_ups.start_fetch(CHOSEN, (QUEUE,)), 60.0)
    assert not wake_ups.is_known_empty(wake_ups.start_fetch(ORDERS, (QUEUE, TOPIC)), 60.0)
    wake_ups.wake(QUEUE)
    assert not wake_ups.is_known_empty(wake_ups.start_fetch(ORDERS, (QUEUE,)), 60.0)


def test_an_empty_fetch_does_not_hold_after_a_notification_during_it(waits: Waits) -> None:
    wake_ups = waits.wake_ups
    begun = wake_ups.start_fetch(ORDERS, (QUEUE,))
    wake_ups.wake(QUEUE)
    wake_ups.record_empty(begun)
    assert not wake_ups.is_known_empty(wake_ups.start_fetch(ORDERS, (QUEUE,)), 60.0)


def test_an_empty_fetch_does_not_hold_for_the_clients_own_sends(waits: Waits) -> None:
    wake_ups = waits.wake_ups
    wake_ups.record_empty(wake_ups.start_fetch(ORDERS, (QUEUE,)))
    wake_ups.told(QUEUE)
    assert not wake_ups.is_known_empty(wake_ups.start_fetch(ORDERS, (QUEUE,)), 60.0)


def test_an_empty_fetch_holds_for_others_for_a_while_only(waits: Waits) -> None:
    waits.wake_ups.record_empty(waits.wake_ups.start_fetch(ORDERS, (QUEUE,)))
    look = waits.wake_ups.start_fetch(ORDERS, (QUEUE,))
    assert waits.wake_ups.is_known_empty(look._replace(seconds=look.seconds + 30.0), 60.0)
    assert not waits.wake_ups.is_known_empty(look._replace(seconds=look.seconds + 90.0), 60.0)


def test_all_consumers_fetch_when_a_notification_may_have_been_missed(waits: Waits) -> None:
    wake_ups = waits.wake_ups
    wake_ups.record_empty(wake_ups.start_fetch(ORDERS, (QUEUE,)))
    waits.begin("queue")
    waits.begin("topic", channels=(QUEUE, TOPIC))
    wake_ups.wake_all()
    assert sorted(waits.woken) == ["queue", "topic"]
    assert not wake_ups.is_known_empty(wake_ups.start_fetch(ORDERS, (QUEUE,)), 60.0)


def test_a_woken_consumer_that_does_not_fetch_wakes_another_one(waits: Waits) -> None:
    first = waits.begin("a")
    waits.begin("b")
    waits.wake_ups.wake(QUEUE)
    first.pass_on()
    first.pass_on()
    assert waits.woken == ["a", "b"]


def test_a_consumer_cancelled_as_it_is_woken_wakes_another_one(waits: Waits) -> None:
    waits.begin("b")

    def be_cancelled() -> None:
        with Wait(waits.wake_ups, CHOSEN, (QUEUE,), 0, lambda: waits.woken.append("a")):
            waits.begin("c", CHOSEN)
            waits.wake_ups.wake(QUEUE)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        be_cancelled()
    assert sorted(waits.woken) == ["a", "b", "c"]


def test_nothing_is_left_of_waits_that_have_ended() -> None:
    wake_ups = WakeUps()
    with Wait(wake_ups, ORDERS, (QUEUE, TOPIC), 0, lambda: None):
        assert set(wake_ups.channels()) == {QUEUE, TOPIC}
        assert wake_ups.waited_for == 2
    assert wake_ups.channels() == []
    assert wake_ups.waited_for == 0


def test_a_wait_that_senders_do_not_know_is_announced() -> None:
    asked: list[bool] = []
    wake_ups = WakeUps(lambda: asked.append(True))
    waits = Waits(wake_ups, ExitStack(), [])
    with waits.stack:
        waits.begin("a")
        waits.begin("b")
        assert len(asked) == 2
        assert wake_ups.unannounced() == {bucket_of(QUEUE)}
        wake_ups.announced({bucket_of(QUEUE)})
        assert wake_ups.unannounced() == set()
        assert waits.woken == ["a"], "one of those that wait for the same looks once more"
        waits.begin("c")
        assert len(asked) == 2
    assert wake_ups.unannounced() == set()


def test_a_fetch_before_the_announcement_is_repeated() -> None:
    waits = Waits(WakeUps(lambda: None), ExitStack(), [])
    before = waits.wake_ups.count([QUEUE])
    waits.wake_ups.announced({bucket_of(QUEUE)})
    assert waits.begin("late", count=before).is_chosen
    assert waits.woken == ["late"]


def test_an_empty_fetch_does_not_hold_for_others_before_the_announcement() -> None:
    wake_ups = WakeUps(lambda: None)
    wake_ups.record_empty(wake_ups.start_fetch(ORDERS, (QUEUE,)))
    assert not wake_ups.is_known_empty(wake_ups.start_fetch(ORDERS, (QUEUE,)), 60.0)
    wake_ups.announced({bucket_of(QUEUE)})
    assert not wake_ups.is_known_empty(wake_ups.start_fetch(ORDERS, (QUEUE,)), 60.0)
    wake_ups.record_empty(wake_ups.start_fetch(ORDERS, (QUEUE,)))
    assert wake_ups.is_known_empty(wake_ups.start_fetch(ORDERS, (QUEUE,)), 60.0)


def test_buckets_without_a_wait_for_a_while_are_withdrawn() -> None:
    wake_ups = WakeUps(lambda: None)
    both = {bucket_of(QUEUE), bucket_of(TOPIC)}
    wake_ups.announced(both)
    with Wait(wake_ups, ORDERS, (QUEUE, TOPIC), wake_ups.count((QUEUE, TOPIC)), lambda: None):
        assert wake_ups.unused() == set()
        assert wake_ups.unused() == set()
    with Wait(wake_ups, ORDERS, (QUEUE,), wake_ups.count((QUEUE,)), lambda: None):
        pass
    assert wake_ups.unused() == {bucket_of(TOPIC)}
    assert wake_ups.unused() == {bucket_of(QUEUE)}
    wake_ups.add_waiter(QUEUE)
    assert wake_ups.unannounced() == {bucket_of(QUEUE)}
    wake_ups.announced({bucket_of(QUEUE)})
    assert wake_ups.unused() == wake_ups.unused() == set()
    wake_ups.nothing_is_announced()
    assert wake_ups.unannounced() == {bucket_of(QUEUE)}
    wake_ups.remove_waiter(QUEUE)
    assert wake_ups.unannounced() == set()


@pytest.mark.parametrize("kind", [Wait, StandingWait])
def test_an_announcement_stands_until_those_that_it_wakes_wait_again(kind: type[Wait | StandingWait]) -> None:
    wake_ups = WakeUps(lambda: None)
    bucket = {bucket_of(QUEUE)}
    standing = StandingWait(wake_ups, lambda: None)
    wake_ups.stand(standing, frozenset({QUEUE}))

    def wait() -> Wait | StandingWait:
        wake_ups.take_news(standing)
        if kind is StandingWait:
            return standing
        return Wait(wake_ups, ORDERS, (QUEUE,), wake_ups.count((QUEUE,)), lambda: None)

    with wait():
        wake_ups.announced(bucket)
    for _ in range(3):  # a second look that takes long
        assert wake_ups.unused() == set()
    with wait():
        assert wake_ups.unannounced() == set()
    assert wake_ups.unused() == set()
    assert wake_ups.unused() == bucket


@pytest.fixture
def standing(waits: Waits) -> StandingWait:
    """The waits for a queue and a topic, none of whose news is new any more."""
    standing = StandingWait(waits.wake_ups, lambda: waits.woken.append("standing"))
    waits.wake_ups.stand(standing, frozenset({QUEUE, TOPIC}))
    assert set(waits.wake_ups.take_news(standing)[0]) == {QUEUE, TOPIC}  # of which it has not heard before
    return standing


def test_a_session_that_waits_for_many_queues_is_woken_once_and_told_which_have_news(
    waits: Waits, standing: StandingWait
) -> None:
    with standing:
        for channel in (QUEUE + 1, TOPIC, QUEUE, TOPIC):
            waits.wake_ups.wake(channel)
    assert waits.woken == ["standing"]
    new, misses_news = waits.wake_ups.take_news(standing)
    assert (list(new), misses_news) == ([TOPIC, QUEUE], False)
    assert waits.wake_ups.take_news(standing) == ({}, False)


def test_news_between_two_waits_for_many_queues_ends_the_second(waits: Waits, standing: StandingWait) -> None:
    waits.wake_ups.wake(QUEUE)
    assert not waits.woken
    with standing:
        assert waits.woken == ["standing"]
        waits.wake_ups.wake(TOPIC)
    assert waits.woken == ["standing"]
    assert list(waits.wake_ups.take_news(standing)[0]) == [QUEUE, TOPIC]


def test_a_session_that_waits_for_many_queues_is_told_of_a_gap(waits: Waits, standing: StandingWait) -> None:
    with standing:
        waits.wake_ups.wake_all()
    assert waits.woken == ["standing"]
    assert waits.wake_ups.take_news(standing) == ({}, True)


def test_senders_are_told_of_many_queues_only_while_the_session_waits() -> None:
    asked: list[None] = []
    wake_ups = WakeUps(lambda: asked.append(None))
    standing = StandingWait(wake_ups, lambda: None)
    wake_ups.stand(standing, frozenset({QUEUE, TOPIC}))
    wake_ups.take_news(standing)
    buckets = {bucket_of(QUEUE), bucket_of(TOPIC)}
    assert not wake_ups.unannounced()
    with standing:
        assert wake_ups.unannounced() == buckets
        assert len(asked) == 1
        wake_ups.announced(buckets)
    assert set(wake_ups.take_news(standing)[0]) == {QUEUE, TOPIC}  # messages before that went untold
    with standing:
        assert not wake_ups.unused()
        assert not wake_ups.unused()
    assert wake_ups.unused() == buckets


def test_a_session_hears_no_more_of_a_queue_that_it_has_left(waits: Waits, standing: StandingWait) -> None:
    waits.wake_ups.wake(QUEUE)
    waits.wake_ups.stand(standing, frozenset({TOPIC}))
    waits.wake_ups.wake(QUEUE)
    assert waits.wake_ups.channels() == [TOPIC]
    assert waits.wake_ups.take_news(standing) == ({}, False)
    waits.wake_ups.stand(standing, frozenset())
    assert not waits.wake_ups.channels()
