"""Receiving: the statements that hand out a queue's next messages, and the queries beside them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple, Protocol, TypeVar

from jmsql.exceptions import IllegalStateException, JMSException
from jmsql.selectors import Selector, SelectorSQL
from jmsql.store.history.keeping import RECORDED, QueuesWithHistory, history
from jmsql.store.receiving.candidates import (
    HAS_NOT_EXPIRED,
    LAST_SEQUENCE,
    NO_CLAIMS,
    by_key,
    candidates,
    following,
    grouped_candidates,
    makes_wait,
    same_group,
    snapshot,
)
from jmsql.store.receiving.late_messages import ScanStart, Snapshot
from jmsql.store.receiving.redelivery import UNIQUE_VIOLATION
from jmsql.store.rows.columns import BODY_COLUMNS, SHARED_BODY, and_chosen, message_columns
from jmsql.store.rows.message_rows import (
    MessageRow,
    as_claimed_rows,
    as_dequeued_row,
    as_locked_rows,
)
from jmsql.store.statement import (
    Query,
    Result,
    SqlFile,
    Statement,
    Steps,
    array_literal,
    integers_literal,
    records,
    rows,
    value,
)

# Six statements hand out messages, over the same scan (`candidates`). They differ in the hold on a message, and so in
# its end:
#
# - `telling_lock_statement`: a row lock of the open transaction, for transacted sessions. Its end, or the client's
#   death, releases it without a trace. It tells as well if it has locked messages that others had just claimed.
# - `lock`: the same lock without that, for the looks of connection consumers, and for queues with groups where a
#   transaction would claim.
# - `claim`: a row in `delivery` with the client's number. It lasts until it is acknowledged or released, the client is
#   taken for dead, or the visibility timeout is over.
# - `claim_within_limit`: the same, for as many messages as a listener's limit over all workers allows.
# - `claim_for_transaction`: the same by a plain insertion, up to the first message that was delivered before. That one
#   is returned unclaimed, to be locked and recorded by itself.
# - `dequeue`: deletes and returns. The caller commits once it has the messages.
#
# Each reads a message's state twice: in the scan, by the statement's snapshot, and again under the row's lock, by a
# function with a snapshot of its own. Another consumer may have claimed and released the message in between (decision
# 8).


T = TypeVar("T")

_sql = SqlFile("receiving")
_running = _sql.statement("running", "receiving", value(Snapshot.parse))
_has_groups = _sql.statement("has_groups", "receiving", value(bool))
_isolation = _sql.statement("isolation", "receiving", value(str))

_DELETED_COLUMNS = message_columns()
_COLUMNS = message_columns(joined=True)
_NOT_OWN = "and m.transaction_id is distinct from (select pg_current_xact_id_if_assigned())"
_KEY = "m.queue_id, m.inverse_priority, m.sequence, m.group_hash"
_message_rows = records(MessageRow._make)
_dequeued_rows = records(as_dequeued_row)
_ask_to_dequeue = _sql.statement(
    "ask_to_dequeue", "receiving", _message_rows, {"columns": ", ".join(MessageRow._fields[:-2])}
)


_handle = itemgetter(MessageRow._fields.index("handle"))

# Sorted here: PostgreSQL takes ten times as long to sort so wide rows.


def _locked_rows(result: Result) -> list[MessageRow]:
    """Decode locked messages, in the order of their delivery."""
    return _locked(result).rows


def _locked(result: Result) -> Locked:
    """Decode locked messages, in the order of their delivery, and tell if others are locked that are not free."""
    found: list[MessageRow] = list(as_locked_rows(sorted(result.rows)))
    if None not in map(_handle, found):
        return Locked(found, has_lost=False)
    return Locked([row for row in found if row.handle is not None], has_lost=True)


def _claimed_rows(result: Result) -> list[MessageRow]:
    """Decode claimed messages, in the order of their delivery."""
    return list(as_claimed_rows(sorted(result.rows)))


def _claimed_rows_and_next(result: Result) -> list[MessageRow]:
    """Decode claimed messages, in the order of their delivery, and the one after them, if it is there, unclaimed."""
    found = _claimed_rows(result)
    if found and found[-1].handle is None:
        found[-1] = MessageRow._make(found[-1])
    return found


def _pair(result: Result) -> tuple[bool, bool]:
    [(first, second)] = result.rows
    return first, second


def _end_of_queue(result: Result) -> tuple[list[int], Snapshot]:
    [(highest, snapshot)] = result.rows
    return highest, Snapshot.parse(snapshot)


_highest_sequences = _sql.statement("highest_sequences", "receiving", _end_of_queue)

PRIORITIES = 10
"""The number of JMS priorities."""


class GroupScan(NamedTuple):
    """The message groups that a scan considers.

    Args:
        places: Further places to read: the first messages of groups, as (inverse priority, sequence).
        limit: The most messages to dequeue of the group of each place.
        own_claims: The consumer's claims: it gets more messages of their groups.
    """

    places: Sequence[tuple[int, int]] = ()
    limit: int = 1
    own_claims: Collection[int] = ()

    def candidates(self, limit: int) -> int:
        """Return how many candidates the scan looks for, if it is to bring up to `limit` messages.

        Each place stands for up to `self.limit` messages of its group.
        """
        return limit - len(self.places) * (self.limit - 1)


class Allowance(NamedTuple):
    """The part of a claim that a listener's limit allowed."""

    is_declared: bool
    """False: there is no such limit, and nothing was claimed."""
    counts_values: bool
    """True if the limit has a part for each value of a property."""
    granted: int
    """The most messages that the claim could bring."""
    passes_over: bool
    """True if it has skipped messages, whose values of a property are at their limit."""
    starts_left: int | None
    """The starts that were left before it; None without a rate, or with one for each value."""
    pause: float | None
    """Seconds until further messages may start once these are used up; None: no rate prevents them."""


