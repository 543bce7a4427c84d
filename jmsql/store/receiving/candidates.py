"""The scans that find a consumer's next messages, which all ways to receive share.

There are two: one for queues that have never had a message of a group, and one for the others, which costs more.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from jmsql.selectors import Selector, SelectorSQL
from jmsql.store.rows.columns import and_chosen
from jmsql.store.rows.message_rows import KEYS, array
from jmsql.store.statement import Query, Result, Statement, array_literal

# The planner takes a range with two ends for short, and one with a single end for a third of the table: worth a sort.
LAST_SEQUENCE = 2**63 - 1

NO_CLAIMS = "'{}'::bigint[]"

# Evaluated once for each priority. Most queues have no delivery state from the bounds on, which saves the look-up for
# each message.
_HAS_DELIVERIES = f"""and (select exists (
                        select from jmsql_internal.delivery a
                        where a.queue_id = %(queue_id)s and a.inverse_priority = b.inverse_priority
                          and a.sequence between b.lowest and {LAST_SEQUENCE}))"""

HAS_NOT_EXPIRED = "(m.jms_expiration is null or m.jms_expiration > (select jmsql_internal.current_milliseconds()))"
"""The condition that a message `m` has not expired, by the server's clock, which is asked once."""

_LATE = """least(b.lowest, (
                      select min(late.lowest)
                      from unnest(%(running)s::xid8[], %(starts)s::bigint[]) as late (transaction_id, lowest)
                      where case when late.transaction_id is null
                                 then pg_snapshot_xmax(pg_current_snapshot()) > %(later)s::xid8
                                 else late.transaction_id is distinct from pg_current_xact_id_if_assigned()
                                      and pg_visible_in_snapshot(late.transaction_id, pg_current_snapshot()) end))"""
"""The lowest sequence to read where transactions may have late messages (`store.receiving.late_messages`)."""

_BOUNDS = "unnest('{0,1,2,3,4,5,6,7,8,9}'::smallint[], %(lowest)s::bigint[]) as b (inverse_priority, lowest)"
_LATE_BOUNDS = f"(select b.inverse_priority, {_LATE} as lowest from {_BOUNDS} offset 0) as b"
"""The same, with the sequences from which the scan has to read, and to which `_HAS_DELIVERIES` has to refer, too."""

_OWN = "pg_current_xact_id_if_assigned() as own"
"""The number that the scan's transaction has before it locks the first row."""


def snapshot(*, grouped: bool, of_one: bool = False) -> str:
    """Return the expression for the scan's running transactions, for `Snapshot.parse`.

    Args:
        grouped: True if the queue has messages of groups.
        of_one: True if one of the rows `m` has the text, and the others null.
    """
    text = f"""(select case when c.own is not null then pg_current_snapshot()::text || '-' || c.own::text
                 when pg_snapshot_xmin(pg_current_snapshot()) = pg_current_xact_id()
                 then pg_current_xact_id()::text
                 else pg_current_snapshot()::text || '+' || pg_current_xact_id()::text end
                 from {"candidate" if grouped else "found"} c limit 1)"""
    return f"case when m.address = (select f.address from found f limit 1) then {text} end" if of_one else text


_MOST_RUNNING = 1000
"""Of how many of the newest transactions the scans know. There are more if one has as many savepoints, for example."""


def same_group(alias: str, other: str, queue_id: str) -> str:
    """Return the condition that two rows are of the same group, written so that the planner expects few rows."""
    # The planner has no statistics of the hashes. It would expect many rows, and sort them. The `between` is redundant,
    # but multiplies its estimate down. A range of the columns behind the hash would fit other indexes as well, which
    # know nothing of groups. The cast of queue_id matches the indexes of groups alone. While the planner takes a table
    # for nearly empty, a queue seems as selective as a group, and it would read the whole queue by the primary key.
    group = f"{other}.group_hash"
    return (
        f"{alias}.queue_id::bigint = {queue_id}::bigint "
        f"and {alias}.group_hash = {group} and {alias}.group_hash between {group} and {group}"
    )


