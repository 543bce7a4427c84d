"""Dead letters: a look at them, and the way back to where they come from."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple, cast

from jmsql.exceptions import MessageFormatException
from jmsql.messages.types.typed_json import parse_json
from jmsql.public_names import set_module
from jmsql.selectors import Selector
from jmsql.store.destinations.lookup import existing_queue
from jmsql.store.rows.columns import and_chosen
from jmsql.store.statement import SqlFile, Statement, Steps, column, fill, integers_literal, records, rows


@set_module("jmsql.admin")
class DeadLetter(NamedTuple):
    """A row of the view ``dead_letters``.

    Properties that cannot be read are replaced by one of the name ``(unreadable)``, which says why.
    """

    queue: str
    sequence: int
    original_destination: str | None
    original_subscription: str | None
    reason: str
    deliveries: int | None
    error: str | None
    first_failed_at: datetime | None
    died_at: datetime
    message_id: str | None
    type: str
    priority: int
    sent_at: datetime | None
    expires_at: datetime | None
    correlation_id: str | None
    jms_type: str | None
    properties: dict[str, Any]
    body: str | None
    original_client_id: str | None
    last_error: str | None


@set_module("jmsql.admin")
class Retry(NamedTuple):
    """The result of a retry."""

    returned: dict[str, int]
    """How many dead letters went back, by destination."""
    left: int
    """How many stay, since a session holds them, or the destination or subscription that they come from is gone."""
    gone: dict[str, int] = {}  # noqa: RUF012 - a default that nothing changes
    """How many of those have no destination or subscription to go back to, by its name."""


def _to_letter(row: tuple[Any, ...]) -> DeadLetter:
    letter = DeadLetter._make(row)
    try:
        properties: dict[str, Any] = parse_json(cast("str", letter.properties))
    except MessageFormatException as error:
        properties = {"(unreadable)": str(error)}
    return letter._replace(properties=properties)


_sql = SqlFile("inspection")
_parts = {"is_dead_letter": _sql["is_dead_letter"]}
IS_HOMELESS = _sql["is_homeless"]
"""The condition that the origin of dead letters `g` is gone."""
HOMELESS = fill(_sql["homeless"], is_homeless=IS_HOMELESS)
"""The statement that groups `{letters}` without an origin."""
dead_letter_queues = _sql.statement("dead_letter_queues", "looking for dead letters", column, _parts).bind()
"""The names of the queues in which dead letters wait."""


def first_dead_letters(queue: str | None, selector: Selector | None, limit: int) -> Steps[list[DeadLetter]]:
    """Return the dead letters that died last, at most so many.

    Raises:
        InvalidDestinationException: There is no such queue.
    """
    chosen, parameters = and_chosen(selector)
    of_queue = ""
    if queue is not None:
        of_queue = "and m.queue_id = %(queue_id)s"
        parameters = parameters | {"queue_id": (yield from existing_queue(queue))}
    text = fill(_sql["dead_letters"], of_queue=of_queue, chosen=chosen, **_parts)
    statement = Statement("dead_letters", text, "looking at dead letters", records(_to_letter), parameters)
    return (yield from statement.bind(limit=limit))


def retry(
    queue: str, selector: Selector | None, limit: int | None, sequences: Sequence[int] | None = None
) -> Steps[Retry]:
    """Move dead letters back to where they come from, in one transaction.

    Raises:
        InvalidDestinationException: There is no such queue.
    """
    chosen, parameters = and_chosen(selector)
    if sequences is not None:
        chosen += " and m.sequence = any(%(sequences)s::bigint[])"
        parameters = parameters | {"sequences": integers_literal(sequences)}
    text = fill(_sql["retry_dead_letters"], chosen=chosen, **_parts)
    statement = Statement("retry_dead_letters", text, "moving dead letters back", rows, parameters)
    queue_id = yield from existing_queue(queue)
    found = yield from statement.bind(queue_id=queue_id, limit=limit)
    returned = origins(row for row in found if row[0] is not None)
    left = next(int(count) for destination, _, count in found if destination is None) - sum(returned.values())
    if not left:
        return Retry(returned, left)
    # The letters that stay were the first, and still are.
    text = fill(HOMELESS, letters=fill(_sql["chosen_letters"], chosen=chosen, **_parts))
    statement = Statement("homeless", text, "looking for the origins of dead letters", rows, parameters)
    return Retry(returned, left, origins((yield from statement.bind(queue_id=queue_id, limit=left))))


def origins(found: Iterable[tuple[Any, ...]]) -> dict[str, int]:
    """Return the numbers of messages by the names of the destination and the subscription."""
    counted: Counter[str] = Counter()
    for destination, subscription, count in found:
        counted[destination if subscription is None else f"{destination} ({subscription})"] += int(count)
    return dict(counted)