class AllowedRows(NamedTuple):
    """Messages that were claimed within a limit."""

    rows: list[MessageRow]
    allowance: Allowance


class Locked(NamedTuple):
    """Messages that the open transaction has locked."""

    rows: list[MessageRow]
    has_lost: bool
    """True if it has also locked messages that other consumers had claimed between its snapshot and the locks."""


class Client(Protocol):
    """The client that receives messages, as the server knows it."""

    @property
    def connection_id(self) -> int:
        """The number of the client's connection."""

    @property
    def may_ask_to_dequeue(self) -> bool:
        """True if its role may have the server dequeue a message for it."""

    @property
    def queues_with_history(self) -> QueuesWithHistory:
        """The queues that keep history, as far as the client knows."""


class Fetch(Protocol):
    """A way to hand out messages: lock, dequeue or claim them."""

    def __call__(
        self,
        queue_id: int,
        selector: Selector | None,
        start: ScanStart,
        limit: int,
        groups: GroupScan | None = None,
        /,
    ) -> Query[list[MessageRow]] | Steps[list[MessageRow]]:
        """Return the next messages; the caller then holds them."""


def highest_sequences(queue_id: int, lowest: Sequence[int]) -> Query[tuple[list[int], Snapshot]]:
    """Return the highest sequence in the queue for each inverse priority, or 0, and the running transactions.

    The snapshot is exact if the queue has messages from the bounds on, and the transaction had no number before.
    """
    return _highest_sequences.bind(queue_id=queue_id, lowest=integers_literal(lowest))


def running() -> Query[Snapshot]:
    """Return the running transactions."""
    return _running.bind()


def has_groups(queue_id: int) -> Query[bool]:
    """Return whether the queue has, or had, messages of groups."""
    return _has_groups.bind(queue_id=queue_id)


def has_messages(queue_id: int, start: ScanStart) -> Query[tuple[bool, bool]]:
    """Return whether the queue has a message for `lock` from there on, and whether it has, or had, groups.

    With groups, the first is always False.
    """
    return next_messages(has_messages_statement(late=start.starts is not None), queue_id, start, 1, None)


def require_read_committed() -> Steps[None]:
    """Make sure that the open transaction can receive.

    Raises:
        IllegalStateException: Its isolation level is above READ COMMITTED. Its snapshot would hide later claims of
            other consumers, and it would deliver their messages a second time.
    """
    level = yield from _isolation.bind()
    if level != "read committed":
        raise IllegalStateException(
            f"The transaction's isolation level is {level}; messages are received in READ COMMITTED alone. Begin "
            "the transaction with `set transaction isolation level read committed`, or make it the connection's."
        )


def lock(
    queue_id: int, selector: Selector | None, start: ScanStart, limit: int, groups: GroupScan | None = None
) -> Query[list[MessageRow]]:
    """Lock the next messages for the open transaction, until it ends or deletes them.

    Args:
        queue_id: The queue.
        selector: Which of its messages are wanted; None: all.
        start: The start of the scan.
        limit: The most messages to return.
        groups: The groups; None returns nothing from a queue that has, or had, messages of groups.
    """
    statement = lock_statement(
        selector,
        grouped=groups is not None,
        late=start.starts is not None,
        places=groups is not None and len(groups.places) > 0,
    )
    return next_messages(statement, queue_id, start, limit, groups)


def claim(
    queue_id: int,
    selector: Selector | None,
    start: ScanStart,
    limit: int,
    connection_id: int,
    visibility_timeout: float | None = None,
    groups: GroupScan | None = None,
) -> Steps[list[MessageRow]]:
    """Claim the next messages for a connection, until it acknowledges or releases them, or dies.

    With a visibility timeout, in seconds, the claim is taken away unless it is extended in time.
    """
    late = start.starts is not None
    statement = claim_statement(
        selector,
        grouped=groups is not None,
        late=late,
        places=groups is not None and len(groups.places) > 0,
        is_single=limit == 1,
    )
    more = {"connection_id": connection_id, "visibility_timeout": visibility_timeout}
    claiming = next_messages(statement, queue_id, start, limit, groups, **more)
    try:
        return (yield from claiming)
    except JMSException as error:
        if error.error_code != UNIQUE_VIOLATION:
            raise
    return (yield from claiming)


