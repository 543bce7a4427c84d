"""Every SQL statement that sends, delivers and acknowledges messages, made once for each schema and selector.

The texts go to psycopg as they are, and are prepared on the server. All values travel as parameters.
"""

from __future__ import annotations

from functools import cache, lru_cache

from jmsql.selectors import Selector
from jmsql.store.candidates import LAST_SEQUENCE, NO_CLAIMS, by_key, candidates, grouped_candidates, makes_wait
from jmsql.store.history_statements import RECORDED, history
from jmsql.store.identifier import quote_identifier
from jmsql.store.selected_statement import SelectedStatement
from jmsql.store.send_statements import BODY_COLUMNS, SEND_COLUMNS, insert_messages

__all__ = [
    "KEYS",
    "SelectedStatement",
    "Statements",
    "by_key",
    "message_columns",
    "statements",
]

KEYS = "unnest(%(queue_ids)s::integer[], %(inverse_priorities)s::smallint[], %(sequences)s::bigint[]"


def message_columns(schema: str) -> str:
    """Return what is read of a message `m`, as the fields of jmsql.store.rows.MessageRow but for the last three."""
    text_form = {"json_body": "::text", "body_types": "::text"}
    bodies = ", ".join(
        f"""case when m.body_id is null then m.{name}
                else (select b.{name} from {schema}.body b where b.body_id = m.body_id) end{text_form.get(name, "")}"""
        for name in BODY_COLUMNS
    )
    return f"""
        m.inverse_priority, m.sequence, m.jms_message_id::text, m.jms_timestamp, m.jms_expiration, m.jms_delivery_mode,
        m.message_type::text, m.jms_correlation_id, m.jms_reply_to, m.jms_type, m.properties::text,
        m.property_types::text, {bodies}, m.jms_delivery_time"""