def by_key(table: str, alias: str, key: str, condition: str = "") -> str:
    """Return the look-up of a table's rows by another relation's keys, with their addresses.

    Args:
        table: The name of the table.
        alias: The name of the rows that are found.
        key: The alias of the relation that has the key.
        condition: What else is asked of a row `t`.
    """
    # `offset 0` is an optimisation fence. While the planner takes a table for empty, as the last vacuum saw it, it
    # would join on a part of the key, or begin with the table, and read all of it for each key.
    return f"""lateral (
                    select t.ctid as address, t.* from jmsql_internal.{table} t
                    where (t.queue_id, t.inverse_priority, t.sequence)
                        = ({key}.queue_id, {key}.inverse_priority, {key}.sequence)
                        {condition}
                    offset 0) {alias}"""


LOOK_UPS = {
    "keys": KEYS,
    "message_of_a": by_key("message", "m", "a"),
    "message_of_k": by_key("message", "m", "k"),
    "delivery_of_k": by_key("delivery", "d", "k"),
    "delivery_of_m": by_key("delivery", "d", "m"),
    "claimed_of_k": by_key("delivery", "found", "k", "and t.claim_id = k.claim_id"),
}
"""The parts of SQL files that look rows up by key, by name."""


def _is_unlocked(alias: str) -> str:
    """Return the condition that no running transaction has locked a row, by the statement's snapshot.

    Rows that pass still have to be locked.

    Args:
        alias: The alias of the table, not of a subquery.
    """
    # `for update skip locked` asks the lock manager twice for each row that it skips. That takes several times as long
    # as reading the row, and more where many consumers skip the same rows. So the scan leaves out rows whose last lock
    # belongs to a transaction that runs in the snapshot, or that began after the snapshot and before this transaction.
    # Its own locks are never among them. Savepoints can leave a number of several transactions in a row (a multixact),
    # which may equal the number of another running transaction: the scan skips that row until the transaction ends.
    return f"""({alias}.xmax = '0' or {alias}.xmax <> all((select array(
                    select running::xid from pg_snapshot_xip(pg_current_snapshot()) as running
                    union all
                    select running::text::xid8::xid
                    from (select pg_snapshot_xmax(pg_current_snapshot()) as first) as snapshot,
                         generate_series(first::text::bigint,
                                         first::text::bigint + least(age(first::xid), {_MOST_RUNNING}) - 1) as running
                    ))::xid[]))"""


def candidates(
    selector: Selector | None,
    condition: str = "",
    columns: str = "m.*",
    *,
    is_single: bool = False,
    locks: bool = True,
    late: bool = False,
) -> SelectorSQL:
    """Compose the relation `found`, in the order of delivery from the consumer's bounds on.

    The plan stops at the limit, and so locks no more rows than it returns. The join sees the delivery state of the
    statement's snapshot: it skips claimed and waiting messages. The caller checks the others again under the rows'
    locks.

    It is empty once the queue has, or had, messages of groups.

    Args:
        selector: Which messages are wanted; None: all.
        condition: What else is asked of a message `m`.
        columns: What is found of it, beside its address.
        is_single: True if the caller mostly asks for one message, whose state is then read directly.
        locks: True to lock the rows.
        late: Whether transactions may have late messages.
    """
    is_wanted, parameters = wanted(selector, condition)
    delivery = by_key("delivery", "d", "m", "" if is_single else _HAS_DELIVERIES)
    return SelectorSQL(
        f"""
        found as materialized (
            select found.*
            from {_LATE_BOUNDS if late else _BOUNDS}
            cross join lateral (
                select m.ctid as address, {columns}, {_OWN}
                from jmsql_internal.message m
                left join {delivery} on true
                where m.queue_id = %(queue_id)s and m.inverse_priority = b.inverse_priority
                  and m.sequence between b.lowest and {LAST_SEQUENCE}
                  and {_is_unlocked("m")} and {is_wanted}
                order by m.queue_id, m.inverse_priority, m.sequence
                limit %(limit)s
                {"for update of m skip locked" if locks else ""}) found
            where not (select exists (select from jmsql_internal.grouped_queue g where g.queue_id = %(queue_id)s))
            limit %(limit)s)""",
        parameters,
    )


