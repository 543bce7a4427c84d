"""What sessions do with what they have received, whatever their kind."""

from __future__ import annotations

from jmsql import Message, Session


def settle(session: Session, last: Message) -> None:
    """Acknowledge all that a session has received."""
    if session.transacted:
        session.commit()
    else:
        last.acknowledge()


def release(session: Session) -> None:
    """Have all that a session has received delivered again."""
    if session.transacted:
        session.rollback()
    else:
        session.recover()
