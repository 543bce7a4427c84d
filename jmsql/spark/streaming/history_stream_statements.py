"""Every SQL statement of the streaming reads of the history, made once for each schema."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from jmsql.selectors import Selector
from jmsql.spark.reading.browse_statements import select_list
from jmsql.spark.reading.history_statements import HistoryOrigin, history_columns
from jmsql.store.identifier import Schema
from jmsql.store.selected_statement import SelectedStatement
from jmsql.store.selection import selector_condition

__all__ = ["HistoryStreamStatements", "history_stream_statements"]


class HistoryStreamStatements:
    """The statements for one schema.

    A place is a pair (transaction_id, sequence). What is between two places is read by the index
    (destination, transaction_id, sequence), also for all destinations: their names are had by leaps from each to the
    next, and the rows of each by a scan of its own. `oldest_day` is the start of a day, before which there is nothing
    in the range: PostgreSQL then leaves the partitions of days before it alone.

    Args:
        schema_name: The plain name of the schema.
    """

    def __init__(self, schema_name: str) -> None:
        self._schema_name = schema_name
        schema = self._schema = Schema(schema_name)
        self._columns = history_columns(schema)
        of_source = "source_id = %(source_id)s"

        self.end = "select pg_snapshot_xmin(pg_current_snapshot())::text"
        # Those that Spark has never noted hold nothing, and nobody comes back for them.
        self.forget_unused = f"""
            delete from {schema.internal}.spark_cursor where not holds and used_at < now() - interval '1 day'"""
        self.create = f"""
            insert into {schema.internal}.spark_cursor (
                destination, is_topic, subscription, subscription_client_id, since, transaction_id, sequence,
                last_transaction_id, last_sequence)
            values (%(destination)s, %(is_topic)s, %(subscription)s, %(client)s, %(since)s, %(transaction)s::xid8, 0,
                    %(transaction)s::xid8, 0)
            returning source_id::text"""
        # What its checkpoint says is then beyond what was given out.
        self.adopt = f"""
            insert into {schema.internal}.spark_cursor (
                source_id, destination, is_topic, subscription, subscription_client_id, since, transaction_id, sequence,
                last_transaction_id, last_sequence)
            values (%(source_id)s, %(destination)s, %(is_topic)s, %(subscription)s, %(client)s, %(since)s,
                    %(transaction)s::xid8, %(sequence)s, '0', 0)
            on conflict (source_id) do nothing"""
        self.begin_epoch = f"""
            update {schema.internal}.spark_cursor set epoch = epoch + 1, used_at = now() where {of_source}
            returning epoch, since"""
        self.lock = f"""
            select epoch, transaction_id::text::bigint, sequence, last_transaction_id::text::bigint, last_sequence,
                   lost_at
            from {schema.internal}.spark_cursor where {of_source} for update"""
        self.hold = (
            f"update {schema.internal}.spark_cursor set holds = true, used_at = now() where {of_source} and not holds"
        )
        self.forgive_loss = f"update {schema.internal}.spark_cursor set lost_at = null where {of_source}"
        self.pass_to = f"""
            update {schema.internal}.spark_cursor
            set transaction_id = %(transaction)s::xid8, sequence = %(sequence)s, used_at = now(),
                passed_at = coalesce(%(passed_at)s, passed_at)
            where {of_source}"""
        self.give_out = f"""
            update {schema.internal}.spark_cursor
            set last_transaction_id = %(transaction)s::xid8, last_sequence = %(sequence)s, used_at = now()
            where {of_source}
              and (last_transaction_id, last_sequence) < (%(transaction)s::xid8, %(sequence)s::bigint)"""
        self.note_all_passed = f"""
            update {schema.internal}.spark_cursor set passed_at = %(passed_at)s, used_at = now() where {of_source}"""
        self.clock = "select clock_timestamp()"
        self.days = f"""
            select d.day::timestamp at time zone 'UTC', d.settled from {schema}.history_days d
            where d.day::timestamp at time zone 'UTC' >= coalesce(%(oldest_day)s::timestamptz, '-infinity')
            order by d.day"""

    def first(self, origin: HistoryOrigin) -> SelectedStatement:
        """Find the first place in the range."""
        return self._statement(
            origin,
            """select transaction_id::text::bigint, sequence
               from ({found}) f order by f.transaction_id, f.sequence limit 1""",
            "m.transaction_id, m.sequence",
            "order by m.transaction_id, m.sequence limit 1",
        )

    def end_of_batch(self, origin: HistoryOrigin, *, with_size: bool) -> SelectedStatement:
        """Find the row at which a batch that starts with the range is full, or else the last one in the range.

        It returns how many rows there are up to there and their size, the place, and whether the batch is full.
        """
        size = "pg_column_size(m.*)" if with_size else "0"
        return self._statement(
            origin,
            """select n, total::bigint, transaction_id::text::bigint, sequence, is_full
               from (select r.*, n >= %(messages)s or total >= %(size)s as is_full
                     from (select transaction_id, sequence, row_number() over w as n, sum(size) over w as total
                           from ({found}) f window w as (order by transaction_id, sequence)) r) r
               order by is_full desc, case when is_full then n else -n end limit 1""",
            f"m.transaction_id, m.sequence, {size} as size",
            "order by m.transaction_id, m.sequence limit %(messages)s",
            only_keys=not with_size,
        )

    def count(self, origin: HistoryOrigin) -> SelectedStatement:
        """Count the rows in the range."""
        return self._statement(origin, "select count(*) from ({found}) f", "m.sequence", only_keys=True)

    def backlog(self, origin: HistoryOrigin) -> SelectedStatement:
        """Count the rows in the range, and add up their size and the time of the oldest."""
        return self._statement(
            origin,
            """select count(*), coalesce(sum(size), 0)::bigint,
                      coalesce(extract(epoch from clock_timestamp() - min(acknowledged_at)), 0)::float8
               from ({found}) f""",
            "pg_column_size(m.*) as size, m.acknowledged_at",
        )

    def parts(self, origin: HistoryOrigin) -> SelectedStatement:
        """Divide the range into parts of the same number of rows: where each begins, and how many it has."""
        return self._statement(
            origin,
            """select count(*), (min(array[transaction_id::text::bigint, sequence]))[1],
                      (min(array[transaction_id::text::bigint, sequence]))[2]
               from (select f.*, ntile(%(partitions)s) over (order by transaction_id, sequence) as part
                     from ({found}) f) f
               group by part order by part""",
            "m.transaction_id, m.sequence",
            only_keys=True,
        )

    def read(self, columns: Sequence[str], origin: HistoryOrigin, selector: Selector | None) -> SelectedStatement:
        """Read the columns of the rows in the range that the selector chooses."""
        chosen, choosing = selector_condition(selector, self._schema_name)
        statement = self._statement(origin, "{found}", select_list(self._columns, columns), condition=chosen)
        return SelectedStatement(statement.text, {**statement.parameters, **choosing})

    def _statement(
        self,
        origin: HistoryOrigin,
        outer: str,
        wanted: str,
        order: str = "",
        *,
        condition: str = "",
        only_keys: bool = False,
    ) -> SelectedStatement:
        history = f"{self._schema.internal}.message_history"
        # Where keys are enough, the index alone is read, of all days: that is less than looking at the rows.
        recent = "true"
        if not only_keys:
            recent = (
                "{row}.acknowledged_at >= coalesce(%(oldest_day)s::timestamptz, '-infinity') "
                "and {row}.acknowledged_at < coalesce(%(until)s::timestamptz, 'infinity')"
            )
        chosen = origin.condition()
        scan = f"""
            select {wanted} from {history} m
            where (m.transaction_id, m.sequence) >= (%(first_transaction)s::xid8, %(first_sequence)s::bigint)
              and (m.transaction_id, m.sequence) < (%(end_transaction)s::xid8, %(end_sequence)s::bigint)
              and {recent.format(row="m")} {chosen.text} {condition}"""
        if origin.destination is not None:
            return SelectedStatement(outer.replace("{found}", f"{scan} {order}"), chosen.parameters)
        recent = recent.format(row="h")
        return SelectedStatement(
            f"""with recursive known (name) as (
                    select min(h.destination) from {history} h where {recent}
                    union all
                    select (select min(h.destination) from {history} h where h.destination > known.name and {recent})
                    from known where known.name is not null)
                """
            + outer.replace(
                "{found}",
                f"""select l.* from known cross join lateral (
                    {scan} and m.destination = known.name {order} offset 0) l where known.name is not null""",
            ),
            chosen.parameters,
        )


@cache
def history_stream_statements(schema_name: str) -> HistoryStreamStatements:
    """Return the statements for a schema."""
    return HistoryStreamStatements(schema_name)
