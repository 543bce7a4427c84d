"""Judges the facts of `store.administration.diagnosis`: whether messages move, and who keeps them from it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from jmsql.cli.doctor.finding import Finding, Health, shortened
from jmsql.cli.terminal.output import counted
from jmsql.selectors import Selector
from jmsql.spark.database import waiting_streams, waiting_writes
from jmsql.store.administration import diagnosis
from jmsql.store.administration.diagnosis import PreparedTransaction
from jmsql.store.administration.selector_indexes import selector_indexes, serving
from jmsql.store.runners._sync.runner import Runner

__all__ = ["Thresholds", "examine_clock", "examine_messages", "finishing_advice"]

_NOTED_SKEW = 1.0
_DEEP = 1000
_SHOWN = 5
_STREAM_COMES_BACK = 26 * 3600.0
"""Within so many seconds, also if its query runs once a day."""
_WRITE_ENDS = 3600.0
"""Within so many seconds after its first task, if it is not a very long one."""


class Thresholds(NamedTuple):
    """How many seconds things may take."""

    oldest_snapshot: float = 60.0
    longest_transaction: float = 60.0
    longest_claim: float = 600.0


def examine_clock(runner: Runner) -> Finding:
    """Compare the clocks. Clients reckon with the server's where theirs is wrong."""
    skew = runner.run(diagnosis.clock_skew())
    if abs(skew.seconds) <= _NOTED_SKEW + skew.uncertainty:
        return Finding("clock", Health.ok, f"this machine's and the server's agree within {_NOTED_SKEW:g} s")
    ahead, behind = ("the server's", "this machine's") if skew.seconds > 0 else ("this machine's", "the server's")
    return Finding(
        "clock",
        Health.note,
        f"{ahead} is {abs(skew.seconds):.1f} s ahead of {behind}",
        "Messages expire and become due by the server's clock, but timestamps of logs and of messages do not agree. "
        "Let both keep time by NTP.",
    )


def examine_messages(runner: Runner, thresholds: Thresholds) -> Iterator[Finding]:
    """Examine who holds messages, and what waits for somebody.

    Args:
        runner: Asks for the facts.
        thresholds: How long things may take.
    """
    yield from _transactions(runner, thresholds)
    yield from _claims(runner, thresholds)
    yield from _prepared(runner, thresholds)
    yield from _streams(runner)
    yield from _writes(runner)
    yield from _selectors(runner)
    yield from _unattended(runner)
    yield from _failing(runner)
    yield from _dead_letters(runner)


def _transactions(runner: Runner, thresholds: Thresholds) -> Iterator[Finding]:
    transactions = runner.run(diagnosis.transactions)
    late = [each for each in transactions if each.transaction_seconds > thresholds.longest_transaction]
    for each in late[:_SHOWN]:
        is_idle = each.state is not None and each.state.startswith("idle in transaction")
        who = f"session {each.application_name!r} of process {each.process_id}, user {each.user_name!r}"
        doing = f"{each.state}" + (f" for {each.state_seconds:,.0f} s, after" if is_idle else "")
        yield Finding(
            "transactions",
            Health.problem,
            f"messages are held for {each.transaction_seconds:,.0f} s by the transaction of the {who}; "
            f"{doing}: {shortened(each.query)}",
            (
                "It has received or sent messages and does nothing: see what its program waits for. "
                if is_idle
                else "Its handler or statement takes long. "
            )
            + f"To have the messages delivered again, end it: select pg_terminate_backend({each.process_id}).",
        )
    if not late:
        says = f"{counted(len(transactions), 'open transaction')} with messages"
        yield Finding("transactions", Health.ok, says)


def _claims(runner: Runner, thresholds: Thresholds) -> Iterator[Finding]:
    claims = runner.run(diagnosis.claims)
    late = [each for each in claims if each.seconds > thresholds.longest_claim]
    for each in late[:_SHOWN]:
        client = "" if each.client_id is None else f", client {each.client_id!r}"
        yield Finding(
            "claims",
            Health.note,
            f"connection {each.connection_id} (process {each.process_id} on {each.host}{client}) holds "
            f"{counted(each.claimed, 'message')}, the first of {each.destination!r} for {each.seconds:,.0f} s",
            "Its listener takes long, or it does not acknowledge. If it hangs, end the process: its messages are then "
            "delivered again. A visibility timeout of the destination takes them from such a client.",
        )
    if not late:
        claimed = sum(each.claimed for each in claims)
        yield Finding("claims", Health.ok, f"{counted(claimed, 'message')} held by {counted(len(claims), 'client')}")


def _prepared(runner: Runner, thresholds: Thresholds) -> Iterator[Finding]:
    prepared = runner.run(diagnosis.prepared_transactions)
    late = [each for each in prepared if each.seconds > thresholds.longest_transaction]
    for each in late[:_SHOWN]:
        yield Finding(
            "two-phase",
            Health.problem,
            f"the transaction {each.identifier!r} of {each.owner!r} is in doubt for {each.seconds:,.0f} s"
            + (", and holds messages" if each.holds_messages else ""),
            finishing_advice(each),
        )
    if not late:
        yield Finding("two-phase", Health.ok, f"{counted(len(prepared), 'prepared transaction')}")


def finishing_advice(transaction: PreparedTransaction) -> str:
    """Say how a prepared transaction ends, and only what cannot lose or double anything."""
    name = transaction.identifier.replace("'", "''")
    if transaction.is_global:
        return (
            "Its transaction manager is to finish it (tpc_recover, then tpc_commit or tpc_rollback). If that is "
            "gone for good, look into its log, and at the other branches of the transaction: if any was committed, "
            f"commit prepared '{name}'; if it never decided to commit, rollback prepared '{name}'."
        )
    return "jmsql has not prepared it: the program that did so is to finish it, and knows how."


