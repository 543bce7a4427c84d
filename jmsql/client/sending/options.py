"""The options of a send, for the calls that hand them on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal, TypedDict

from jmsql.client.sending.steps import Step
from jmsql.values.destinations import AnyDestination


class SendOptions(TypedDict, total=False):
    """The options of `jmsql.send`, as it describes them."""

    priority: int
    delivery_delay: float | timedelta
    time_to_live: float | timedelta
    group: str | None
    properties: Mapping[str, Any] | None
    reply_to: AnyDestination | None
    correlation_id: str | None
    deduplication_id: str | None
    coalesce: str | None
    coalesce_body: Literal["first", "latest"]
    then: Sequence[Step]