def following(selector: Selector | None, condition: str = "") -> SelectorSQL:
    """Compose the condition that the queue has a candidate beside the message `found`, by the statement's snapshot.

    It scans from the front, like a sweep.

    Args:
        selector: Which messages are wanted; None: all.
        condition: What else is asked of a message `m`.
    """
    is_wanted, parameters = wanted(selector, condition)
    return SelectorSQL(
        f"""exists (
                select from found f
                cross join pg_catalog.unnest('{{0,1,2,3,4,5,6,7,8,9}}'::smallint[]) as b (inverse_priority)
                cross join lateral (
                    select from jmsql_internal.message m
                    left join {by_key("delivery", "d", "m")} on true
                    where m.queue_id = %(queue_id)s and m.inverse_priority = b.inverse_priority
                      and m.sequence between 0 and {LAST_SEQUENCE} and m.sequence <> f.sequence
                      and {_is_unlocked("m")} and {is_wanted}
                    order by m.queue_id, m.inverse_priority, m.sequence
                    limit 1) next)""",
        parameters,
    )


def wanted(selector: Selector | None, condition: str = "") -> SelectorSQL:
    """Compose the condition on a message `m` with its delivery's row `d`.

    It is false in a transaction above READ COMMITTED, whose snapshot hides later claims of other consumers.
    """
    chosen, parameters = and_chosen(selector)
    return SelectorSQL(
        f"""{HAS_NOT_EXPIRED} and {{is_sent}}
                and d.claim_id is null and (d.next_attempt is null or d.next_attempt <= statement_timestamp())
                and (select q.deleted_at is null and not q.paused
                            and current_setting('transaction_isolation') = 'read committed'
                     from jmsql_internal.queue q where q.queue_id = %(queue_id)s)
                {condition} {chosen}""",
        parameters,
    )


def makes_wait(delivery: str, message: str, own_claims: str) -> str:
    """Compose the condition that a delivery of the same group keeps a message from being delivered.

    It does if another consumer has claimed it, wherever in the group it stands; or if it waits for its next attempt,
    and the message is not before it.

    Args:
        delivery: The alias of the delivery.
        message: The alias of the message.
        own_claims: The consumer's claims, as an expression.
    """
    return f"""(
                {delivery}.claim_id is not null and {delivery}.claim_id <> all({own_claims})
                or {delivery}.next_attempt > statement_timestamp()
                   and ({delivery}.inverse_priority, {delivery}.sequence)
                       <= ({message}.inverse_priority, {message}.sequence))"""