def claim_within_limit(
    queue_id: int,
    selector: Selector | None,
    start: ScanStart,
    limit: int,
    connection_id: int,
    holder_id: int,
    visibility_timeout: float | None = None,
    groups: GroupScan | None = None,
    *,
    counts_values: bool,
) -> Query[AllowedRows]:
    """Claim messages as `claim` does, as many as the limit of the queue's listeners with the selector allows.

    Args:
        queue_id: The queue.
        selector: Which of its messages are wanted; None: all.
        start: The start of the scan.
        limit: The most messages to return; with groups, one.
        connection_id: The number of the client's connection.
        holder_id: The number under which the client holds slots.
        visibility_timeout: As for `claim`.
        groups: The groups.
        counts_values: True if the limit may have a part for each value of a property; else such a limit grants none.
    """
    statement = claim_within_limit_statement(
        selector,
        grouped=groups is not None,
        late=start.starts is not None,
        counts_values=counts_values,
        places=groups is not None and len(groups.places) > 0,
    )
    more = {
        "connection_id": connection_id,
        "visibility_timeout": visibility_timeout,
        "holder_id": holder_id,
        "chosen": "" if selector is None else selector.text,
    }
    return next_messages(statement, queue_id, start, limit if groups is None else 1, groups, **more)


def claim_for_transaction(
    connection_id: int,
    queue_id: int,
    selector: Selector | None,
    start: ScanStart,
    limit: int,
    groups: GroupScan | None = None,
) -> Query[list[MessageRow]]:
    """Claim the next messages for a connection, up to the first of whose deliveries something is known.

    That message comes last and is not claimed. Messages of a queue with groups are not claimed either, but locked.
    """
    if groups is not None:
        return lock(queue_id, selector, start, limit, groups)
    statement = claim_for_transaction_statement(selector, late=start.starts is not None)
    return next_messages(statement, queue_id, start, limit, None, connection_id=connection_id)


def dequeue(
    queue_id: int,
    selector: Selector | None,
    start: ScanStart,
    limit: int,
    groups: GroupScan | None = None,
    *,
    client: Client | None = None,
    restricted: bool = False,
    asks: bool = False,
) -> Query[list[MessageRow]]:
    """Dequeue the next messages, with the arguments of `lock`.

    Args:
        queue_id: The queue.
        selector: Which of its messages are wanted; None: all.
        start: The start of the scan.
        limit: The most messages to dequeue.
        groups: The groups; None: the queue has none.
        client: The receiver; None: a caller without a jmsql connection.
        restricted: True if policies hide messages from the role, which then asks for a removal.
        asks: True to find out if others follow.
    """
    is_plain = selector is None and groups is None and limit == 1 and start.starts is None
    if restricted and is_plain and client is not None and client.may_ask_to_dequeue:
        return ask_to_dequeue(queue_id, start.lowest, client.connection_id)
    statement = dequeue_statement(
        selector,
        grouped=groups is not None,
        late=start.starts is not None,
        places=groups is not None and len(groups.places) > 0,
        # A client that knows that the queue keeps no history pays for none.
        record=not restricted and (client is None or queue_id in client.queues_with_history.possible),
        restricted=restricted,
        asks=asks and groups is None and not restricted,
    )
    connection_id = None if client is None else client.connection_id
    return next_messages(statement, queue_id, start, limit, groups, connection_id=connection_id)


def ask_to_dequeue(queue_id: int, lowest: Sequence[int], connection_id: int) -> Query[list[MessageRow]]:
    """Have the server dequeue the next message of a queue for a connection, for a role that may not delete.

    It returns nothing from a queue that has, or had, messages of groups.
    """
    return _ask_to_dequeue.bind(queue_id=queue_id, lowest=integers_literal(lowest), connection_id=connection_id)


def next_messages(
    statement: Statement[T],
    queue_id: int,
    start: ScanStart,
    limit: int,
    groups: GroupScan | None,
    **more: object,
) -> Query[T]:
    """Return a scan for the next messages with its parameters."""
    if groups is not None:
        limit = groups.candidates(limit)
        more["own_claims"] = array_literal(groups.own_claims)
    if groups is not None and groups.places:
        more["place_priorities"] = array_literal(inverse_priority for inverse_priority, _ in groups.places)
        more["place_sequences"] = array_literal(sequence for _, sequence in groups.places)
        more["place_limit"] = groups.limit
    if start.starts is not None:
        more |= {"running": start.running, "starts": start.starts, "later": start.later}
    return statement.bind(more, queue_id=queue_id, lowest=integers_literal(start.lowest), limit=limit)