class Statements:
    """The statements for one schema.

    Args:
        schema_name: The plain name of the schema.
        record: Whether those that acknowledge look for queues that keep history, and copy their messages there.
        restricted: Whether the role may not delete, since it could then lock the tables. It asks for a removal instead,
            which keeps history where there is one.
    """

    _not_own = "and m.transaction_id is distinct from (select pg_current_xact_id_if_assigned())"

    def __init__(self, schema_name: str, *, record: bool = False, restricted: bool = False) -> None:
        self._schema_name = schema_name
        self._record = record and not restricted
        self._restricted = restricted
        record = self._record
        schema = self._schema = quote_identifier(schema_name)
        self._message_columns = message_columns(schema)
        types = [kind if kind != "message_type" else f"{schema}.message_type" for _, kind in SEND_COLUMNS]
        names = [name for name, _ in SEND_COLUMNS]
        columns = ", ".join(names[1:])

        self.send = insert_messages(schema, "message", SEND_COLUMNS, flush=True)
        self.send_without_flush = insert_messages(schema, "message", SEND_COLUMNS, flush=False)

        # One message is the common case without transactions: measured at a third of the time that arrays take.
        values = ", ".join(f"%({name})s::{kind}" for (name, _), kind in list(zip(SEND_COLUMNS, types, strict=True))[1:])
        self.send_one = f"""
            insert into {schema}.message (queue_id, {columns})
            select q.queue_id, {values} from {schema}.queue q where q.name = %(destination)s"""
        self.send_one_without_flush = f"{self.send_one} and set_config('synchronous_commit', 'off', true) = 'off'"

        self.find_queue = f"select queue_id from {schema}.queue where name = %(name)s"
        self.require_access = f"select {schema}.require_access(%(queue_id)s, %(action)s)"
        self.create_queue = f"""
            insert into {schema}.queue (name)
            select %(name)s from {schema}.configuration c where c.automatic_creation
            on conflict (name) do nothing"""

        # The rows are locked by this transaction, so that their addresses hold.
        kept, recorded = self._recording(
            queues="%(queue_ids)s::integer[]",
            addresses="%(addresses)s::tid[]",
            deliveries="%(deliveries)s::integer[]",
            consumer="%(connection_id)s::bigint",
        )
        self.delete_locked = f"""
            {"with" if record else ""} {kept.rstrip(",")}
            delete from {schema}.message where ctid = any(%(addresses)s::tid[]) {recorded}"""
        self.present = f"""
            select k.* from {KEYS}) as k (queue_id, inverse_priority, sequence)
            cross join {by_key(self._schema, "message", "m", "k")}"""
        self.forget_deliveries = f"""
            delete from {schema}.delivery where ctid = any(array(
                select d.address from {KEYS}) as k (queue_id, inverse_priority, sequence)
                cross join {by_key(self._schema, "delivery", "d", "k")}))"""

        found = f"""
            select m.address, a.delivery_count, a.connection_id
            from acknowledged a cross join {by_key(self._schema, "message", "m", "a")}"""
        kept, recorded = self._recording(
            queues="%(queue_ids)s::integer[]",
            addresses="array(select address from found)",
            deliveries="array(select delivery_count from found)",
            consumer="(select max(connection_id) from found)",
        )
        self.acknowledge = f"""
            with acknowledged as (
                delete from {schema}.delivery d
                using {KEYS}, %(claim_ids)s::bigint[]) as k (queue_id, inverse_priority, sequence, claim_id)
                cross join {by_key(self._schema, "delivery", "found", "k")}
                where d.ctid = found.address and d.claim_id = k.claim_id
                returning d.queue_id, d.inverse_priority, d.sequence, d.delivery_count, d.connection_id),
            {f"found as materialized ({found})," if record else ""}
            {kept}
            deleted as (
                delete from {schema}.message where ctid = any(array(
                    select address from {"found" if record else f"({found}) as found"})) {recorded})
            select count(*) from acknowledged"""
        if restricted:
            self._ask_for_removals()

        # The highest sequence of each priority, read before a scan: what the scan does not return up to there does
        # not match, or cannot be had now.
        self.highest_sequences = f"""
            select array(
                select coalesce((select m.sequence from {schema}.message m
                                 where m.queue_id = %(queue_id)s and m.inverse_priority = p.inverse_priority
                                 order by m.queue_id desc, m.inverse_priority desc, m.sequence desc limit 1), 0)
                from generate_series(0, 9) as p (inverse_priority) order by p.inverse_priority)"""

        self.is_connected = f"select {schema}.is_connected(%(id)s::bigint)"
        self.has_groups = f"select exists (select from {schema}.grouped_queue where queue_id = %(queue_id)s)"

        self.notify_queues = f"""
            select pg_notify(%(channel)s, queue_id::text) from {schema}.queue where name = any(%(names)s::text[])"""
        self.isolation = "select current_setting('transaction_isolation')"

    def _ask_for_removals(self) -> None:
        schema = self._schema
        self.delete_locked = f"""
            with removed as (
                insert into {schema}.removal (messages, connection_id, is_exact)
                values (%(addresses)s::tid[], %(connection_id)s::bigint, true))
            select from unnest(%(addresses)s::tid[])"""
        self.forget_deliveries = f"""
            insert into {schema}.removal (deliveries)
            select array_agg(d.address) from {KEYS}) as k (queue_id, inverse_priority, sequence)
            cross join {by_key(schema, "delivery", "d", "k")}
            having count(*) > 0"""
        self.acknowledge = f"""
            with acknowledged as materialized (
                select d.*
                from {KEYS}, %(claim_ids)s::bigint[]) as k (queue_id, inverse_priority, sequence, claim_id)
                cross join lateral (
                    select t.ctid as address, t.queue_id, t.inverse_priority, t.sequence, t.connection_id
                    from {schema}.delivery t
                    where (t.queue_id, t.inverse_priority, t.sequence) = (k.queue_id, k.inverse_priority, k.sequence)
                      and t.claim_id = k.claim_id
                    for update) d),
            removed as (
                insert into {schema}.removal (messages, deliveries, connection_id)
                select array(select m.address from acknowledged a cross join {by_key(schema, "message", "m", "a")}),
                       array_agg(a.address), max(a.connection_id)
                from acknowledged a having count(*) > 0)
            select count(*) from acknowledged"""

    def _recording(self, *, queues: str, addresses: str, deliveries: str, consumer: str) -> tuple[str, str]:
        """Compose the part that copies messages to the history, and the condition for their deletion to wait for it."""
        if not self._record:
            return "", ""
        part = history(self._schema, queues=queues, addresses=addresses, deliveries=deliveries, consumer=consumer)
        return f"{part},", f"and {RECORDED}"

    def _free(self, own_claims: str | None) -> str:
        """Compose the relations `state` and `free`: what was found, if it is free now that the rows are locked.

        Args:
            own_claims: The consumer's claims, as an expression; None: nothing that was found is of a group.
        """
        state = f"""
            state as materialized (
                select s.* from {self._schema}.delivery_state(%(queue_id)s,
                    (select array_agg(inverse_priority) from found),
                    (select array_agg(sequence) from found)) s)"""
        is_first = ""
        if own_claims is not None:
            state += f""",
            group_state as materialized (
                select s.* from {self._schema}.group_state(%(queue_id)s,
                    (select array_agg(distinct group_hash) from found where group_hash is not null)) s)"""
            is_first = f"""
                  and (f.group_hash is null or not exists (
                    select from group_state g
                    where g.group_hash = f.group_hash
                      and {makes_wait("g", "f", own_claims)}))"""
        return f"""{state},
            free as (
                select f.*, s.delivery_count
                from found f
                left join state s using (inverse_priority, sequence)
                where s.claim_id is null and (s.next_attempt is null or s.next_attempt <= statement_timestamp())
                      {is_first})"""

    def _found(
        self, selector: Selector | None, *, grouped: bool, own_claims: str = NO_CLAIMS, condition: str = ""
    ) -> SelectedStatement:
        if grouped:
            return grouped_candidates(self._schema_name, selector, own_claims=own_claims, condition=condition)
        return candidates(self._schema_name, selector, condition)

    @lru_cache(maxsize=1024)  # noqa: B019 - one Statements a schema, kept for the life of the process
    def lock(self, selector: Selector | None, *, grouped: bool = False) -> SelectedStatement:
        """Lock the next messages for the open transaction; those that it has sent itself are not among them.

        Args:
            selector: Which messages are wanted; None: all.
            grouped: Whether the queue has messages of groups. If it has, the other statement finds none at all.
        """
        own_claims = "%(own_claims)s::bigint[]"
        found, parameters = self._found(selector, grouped=grouped, own_claims=own_claims, condition=self._not_own)
        return SelectedStatement(
            f"""with {found}, {self._free(own_claims if grouped else None)}
                select {self._message_columns}, m.group_hash, m.delivery_count, m.address::text from free m
                order by m.inverse_priority, m.sequence""",
            parameters,
        )

    @lru_cache(maxsize=1024)  # noqa: B019
    def take(self, selector: Selector | None, *, grouped: bool = False) -> SelectedStatement:
        """Take the next messages off their queue, as for `lock`."""
        found, parameters = self._found(selector, grouped=grouped, condition=self._not_own)
        key = "f.queue_id, f.inverse_priority, f.sequence"
        deliveries = f"{self._schema}.deliveries_if_free({key})"
        if grouped:
            deliveries = f"""case when f.group_hash is null then {deliveries}
                                  else {self._schema}.deliveries_if_first({key}, f.group_hash) end"""
        kept, recorded = self._recording(
            queues="array[%(queue_id)s::integer]",
            addresses="array(select address from free where delivery_count is not null)",
            deliveries="array(select delivery_count from free where delivery_count is not null)",
            consumer="%(connection_id)s::bigint",
        )
        free = f"free as materialized (select f.*, {deliveries} as delivery_count from found f)"
        if self._restricted:
            return SelectedStatement(
                f"""with {found}, {free},
                    removed as (
                        insert into {self._schema}.removal (messages, deliveries, connection_id, is_exact)
                        select array_agg(f.address),
                               array(select d.address from free f
                                     cross join {by_key(self._schema, "delivery", "d", "f")}
                                     where f.delivery_count is not null),
                               %(connection_id)s::bigint, true
                        from free f where f.delivery_count is not null having count(*) > 0)
                    select {self._message_columns}, m.group_hash, m.delivery_count, null
                    from free m where m.delivery_count is not null""",
                parameters,
            )
        return SelectedStatement(
            f"""with {found}, {free},
                {kept}
                forgotten as (
                    delete from {self._schema}.delivery where ctid = any(array(
                        select d.address from free f cross join {by_key(self._schema, "delivery", "d", "f")}
                        where f.delivery_count is not null)))
                delete from {self._schema}.message m using free f
                where m.ctid = f.address and f.delivery_count is not null {recorded}
                returning {self._message_columns}, m.group_hash, f.delivery_count, null""",
            parameters,
        )

    @lru_cache(maxsize=1024)  # noqa: B019
    def claim(self, selector: Selector | None, *, grouped: bool = False) -> SelectedStatement:
        """Claim the next messages for a session, as for `lock`: they stay in the queue until it acknowledges them.

        The commit need not reach the disk: a claim that a crash of the server loses does no harm, since the sessions
        that held claims are gone with it.

        It touches the delivery state of free messages alone. To wait for another's state here, with the messages
        locked, would be a deadlock with the acknowledgement that is about to delete them.
        """
        own_claims = "%(own_claims)s::bigint[]"
        found, parameters = self._found(selector, grouped=grouped, own_claims=own_claims)
        return SelectedStatement(
            f"""with commit as materialized (
                    select set_config('synchronous_commit', 'off', true),
                           nextval('{self._schema}.claim_sequence') as claim_id),
                {found}, {self._free(own_claims if grouped else None)},
                claimed as (
                    insert into {self._schema}.delivery as d
                        (queue_id, inverse_priority, sequence, group_hash, claim_id, connection_id, claimed_at,
                         claim_expires_at)
                    select f.queue_id, f.inverse_priority, f.sequence, f.group_hash, commit.claim_id,
                           %(connection_id)s, clock_timestamp(),
                           clock_timestamp() + %(time_limit)s::float8 * interval '1 second'
                    from free f cross join commit
                    on conflict (queue_id, inverse_priority, sequence) do update
                    set claim_id = excluded.claim_id, connection_id = excluded.connection_id,
                        claimed_at = excluded.claimed_at, claim_expires_at = excluded.claim_expires_at,
                        next_attempt = null
                    where d.claim_id is null
                      and (d.next_attempt is null or d.next_attempt <= statement_timestamp())
                    returning d.queue_id, d.inverse_priority, d.sequence, d.delivery_count, d.claim_id)
                select {self._message_columns}, m.group_hash, d.delivery_count, d.claim_id
                from claimed d cross join {by_key(self._schema, "message", "m", "d")}
                order by m.inverse_priority, m.sequence""",
            parameters,
        )

    @lru_cache(maxsize=1024)  # noqa: B019
    def claim_batch(self, selector: Selector | None, *, grouped: bool = False) -> SelectedStatement:
        """Claim the next messages in a range, under a number that is given; return counts and the last by priority."""
        condition = """and m.sequence between %(first_sequence)s::bigint and %(last_sequence)s::bigint
                      and coalesce(m.jms_timestamp, 0) >= %(first_timestamp)s::bigint"""
        own_claims = "array[%(claim_id)s::bigint]"
        found, parameters = self._found(selector, grouped=grouped, own_claims=own_claims, condition=condition)
        # Grouped, not joined: PostgreSQL expects few of them, and would compare each with each.
        size = " + ".join(f"coalesce(pg_column_size(f.{name}), 0)" for name in ("properties", *BODY_COLUMNS))
        return SelectedStatement(
            f"""with {found}, {self._free(own_claims if grouped else None)},
                claimed as (
                    insert into {self._schema}.delivery as d
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
            parameters,
        )

    @lru_cache(maxsize=1024)  # noqa: B019
    def browse(self, selector: Selector | None) -> SelectedStatement:
        """Read the messages that are there to be delivered, in their order, from a key on."""
        condition, parameters = "", {}
        if selector is not None:
            chosen = selector.to_sql(self._schema_name)
            condition, parameters = f"and ({chosen.condition})", chosen.parameters
        return SelectedStatement(
            f"""select {self._message_columns}, m.group_hash, m.delivery_count, null
                from (
                    select found.*
                    from unnest('{{0,1,2,3,4,5,6,7,8,9}}'::smallint[]) as p (inverse_priority)
                    cross join lateral (
                        select m.*, d.delivery_count
                        from {self._schema}.message m
                        left join {by_key(self._schema, "delivery", "d", "m")} on true
                        where m.queue_id = %(queue_id)s and m.inverse_priority = p.inverse_priority
                          and m.sequence between
                              case when p.inverse_priority = %(inverse_priority)s::smallint
                                   then %(sequence)s::bigint + 1 else 0 end and {LAST_SEQUENCE}
                          and (m.jms_expiration is null
                               or m.jms_expiration > (select {self._schema}.current_milliseconds()))
                          and d.claim_id is null
                          {self._not_own} {condition}
                        order by m.queue_id, m.inverse_priority, m.sequence
                        limit %(limit)s) found
                    where p.inverse_priority >= %(inverse_priority)s::smallint
                    limit %(limit)s) m
                order by m.inverse_priority, m.sequence""",
            parameters,
        )


@cache
def statements(schema_name: str, *, record: bool = False, restricted: bool = False) -> Statements:
    """Return the statements for a schema, with or without those parts that record history, and for which roles."""
    return Statements(schema_name, record=record, restricted=restricted)