def _streams(runner: Runner) -> Iterator[Finding]:
    streams = runner.run(waiting_streams.bind(seconds=_STREAM_COMES_BACK))
    for each in streams[:_SHOWN]:
        place = "all destinations" if each.destination is None else repr(each.destination)
        kept = f"{counted(each.claimed, 'message')} of" if each.claimed else "the history of"
        yield Finding(
            "streams",
            Health.note,
            f"a streaming read of Spark keeps {kept} {place}, and has not gone on for {each.seconds / 3600:,.0f} hours",
            "Start its query again, or see why it does not get on. If its checkpoint is gone for good: "
            f"select jmsql.forget_spark_source('{each.source_id}').",
        )
    if not streams:
        yield Finding("streams", Health.ok, "no streaming read of Spark has stayed behind")


def _writes(runner: Runner) -> Iterator[Finding]:
    writes = runner.run(waiting_writes.bind(seconds=_WRITE_ENDS))
    for each in writes[:_SHOWN]:
        name = each.write_id.replace("'", "''")
        yield Finding(
            "writes",
            Health.note,
            f"the write {each.write_id!r} of Spark has messages of {counted(each.tasks, 'task')} that nobody sees, the "
            f"first for {each.seconds / 3600:,.0f} hours",
            "Leave it if its driver runs. If that is gone, they are deleted after a day, or with the next batch of its "
            "query; within a minute after: update jmsql_internal.pending_transaction set abandoned = true where "
            f"write_id = '{name}'.",
        )
    if not writes:
        yield Finding("writes", Health.ok, "no write of Spark waits for its driver")


def _selectors(runner: Runner) -> Iterator[Finding]:
    indexes = runner.run(selector_indexes())
    for index in indexes:
        if not index.valid:
            yield Finding(
                "selectors",
                Health.problem,
                f"the index {index.name} is not valid: its making broke off, and it costs each send something",
                f"Make it again with `jmsql destination index`, or drop it: drop index concurrently {index.name}.",
            )
    consumers = runner.run(diagnosis.selective_consumers(_DEEP))
    slow = []
    for each in consumers:
        selector = Selector.parse(each.selector)
        if selector is None or serving(indexes, selector.indexable_expressions) is not None:
            continue
        slow.append(each)
        can_be_served = bool(selector.indexable_expressions)
        yield Finding(
            "selectors",
            Health.note,
            f"{counted(each.consumers, 'consumer')} of {each.queue!r} ({each.depth:,} messages) with the selector "
            f"{each.selector!r}, which no index serves",
            (
                f'If few messages match: jmsql destination index {each.queue} "{each.selector}"'
                if can_be_served
                else "No index can serve it. If few messages match, give them a queue of their own, or add to it a "
                "comparison by = with a property that they share."
            ),
        )
    if not slow and all(index.valid for index in indexes):
        yield Finding("selectors", Health.ok, "no consumer reads many messages in vain")


def _unattended(runner: Runner) -> Iterator[Finding]:
    queues = runner.run(diagnosis.unattended_queues)
    if not queues:
        yield Finding("consumers", Health.ok, "every queue with messages has one, or is for letters")
        return
    names = ", ".join(_waiting(each.queue, each.ready, each.oldest_seconds) for each in queues[:_SHOWN])
    more = f" and {len(queues) - _SHOWN} more" if len(queues) > _SHOWN else ""
    yield Finding(
        "consumers",
        Health.note,
        f"nobody receives from {names}{more}",
        "Start what is to receive, or see who sends there. Programs that receive inside their own transactions, and "
        "those that open a consumer for less than a second, are not known.",
    )


def _failing(runner: Runner) -> Iterator[Finding]:
    destinations = runner.run(diagnosis.failing)
    if not destinations:
        yield Finding("redelivery", Health.ok, "no message has failed and waits to be delivered again")
        return
    for each in destinations[:_SHOWN]:
        waiting = ""
        if each.waiting:
            until = "" if each.seconds is None else f", the last for {each.seconds:,.0f} s"
            waiting = f"; {each.waiting:,} of them {'waits' if each.waiting == 1 else 'wait'}{until}"
        yield Finding(
            "redelivery",
            Health.note,
            f"{counted(each.messages, 'message')} of {each.destination!r} failed up to "
            f"{counted(each.most_errors, 'time')}{waiting}",
            "The log of the program that receives them says why, and so does last_error in jmsql.messages. Those that "
            "go on failing move to the dead-letter queue.",
        )


def _dead_letters(runner: Runner) -> Iterator[Finding]:
    queues = runner.run(diagnosis.dead_letters)
    if not queues:
        yield Finding("dead letters", Health.ok, "there are none")
        return
    letters = (
        f"{counted(each.ready, 'message')} in {each.queue!r}, the oldest for {each.oldest_seconds or 0.0:,.0f} s"
        for each in queues[:_SHOWN]
    )
    yield Finding(
        "dead letters",
        Health.note,
        "; ".join(letters),
        "select * from jmsql.dead_letters says why. When the cause is fixed, `jmsql retry` sends them back.",
    )


def _waiting(queue: str, ready: int, seconds: float | None) -> str:
    number = "1,000 messages or more" if ready >= _DEEP else counted(ready, "message")
    return f"{queue!r} ({number}" + (")" if seconds is None else f", the oldest for {seconds:,.0f} s)")