def browse(queue_id: int, selector: Selector | None, after: tuple[int, int], limit: int) -> Query[list[MessageRow]]:
    """Read the messages after a key, given as (inverse priority, sequence), in the order of delivery."""
    return browse_statement(selector).bind(queue_id=queue_id, inverse_priority=after[0], sequence=after[1], limit=limit)


# Composed statements


def _found(
    selector: Selector | None,
    *,
    grouped: bool,
    late: bool = False,
    places: bool = False,
    own_claims: str = NO_CLAIMS,
    condition: str = "",
    is_read_again: bool = False,
    is_single: bool = False,
) -> SelectorSQL:
    """Compose the relation `found`.

    Args:
        selector: Selects the messages; None: all.
        grouped: True if the queue has messages of groups.
        late: True if transactions may have late messages.
        places: True if the scan reads further places, of a queue with groups.
        own_claims: The consumer's claims, as an expression.
        condition: A further condition on a message `m`.
        is_read_again: True if the statement reads the message again, and needs no more than its key.
        is_single: True if the caller mostly asks for one message.
    """
    if grouped:
        return grouped_candidates(selector, own_claims=own_claims, condition=condition, late=late, places=places)
    return candidates(selector, condition, _KEY if is_read_again else "m.*", is_single=is_single, late=late)


# The scan has read delivery states by the statement's snapshot. Another consumer may have claimed or released a message
# between the snapshot and the row's lock. A function has a snapshot of its own, taken after the locks, so
# `delivery_state` sees those changes; a join in this statement would not.
_STATE = """
        state as materialized (
            select s.*
            from (select pg_catalog.array_agg(inverse_priority) as priorities,
                         pg_catalog.array_agg(sequence) as sequences from found) k
            cross join lateral jmsql_internal.delivery_state(%(queue_id)s, k.priorities, k.sequences) s)"""
_IS_FREE = "s.claim_id is null and (s.next_attempt is null or s.next_attempt <= statement_timestamp())"


def _free(own_claims: str | None, *, keeps_lost: bool = False) -> str:
    """Compose the relations `state` and `free`: the rows of `found` that are free now that they are locked.

    Args:
        own_claims: The consumer's claims, as an expression; None: no row of `found` is of a group.
        keeps_lost: True to keep the others, too, and have `is_free` tell.
    """
    state, is_first = _STATE, ""
    if own_claims is not None:
        state += """,
        group_state as materialized (
            select s.* from jmsql_internal.group_state(%(queue_id)s,
                (select pg_catalog.array_agg(g.group_hash)
                 from found_group g where (select count(*) from found) > 0)) s)"""
        is_first = f"""
              and (f.group_hash is null or not exists (
                select from group_state g
                where g.group_hash = f.group_hash
                  and {makes_wait("g", "f", own_claims)}))"""
    is_free = f"{_IS_FREE} {is_first}"
    column, condition = (f", {is_free} as is_free", "") if keeps_lost else ("", f"where {is_free}")
    return f"""{state},
        free as (
            select f.*, s.delivery_count{column}
            from found f
            left join state s using (inverse_priority, sequence)
            {condition})"""


@lru_cache(maxsize=1024)
def lock_statement(
    selector: Selector | None, *, grouped: bool = False, late: bool = False, places: bool = False
) -> Statement[list[MessageRow]]:
    """Lock the next messages for the open transaction, except its own messages."""
    own_claims = "%(own_claims)s::bigint[]"
    found, parameters = _found(
        selector, grouped=grouped, late=late, places=places, own_claims=own_claims, condition=_NOT_OWN
    )
    return Statement(
        "lock",
        f"""with {found}, {_free(own_claims if grouped else None, keeps_lost=True)}
            select {_COLUMNS}, m.group_hash, m.delivery_count, case when m.is_free then m.address::text end,
                   {snapshot(grouped=grouped, of_one=True)}
            from free m {SHARED_BODY}""",
        "receiving",
        _locked_rows,
        parameters,
    )


@lru_cache(maxsize=1024)
def telling_lock_statement(selector: Selector | None, *, grouped: bool, late: bool, places: bool) -> Statement[Locked]:
    """Lock the next messages as `lock_statement` does, and tell if others were locked by mistake."""
    statement = lock_statement(selector, grouped=grouped, late=late, places=places)
    return Statement(statement.name, statement.text, statement.doing, _locked, statement.parameters)


@lru_cache(maxsize=2)
def has_messages_statement(*, late: bool = False) -> Statement[tuple[bool, bool]]:
    """Tell whether `lock` would find something, which takes a third of the time that it takes to find nothing."""
    found, parameters = candidates(None, _NOT_OWN, "m.sequence", is_single=True, locks=False, late=late)
    return Statement(
        "has_messages",
        f"with {found} select exists (select from found), ({_sql['has_groups']})",
        "receiving",
        _pair,
        parameters,
    )


