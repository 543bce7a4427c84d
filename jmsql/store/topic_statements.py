"""Every SQL statement on topics and subscriptions, made once for each schema and set of selectors."""

from __future__ import annotations

import contextlib
from functools import cache, lru_cache

from jmsql.exceptions import InvalidSelectorException
from jmsql.postgresql_text import from_postgresql
from jmsql.selectors import Selector
from jmsql.store.identifier import quote_identifier
from jmsql.store.send_statements import BODY_COLUMNS, DELAYED_COLUMNS, SEND_COLUMNS, outgoing_messages
from jmsql.store.statements import SelectedStatement

__all__ = ["TopicStatements", "topic_statements"]

_SHARED_SIZE = 2000
"""Bytes of a body from which on it is stored once for all subscriptions. PostgreSQL puts larger ones aside anyway."""


class TopicStatements:
    """The statements for one schema.

    Args:
        schema_name: The plain name of the schema.
    """

    def __init__(self, schema_name: str) -> None:
        self._schema_name = schema_name
        schema = self._schema = quote_identifier(schema_name)
        self.known_selectors: dict[str, tuple[str, ...]] = {}
        """By topic: the selectors that its subscriptions had when they were last looked at."""

        self.find_topic = f"select topic_id from {schema}.topic where name = %(name)s"
        # Two consumers that make the same subscription at once wait for each other here, as long as there is no row to
        # lock. Where their topics differ, the later one meets the other's name in the index.
        self.lock_topic = f"select from {schema}.topic where topic_id = %(topic_id)s for no key update"
        self.create_topic = f"""
            insert into {schema}.topic (name)
            select %(name)s from {schema}.configuration c where c.automatic_creation
            on conflict (name) do nothing"""
        # Negative, so that the numbers of topics and queues share a channel.
        self.notify_topics = f"""
            select pg_notify(%(channel)s, (-topic_id)::text) from {schema}.topic where name = any(%(names)s::text[])"""

        # The lock keeps others from attaching to it, changing it or removing it until the transaction ends. It is had
        # by a statement of its own: one that waits for it does not see what others did until then.
        self.lock_named_subscription = f"""
            select from {schema}.subscription s
            where s.durable = %(durable)s and s.client_id is not distinct from %(client_id)s::text
              and s.name = %(name)s
            for update"""
        self.find_subscription = f"""
            select s.queue_id, s.topic_id, t.name, s.selector, s.shared, s.no_local,
                   exists (select from {schema}.subscriber c
                           where c.queue_id = s.queue_id and {schema}.is_connected(c.connection_id))
            from {schema}.subscription s
            join {schema}.topic t using (topic_id)
            where s.durable = %(durable)s and s.client_id is not distinct from %(client_id)s::text
              and s.name = %(name)s"""
        # A trigger makes its queue.
        self.create_subscription = f"""
            insert into {schema}.subscription (topic_id, client_id, name, selector, durable, shared, no_local)
            values (%(topic_id)s::integer, %(client_id)s::text, %(name)s::text, %(selector)s::text,
                    %(durable)s::boolean, %(shared)s::boolean, %(no_local)s::boolean)
            returning queue_id"""
        self.redefine_subscription = f"""
            update {schema}.subscription set selector = %(selector)s::text, no_local = %(no_local)s::boolean
            where queue_id = %(queue_id)s"""
        self.rejoin = f"""
            with joined as (
                update {schema}.subscriber set connection_id = %(connection_id)s
                where connection_id = any(%(former_ids)s::bigint[])
                returning queue_id)
            select queue_id from joined
            union select queue_id from {schema}.subscriber where connection_id = %(connection_id)s"""
        self.attach = f"""
            insert into {schema}.subscriber as c (queue_id, connection_id, consumers)
            values (%(queue_id)s, %(connection_id)s, 1)
            on conflict (queue_id, connection_id) do update set consumers = c.consumers + 1"""
        # What is sent meanwhile waits for the transaction's end, and then finds the subscription gone or attached.
        self.lock_subscription = f"select from {schema}.subscription where queue_id = %(queue_id)s for update"
        self.use_of_subscription = f"""
            select s.shared, s.name, exists (
                       select from {schema}.subscriber c
                       where c.queue_id = s.queue_id and c.connection_id <> %(connection_id)s
                         and {schema}.is_connected(c.connection_id)),
                   exists (select from {schema}.subscriber c
                           where c.queue_id = s.queue_id and c.connection_id = %(connection_id)s)
            from {schema}.subscription s where s.queue_id = %(queue_id)s"""
        # A trigger removes the row with the last consumer.
        self.detach = f"""
            update {schema}.subscriber set consumers = consumers - 1
            where queue_id = %(queue_id)s and connection_id = %(connection_id)s"""
        self.is_abandoned = f"""
            select from {schema}.subscription s
            where s.queue_id = %(queue_id)s and not s.durable
              and not exists (select from {schema}.subscriber c where c.queue_id = s.queue_id)"""
        # Triggers delete it, and have its messages go later, in small steps.
        self.remove_subscription = f"update {schema}.subscription set ended = true where queue_id = %(queue_id)s"
        self.count_messages = f"""
            select (select count(*) from {schema}.message where queue_id = %(queue_id)s)
                 + (select count(*) from {schema}.delayed_message where queue_id = %(queue_id)s)"""
        self.held_messages = f"""
            select (select count(*) from {schema}.message where queue_id = %(queue_id)s)
                 - (select count(*) from (
                        select from {schema}.message where queue_id = %(queue_id)s for update skip locked) as unlocked)
                 + (select count(*) from {schema}.delivery where queue_id = %(queue_id)s and claim_id is not null)"""

    @lru_cache(maxsize=256)  # noqa: B019 - one TopicStatements a schema, kept for the life of the process
    def publish(
        self, selectors: tuple[str, ...], *, flush: bool, delayed: bool = False, source: str | None = None
    ) -> SelectedStatement:
        """Insert messages for each subscription of a topic whose selector chooses them.

        It returns nothing if it knows the selectors of all subscriptions that are meant. Else it inserts nothing, and
        returns all selectors of the topic: for other publishers `no_local` leaves out other subscriptions. The same
        snapshot that shows the subscriptions tells whether the statement is right for them.

        Args:
            selectors: The selectors that the statement knows, as the table has them.
            flush: False lets the transaction of this statement alone commit without waiting for the disk.
            delayed: Whether the messages have a delivery time to wait for.
            source: The messages, as a relation `m` with their columns and `position`; None: the parameters of a send.
        """
        schema = self._schema
        table, columns = ("delayed_message", DELAYED_COLUMNS) if delayed else ("message", SEND_COLUMNS)
        names = [name for name, _ in columns[1:]]
        parameters: dict[str, object] = {"known": list(selectors)}
        branches = ""
        for number, text in enumerate(selectors):
            condition = "false"  # where it is no selector: a client would have refused it
            with contextlib.suppress(InvalidSelectorException):
                selector = Selector.parse(from_postgresql(text))
                if selector is None:
                    continue
                chosen = selector.to_sql(self._schema_name, first=len(parameters))
                parameters |= chosen.parameters
                condition = f"({chosen.condition}) is true"
            parameters[f"text_{number}"] = text
            branches += f" when %(text_{number})s then {condition}"
        chosen_by = f"case t.selector{branches} else true end" if branches else "true"
        size = " + ".join(f"coalesce(pg_column_size(m.{name}), 0)" for name in BODY_COLUMNS)
        values = ", ".join(
            f"case when not m.is_shared then m.{name} end" if name in BODY_COLUMNS else f"m.{name}" for name in names
        )
        commit = "" if flush else "commit as materialized (select set_config('synchronous_commit', 'off', true)),"
        waiting = "commit cross join " if not flush else ""
        outgoing = outgoing_messages(schema, "m", columns) if source is None else source
        return SelectedStatement(
            f"""with {commit}
                target as materialized (
                    select s.queue_id, s.selector
                    from {schema}.topic t
                    join {schema}.subscription s using (topic_id)
                    where t.name = %(topic)s
                      and not (s.no_local and case
                               when s.durable then s.client_id is not distinct from %(client_id)s::text
                               else exists (select from {schema}.subscriber c
                                            where c.queue_id = s.queue_id
                                              and c.connection_id = %(connection_id)s::bigint) end)),
                unknown as materialized (
                    select from target where selector is not null and selector <> all(%(known)s::text[]) limit 1),
                m as materialized (
                    select m.*,
                           {size} > {_SHARED_SIZE} and (select count(*) from target) > 1
                               and not exists (select from unknown) as is_shared
                    from {waiting}{outgoing}),
                shared as (
                    insert into {schema}.body (position, {", ".join(BODY_COLUMNS)})
                    select m.position, {", ".join("m." + name for name in BODY_COLUMNS)}
                    from m where m.is_shared
                    returning body_id, position),
                sent as (
                    insert into {schema}.{table} (queue_id, body_id, {", ".join(names)})
                    select t.queue_id, b.body_id, {values}
                    from m left join shared b on m.is_shared and b.position = m.position cross join target t
                    where not exists (select from unknown) and {chosen_by}
                    order by m.position)
                select distinct s.selector
                from {schema}.topic t
                join {schema}.subscription s using (topic_id)
                where t.name = %(topic)s and s.selector is not null and exists (select from unknown)""",
            parameters,
        )


@cache
def topic_statements(schema_name: str) -> TopicStatements:
    """Return the statements for a schema."""
    return TopicStatements(schema_name)
