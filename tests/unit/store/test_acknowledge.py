"""Acknowledgements as statements."""

from __future__ import annotations

from jmsql.store.receiving.acknowledge import Recipient
from jmsql.store.rows.message_rows import MessageKey
from jmsql.store.wire.exchange import Binding

SEQUENCES = [[1], [40_000], [3_000_000_000], [1, 2], [40_000 + n for n in range(100)]]


def test_acknowledgements_of_messages_that_lie_close_together_are_one_prepared_statement() -> None:
    """However many messages, and however large their numbers are, by whose size psycopg tells types."""
    prepared = set()
    for sequences in SEQUENCES:
        claimed = [(MessageKey(7, 5, sequence), sequence) for sequence in sequences]
        query = Recipient().acknowledge(claimed)
        bound = Binding().bind(query.statement.encoded("jmsql"), query.parameters)
        prepared.add((bound.text, bound.types))

    assert len(prepared) == 1