@lru_cache(maxsize=1024)
def dequeue_statement(
    selector: Selector | None,
    *,
    grouped: bool = False,
    late: bool = False,
    places: bool = False,
    record: bool = False,
    restricted: bool = False,
    asks: bool = False,
) -> Statement[list[MessageRow]]:
    """Dequeue the next messages, as for `lock`.

    Args:
        selector: Which messages are wanted; None: all.
        grouped: Whether the queue has messages of groups.
        late: Whether transactions may have late messages.
        places: True if the scan reads further places, of a queue with groups.
        record: True to copy the messages to the queue's history, if it keeps one.
        restricted: True if the role may not delete, since it could then lock the tables. It asks for a removal instead,
            which keeps history where the queue has one.
        asks: True to return a single message as a `LastRow` if no other one follows. Not with groups.
    """
    follows = following(selector, _NOT_OWN).condition if asks else "null"
    found, parameters = _found(
        selector,
        grouped=grouped,
        late=late,
        places=places,
        condition=_NOT_OWN,
        is_read_again=not restricted,
        is_single=True,
    )
    key = "f.queue_id, f.inverse_priority, f.sequence"
    deliveries = f"jmsql_internal.deliveries_if_free({key})"
    if grouped:
        deliveries = f"""case when f.group_hash is null then {deliveries}
                              else jmsql_internal.deliveries_if_first({key}, f.group_hash) end"""
    kept, recorded = "", ""
    if record:
        part = history(
            queues="array[%(queue_id)s::integer]",
            addresses="array(select address from free where delivery_count is not null)",
            deliveries="array(select delivery_count from free where delivery_count is not null)",
            consumer="%(connection_id)s::bigint",
        )
        kept, recorded = f"{part},", f"and {RECORDED}"
    free = f"free as materialized (select f.*, {deliveries} as delivery_count from found f)"
    if restricted:
        return Statement(
            "dequeue",
            f"""with {found}, {free},
                removed as (
                    insert into jmsql_internal.removal (messages, deliveries, connection_id, is_exact)
                    select pg_catalog.array_agg(f.address),
                           array(select d.address from free f
                                 cross join {by_key("delivery", "d", "f")}
                                 where f.delivery_count is not null),
                           %(connection_id)s::bigint, true
                    from free f where f.delivery_count is not null having count(*) > 0)
                select {_COLUMNS}, m.group_hash, m.delivery_count, null, {snapshot(grouped=grouped)}
                from free m {SHARED_BODY} where m.delivery_count is not null""",
            "receiving",
            _message_rows,
            parameters,
        )
    return Statement(
        "take",
        f"""with {found}, {free},
            {kept}
            forgotten as (
                delete from jmsql_internal.delivery where ctid = any(array(
                    select d.address from free f cross join {by_key("delivery", "d", "f")}
                    where f.delivery_count is not null)))
            delete from jmsql_internal.message m using free f
            where m.ctid = f.address and f.delivery_count is not null {recorded}
            returning {_DELETED_COLUMNS}, m.group_hash, f.delivery_count, {follows}, {snapshot(grouped=grouped)}""",
        "receiving",
        _dequeued_rows if asks else _message_rows,
        parameters,
    )


_CLAIM_NUMBER = """claim as materialized (
                select set_config('synchronous_commit', 'off', true),
                       nextval('jmsql_internal.claim_sequence'::regclass) as claim_id,
                       claimed_at,
                       claimed_at + %(visibility_timeout)s::float8 * interval '1 second' as claim_expires_at
                from clock_timestamp() as claimed_at)"""
_INSERT_CLAIMS = """insert into jmsql_internal.delivery as d
                    (queue_id, inverse_priority, sequence, group_hash, claim_id, connection_id, claimed_at,
                     claim_expires_at)
                select f.queue_id, f.inverse_priority, f.sequence, f.group_hash, (select claim_id from claim),
                       %(connection_id)s::bigint, (select claimed_at from claim), (select claim_expires_at from claim)
                from free f"""
_OR_CLAIM_AGAIN = """on conflict (queue_id, inverse_priority, sequence) do update
                set claim_id = excluded.claim_id, connection_id = excluded.connection_id,
                    claimed_at = excluded.claimed_at, claim_expires_at = excluded.claim_expires_at,
                    next_attempt = null
                where d.claim_id is null
                  and (d.next_attempt is null or d.next_attempt <= statement_timestamp())"""


