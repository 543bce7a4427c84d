"""The fence of streaming reads: a driver that opens one raises its epoch, and earlier drivers can do nothing more."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jmsql.exceptions import IllegalStateException, JMSException

__all__ = ["check_epoch"]


def check_epoch(found: Sequence[Sequence[Any]], epoch: int) -> Sequence[Any]:
    """Make sure that a streaming read is there, and in the hands of this driver.

    Args:
        found: The row of the read, which the transaction has locked and whose first column is the epoch; none if it is
            gone.
        epoch: The driver's own.

    Returns:
        The other columns.

    Raises:
        IllegalStateException: Another driver has opened it since.
        JMSException: It is gone.
    """
    if not found:
        raise JMSException("The streaming read was ended by forget_spark_source().")
    current, *others = found[0]
    if current != epoch:
        raise IllegalStateException(
            "Another driver has taken over this streaming read: two queries run with the same checkpoint. This one "
            "stops here; nothing is lost."
        )
    return others