def grouped_candidates(
    selector: Selector | None, *, own_claims: str, condition: str = "", late: bool = False, places: bool = False
) -> SelectorSQL:
    """Compose the relation `found` for queues with groups.

    The scan differs in one point: a message of a group is a candidate only if no other consumer holds the group. This
    consumer then holds it until its transaction ends.

    A candidate without a group is found itself. Candidates of a group only say that the group has messages, and how
    many; the relation has the group's first messages, which may lie before the start of the scan.

    Args:
        selector: Which messages are wanted; None: all.
        own_claims: The consumer's claims, which do not make a group wait for it, as an expression.
        condition: What else is asked of a message `m`.
        late: Whether transactions may have late messages.
        places: True if it reads further places (`GroupScan`), which takes longer, also where none is given.
    """
    is_wanted, parameters = wanted(selector, condition)
    delivery = f"left join {by_key('delivery', 'd', 'm')} on true"
    waits = f"""exists (
            select from jmsql_internal.delivery g
            where {same_group("g", "m", "m.queue_id")}
              and (g.claim_id is not null or g.next_attempt is not null)
              and {makes_wait("g", "m", own_claims)})"""
    locks_group = f"""exists (
            select from jmsql_internal.group_lock l
            where l.slot = jmsql_internal.group_slot(m.queue_id, m.group_hash) and {_is_unlocked("l")}
            for update skip locked)"""
    place = of_places = ""
    if places:
        place = f"""
        place as materialized (
            select p.*, {_OWN} from unnest({array("place_priorities", "smallint")}, %(place_sequences)s::bigint[])
                as p (inverse_priority, sequence)),"""
        of_places = f"""
                select m.*, %(place_limit)s::bigint as messages, false as is_locked, p.own
                from place p
                cross join lateral (
                    select t.ctid as address, t.* from jmsql_internal.message t
                    where (t.queue_id, t.inverse_priority, t.sequence)
                        = (%(queue_id)s, p.inverse_priority, p.sequence)
                    offset 0) m
                {delivery}
                where p.inverse_priority = b.inverse_priority and {is_wanted}
                  and (m.group_hash is null or not {waits} and {locks_group})
                union all"""
    # Groups are locked one by one, outside of the ordered relation: a plan that sorts would lock the groups of all
    # messages before the limit applies.
    #
    # Mostly the candidates of a group are its first messages: as many as there are up to the last of them. They are
    # locked already. To look these up and lock them once more would take a quarter of the statement's time.
    return SelectorSQL(
        f"""{place}
        candidate as materialized (
            select found.*
            from {_LATE_BOUNDS if late else _BOUNDS}
            cross join lateral ({of_places}
                select locked.* from (
                    select m.ctid as address, {_OWN}
                    from jmsql_internal.message m
                    left join {by_key("delivery", "d", "m", _HAS_DELIVERIES)} on true
                    where m.queue_id = %(queue_id)s and m.inverse_priority = b.inverse_priority
                      and m.sequence between b.lowest and {LAST_SEQUENCE}
                      and {_is_unlocked("m")} and {is_wanted}
                      and (m.group_hash is null or not {waits})
                    order by m.queue_id, m.inverse_priority, m.sequence) in_order
                cross join lateral (
                    select m.ctid as address, m.*, 1 as messages, true as is_locked, in_order.own
                    from jmsql_internal.message m
                    where m.ctid = in_order.address and (m.group_hash is null or {locks_group})
                    for update of m skip locked) locked
                limit %(limit)s) found
            limit %(limit)s),
        found_group as materialized (
            select g.*, g.are_locked and (
                select count(*) from (
                    select from jmsql_internal.message m
                    where {same_group("m", "g", "g.queue_id")}
                      and (m.inverse_priority, m.sequence) < (g.inverse_priority, g.sequence)
                    order by m.group_hash, m.inverse_priority, m.sequence
                    limit g.messages) before) = g.messages - 1 as are_first
            from (select c.queue_id, c.group_hash, sum(c.messages)::bigint as messages,
                         max(c.inverse_priority) as inverse_priority, max(c.sequence) as sequence,
                         bool_and(c.is_locked) and min(c.inverse_priority) = max(c.inverse_priority) as are_locked
                  from candidate c where c.group_hash is not null group by c.queue_id, c.group_hash) g),
        found as materialized (
            select c.* from candidate c
            where c.group_hash is null or c.group_hash in (select g.group_hash from found_group g where g.are_first)
            union all
            select first.*
            from found_group g
            cross join lateral (
                select m.ctid as address, m.*, 1, true, null::xid8
                from jmsql_internal.message m
                {delivery}
                where {same_group("m", "g", "g.queue_id")} and {is_wanted}
                order by m.group_hash, m.inverse_priority, m.sequence
                limit g.messages
                for update of m skip locked) first
            where not g.are_first)""",
        parameters,
    )


def first_of_groups(queue_id: int, selector: Selector | None, groups: Iterable[int]) -> Query[list[tuple[int, int]]]:
    """Return where the first messages of groups are that a consumer can have, as (inverse priority, sequence)."""
    return first_of_groups_statement(selector).bind(queue_id=queue_id, groups=array_literal(groups))


@lru_cache(maxsize=1024)
def first_of_groups_statement(selector: Selector | None) -> Statement[list[tuple[int, int]]]:
    """Find the first message of each group that a consumer with the selector can have."""
    is_wanted, parameters = wanted(selector)
    text = f"""
        select first.inverse_priority, first.sequence
        from pg_catalog.unnest({array("groups", "bigint")}) as g (group_hash)
        cross join lateral (
            select m.inverse_priority, m.sequence
            from jmsql_internal.message m
            left join {by_key("delivery", "d", "m")} on true
            where {same_group("m", "g", "%(queue_id)s")} and {is_wanted}
            order by m.group_hash, m.inverse_priority, m.sequence
            limit 1) first
        order by first.inverse_priority, first.sequence"""
    return Statement("first_of_groups", text, "receiving", _places, parameters)


def _places(result: Result) -> list[tuple[int, int]]:
    return [(inverse_priority, sequence) for inverse_priority, sequence in result.rows]