@lru_cache(maxsize=1024)
def claim_statement(
    selector: Selector | None,
    *,
    grouped: bool = False,
    late: bool = False,
    places: bool = False,
    is_single: bool = False,
) -> Statement[list[MessageRow]]:
    """Claim the next messages for a session, as for `lock`: they stay in the queue until it acknowledges them.

    Args:
        selector: Selects the messages; None: all.
        grouped: True if the queue has messages of groups.
        late: True if transactions may have late messages.
        places: True if the scan reads further places, of a queue with groups.
        is_single: True to claim one message, in less time; else several, each in less time.
    """
    # The commit need not reach the disk. A claim that a server's crash loses does no harm: the crash ends the sessions
    # that held claims, too.
    #
    # The statement writes the delivery state of free messages alone. It has locked the messages. If it waited for
    # another claim's row here, it would deadlock with the acknowledgement that is about to delete the message.
    #
    # A plain insertion takes less time than one that heeds conflicts, but for one message a second insertion takes more
    # than that. It fails if a client has just recorded a delivery after its rollback. An update would not do for the
    # messages with delivery states: it takes these by the statement's snapshot, and would leave out a message that was
    # released since, and claim the next ones of its group.
    own_claims = "%(own_claims)s::bigint[]"
    found, parameters = _found(
        selector, grouped=grouped, late=late, places=places, own_claims=own_claims, is_read_again=is_single
    )
    if is_single:
        claimed = f"""
            claimed as (
                {_INSERT_CLAIMS}
                {_OR_CLAIM_AGAIN}
                returning d.queue_id, d.inverse_priority, d.sequence, d.delivery_count, d.claim_id)
            select {_COLUMNS}, m.group_hash, d.delivery_count, d.claim_id, {snapshot(grouped=grouped, of_one=True)}
            from claimed d cross join {by_key("message", "m", "d")} {SHARED_BODY}"""
    else:
        claimed = f"""
            claimed as (
                {_INSERT_CLAIMS}
                where f.delivery_count is null),
            claimed_again as (
                {_INSERT_CLAIMS}
                where f.delivery_count is not null
                {_OR_CLAIM_AGAIN}
                returning d.inverse_priority, d.sequence, d.delivery_count)
            select {_COLUMNS}, m.group_hash, coalesce(a.delivery_count, 0), (select claim_id from claim),
                   {snapshot(grouped=grouped, of_one=True)}
            from free m
            left join claimed_again a on (a.inverse_priority, a.sequence) = (m.inverse_priority, m.sequence)
            {SHARED_BODY}
            where m.delivery_count is null or a.delivery_count is not null"""
    return Statement(
        "claim",
        f"with {_CLAIM_NUMBER}, {found}, {_free(own_claims if grouped else None)},{claimed}",
        "receiving",
        _claimed_rows,
        parameters,
    )


def _allowed_rows(result: Result) -> AllowedRows:
    """Decode messages, each followed by the allowance, or the allowance alone."""
    size = len(Allowance._fields)
    allowance = Allowance._make(result.rows[0][-size:])
    found = sorted(row[:-size] for row in result.rows if row[0] is not None)
    return AllowedRows(list(as_claimed_rows(found)), allowance)


def _value(by: str, alias: str) -> str:
    """Compose a message's value for a limit that counts by a property; `by` is `rate_by` or `at_most_by`."""
    # Not an SQL function: the planner does not inline a call whose argument is a subquery, and a call for each message
    # takes ten times as long.
    name = f"(select g.{by} from gate g)"
    return f"""(case when (select g.{by} is null from gate g) then '' else left(coalesce(case {name}
                    when 'JMSType' then {alias}.jms_type
                    when 'JMSCorrelationID' then {alias}.jms_correlation_id
                    when 'JMSPriority' then (9 - {alias}.inverse_priority)::text
                    else {alias}.properties ->> {name} end, ''), 200) end)"""


_NONE_IS_SHUT = "(select g.shut_rates = '{}' and g.shut_slots = '{}' from gate g)"
_IS_OPEN = f"""and ({_NONE_IS_SHUT}
                     or {_value("rate_by", "m")} <> all((select g.shut_rates from gate g)::text[])
                        and {_value("at_most_by", "m")} <> all((select g.shut_slots from gate g)::text[]))"""


def _waits_in_group(message: str) -> str:
    """Compose the condition that an earlier message of the group waits for the limit, which keeps the group's order."""
    return f"""exists (
                    select from jmsql_internal.message e
                    where {same_group("e", message, f"{message}.queue_id")}
                      and (e.inverse_priority, e.sequence) < ({message}.inverse_priority, {message}.sequence)
                      and ({_value("rate_by", "e")} = any((select g.shut_rates from gate g)::text[])
                           or {_value("at_most_by", "e")} = any((select g.shut_slots from gate g)::text[])))"""


_SHARE = "case when k.{0} = any(g.few_{1}) then 1 else g.{2} end"
_ALLOWED = f"""numbered as (
                select k.*,
                       row_number() over (partition by k.rate_value order by k.inverse_priority, k.sequence) as start,
                       row_number() over (partition by k.slot_value order by k.inverse_priority, k.sequence) as slot
                from (select f.*, {_value("rate_by", "f")} as rate_value, {_value("at_most_by", "f")} as slot_value
                      from free f) k),
            allowed as materialized (
                select k.* from numbered k cross join gate g
                where k.start <= {_SHARE.format("rate_value", "rates", "rate_share")}
                  and k.slot <= {_SHARE.format("slot_value", "slots", "slot_share")})"""


@lru_cache(maxsize=1024)
def claim_within_limit_statement(
    selector: Selector | None,
    *,
    grouped: bool = False,
    late: bool = False,
    places: bool = False,
    counts_values: bool = False,
) -> Statement[AllowedRows]:
    """Claim the next messages within a limit, as for `claim`."""
    # One statement, since a client that stops between two would hold the limit's row, and all listeners with it.
    #
    # `enter_limit` locks the limit's row first, and then reads its use, in functions with snapshots of their own: the
    # statement's snapshot is older than the lock. Messages that the scan locks and the limit refuses are free again
    # with the commit.
    own_claims = "%(own_claims)s::bigint[]"
    condition, columns = "", _KEY
    if counts_values:
        condition = _IS_OPEN
        columns = f"{_KEY}, m.properties, m.jms_type, m.jms_correlation_id"
    if grouped and counts_values:
        condition = f"{_IS_OPEN} and (m.group_hash is null or {_NONE_IS_SHUT} or not {_waits_in_group('m')})"
    if grouped:
        found, parameters = grouped_candidates(
            selector, own_claims=own_claims, condition=condition, late=late, places=places
        )
    else:
        found, parameters = candidates(selector, condition, columns, late=late)
    found = found.replace("%(limit)s", "(select g.granted from gate g)")
    allowed, values, noted = "allowed as materialized (select f.* from free f)", ("''::text", "''::text"), "claimed c"
    if counts_values:
        allowed, values = _ALLOWED, ("a.rate_value", "a.slot_value")
        noted = "claimed c join allowed a on (a.inverse_priority, a.sequence) = (c.inverse_priority, c.sequence)"
    return Statement(
        "claim_within_limit",
        f"""with gate as materialized (
                select g.* from jmsql_internal.enter_limit(
                    %(queue_id)s, %(chosen)s, %(holder_id)s::bigint, %(limit)s::bigint, {counts_values}) g),
            commit as materialized (
                select set_config('synchronous_commit', 'off', true),
                       nextval('jmsql_internal.claim_sequence'::regclass) as claim_id,
                       clock_timestamp() as claimed_at),
            {found}, {_free(own_claims if grouped else None)},
            {allowed},
            claimed as (
                insert into jmsql_internal.delivery as d
                    (queue_id, inverse_priority, sequence, group_hash, claim_id, connection_id, claimed_at,
                     claim_expires_at)
                select f.queue_id, f.inverse_priority, f.sequence, f.group_hash, commit.claim_id,
                       %(connection_id)s, commit.claimed_at,
                       commit.claimed_at + %(visibility_timeout)s::float8 * interval '1 second'
                from allowed f cross join commit
                on conflict (queue_id, inverse_priority, sequence) do update
                set claim_id = excluded.claim_id, connection_id = excluded.connection_id,
                    claimed_at = excluded.claimed_at, claim_expires_at = excluded.claim_expires_at,
                    next_attempt = null
                where d.claim_id is null
                  and (d.next_attempt is null or d.next_attempt <= statement_timestamp())
                returning d.queue_id, d.inverse_priority, d.sequence, d.delivery_count, d.claim_id),
            noted as materialized (
                select jmsql_internal.note_started(
                    g.limit_id, %(holder_id)s::bigint, %(connection_id)s::bigint,
                    pg_catalog.array_agg({values[0]}), pg_catalog.array_agg({values[1]}),
                    pg_catalog.array_agg(c.claim_id), pg_catalog.array_agg(c.inverse_priority),
                    pg_catalog.array_agg(c.sequence))
                from gate g cross join {noted}
                group by g.limit_id)
            select r.*, g.limit_id is not null, g.rate_by is not null or g.at_most_by is not null, g.granted,
                   not {_NONE_IS_SHUT} or (select count(*) from found) > (select count(*) from allowed),
                   g.starts_left, g.pause
            from gate g
            cross join (select count(*) as number from noted) n
            left join (
                select {_COLUMNS}, m.group_hash, d.delivery_count, d.claim_id, {snapshot(grouped=grouped, of_one=True)}
                from claimed d cross join {by_key("message", "m", "d")} {SHARED_BODY}) r on n.number >= 0""",
        "receiving",
        _allowed_rows,
        parameters,
    )


@lru_cache(maxsize=1024)
def claim_for_transaction_statement(selector: Selector | None, *, late: bool = False) -> Statement[list[MessageRow]]:
    """Claim the next messages, up to the first one with a delivery record.

    Like `claim`, but a plain insertion, and the message as the scan found it: that takes two thirds of the time. It
    fails if a client has just recorded a delivery after its rollback.
    """
    # The rows of `found` are wide. To keep them once more, joined with their states, would take a tenth of the time.
    found, parameters = _found(selector, grouped=False, late=late)
    is_next = "(m.inverse_priority, m.sequence) = (select k.inverse_priority, k.sequence from known k)"
    is_claimed = """((m.inverse_priority, m.sequence) not in (select s.inverse_priority, s.sequence from state s)
                     and ((select k.sequence from known k) is null
                          or (m.inverse_priority, m.sequence)
                             < ((select k.inverse_priority from known k), (select k.sequence from known k))))"""
    return Statement(
        "claim_for_transaction",
        f"""with claim as materialized (
                select set_config('synchronous_commit', 'off', true),
                       nextval('jmsql_internal.claim_sequence'::regclass) as claim_id,
                       clock_timestamp() as claimed_at),
            {found}, {_STATE},
            known as materialized (
                select s.inverse_priority, s.sequence, s.delivery_count
                from state s where {_IS_FREE}
                order by s.inverse_priority, s.sequence limit 1),
            claimed as (
                insert into jmsql_internal.delivery
                    (queue_id, inverse_priority, sequence, claim_id, connection_id, claimed_at)
                select m.queue_id, m.inverse_priority, m.sequence, (select claim_id from claim),
                       %(connection_id)s::bigint, (select claimed_at from claim)
                from found m
                where {is_claimed})
            select {_COLUMNS}, m.group_hash, case when {is_next} then (select k.delivery_count from known k) end,
                   case when {is_next} then null else (select claim_id from claim) end,
                   {snapshot(grouped=False, of_one=True)}
            from found m {SHARED_BODY}
            where {is_claimed} or {is_next}""",
        "receiving",
        _claimed_rows_and_next,
        parameters,
    )


@lru_cache(maxsize=1024)
def claim_batch(selector: Selector | None, *, grouped: bool = False) -> Statement[list[tuple[Any, ...]]]:
    """Claim the next messages in a range, under a number that is given; return counts and the last by priority."""
    condition = """and m.sequence between %(first_sequence)s::bigint and %(last_sequence)s::bigint
                  and coalesce(m.jms_timestamp, 0) >= %(first_timestamp)s::bigint"""
    own_claims = "array[%(claim_id)s::bigint]"
    found, parameters = _found(selector, grouped=grouped, own_claims=own_claims, condition=condition)
    # Grouped, not joined: PostgreSQL expects few rows, and would compare each with each.
    size = " + ".join(f"coalesce(pg_catalog.pg_column_size(f.{name}), 0)" for name in ("properties", *BODY_COLUMNS))
    return Statement(
        "claim_batch",
        f"""with {found}, {_free(own_claims if grouped else None)},
            claimed as (
                insert into jmsql_internal.delivery as d
                    (queue_id, inverse_priority, sequence, group_hash, claim_id, connection_id, claimed_at)
                select f.queue_id, f.inverse_priority, f.sequence, f.group_hash, %(claim_id)s::bigint,
                       %(connection_id)s::bigint, clock_timestamp()
                from free f
                on conflict (queue_id, inverse_priority, sequence) do update
                set claim_id = excluded.claim_id, connection_id = excluded.connection_id,
                    claimed_at = excluded.claimed_at, claim_expires_at = null, next_attempt = null
                where d.claim_id is null
                  and (d.next_attempt is null or d.next_attempt <= statement_timestamp())
                returning d.inverse_priority, d.sequence)
            select inverse_priority, count(*), sum(size)::bigint, max(sequence)
            from (
                select inverse_priority, sequence, max(size) as size
                from (select c.inverse_priority, c.sequence, null::bigint as size from claimed c
                      union all
                      select f.inverse_priority, f.sequence, {size} from free f) as claimed_or_free
                group by inverse_priority, sequence having count(*) = 2) as claimed_and_free
            group by inverse_priority""",
        "receiving",
        rows,
        parameters,
    )


@lru_cache(maxsize=1024)
def browse_statement(selector: Selector | None) -> Statement[list[MessageRow]]:
    """Read the messages that can be delivered, in their order, from a key on."""
    condition, parameters = and_chosen(selector)
    return Statement(
        "browse",
        f"""select {_COLUMNS}, m.group_hash, m.delivery_count, null, null
            from (
                select found.*
                from pg_catalog.unnest('{{0,1,2,3,4,5,6,7,8,9}}'::smallint[]) as p (inverse_priority)
                cross join lateral (
                    select m.*, d.delivery_count
                    from jmsql_internal.message m
                    left join {by_key("delivery", "d", "m")} on true
                    where m.queue_id = %(queue_id)s and m.inverse_priority = p.inverse_priority
                      and m.sequence between
                          case when p.inverse_priority = %(inverse_priority)s::smallint
                               then %(sequence)s::bigint + 1 else 0 end and {LAST_SEQUENCE}
                      and {HAS_NOT_EXPIRED} and {{is_sent}}
                      and d.claim_id is null
                      {_NOT_OWN} {condition}
                    order by m.queue_id, m.inverse_priority, m.sequence
                    limit %(limit)s) found
                where p.inverse_priority >= %(inverse_priority)s::smallint
                limit %(limit)s) m
            {SHARED_BODY}
            order by m.inverse_priority, m.sequence""",
        "receiving",
        _message_rows,
        parameters,
    )
