"""The states of a transacted session's transaction, and the events that lead from one to the next."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

# One session has one transaction at a time, and the application may share its connection. Then the application can end
# the transaction, on purpose or not, and a later commit must not report lost work as committed.
#
#                         APPLICATION_COMMITS              OPEN, JOIN
#                       +---------------------> COMMITTED -----------> CONTINUED
#                       |                                                  | as SHARED, but VANISHED
#                       |                                                  | after a rollback
#   NONE -> BEGUN -> OURS, SHARED
#                       |  APPLICATION_ROLLS_BACK
#                       +---------------------> ROLLED_BACK
#                       |  VANISH
#                       +---------------------> VANISHED
#                       |  INTERRUPT
#                       +---------------------> INTERRUPTED             END leads from every state to NONE.
#
# SESSION_RELIES acts as a statement of the session: it leads from BEGUN and OURS to SHARED, from COMMITTED to
# CONTINUED. INTERRUPT leads to INTERRUPTED from BEGUN and COMMITTED as well.
#
# Invariants:
#
# 1. A state of LOST_STATES is left by END alone: a rollback ends it, a commit that fails, or giving the connection up.
# 2. OURS, SHARED and CONTINUED mean that the server's transaction holds work of the session. If that transaction is
#    found to be gone in one of them, the work is lost or committed by somebody else, and the session cannot say which.
# 3. In BEGUN and COMMITTED the server's transaction holds nothing of the session, so its end changes nothing.
#
# Things that do not work:
#
# - A flag for "committed" beside a flag for "has work": the second part of a transaction that the application committed
#   half-way then inherits the first part's flag, and its loss goes unnoticed.
# - Taking an idle server for "nothing was done yet": after ROLLBACK as text the next statement begins a transaction of
#   its own, and the commit of that one looks like success.


class TransactionState(Enum):
    """The relation between a session and the transaction of its connection."""

    __hash__ = object.__hash__  # Enum's is a Python function, which each look-up in TRANSITIONS would call

    NONE = auto()
    """The session needs no transaction."""
    BEGUN = auto()
    """The session needs it, and has run nothing in it."""
    OURS = auto()
    """The session has begun it with a statement, and the application has run none."""
    SHARED = auto()
    """It holds work of the session, and maybe of the application; or the session relies on the application's alone."""
    COMMITTED = auto()
    """The application has committed it, with the session's part so far, and the session has run nothing since."""
    CONTINUED = auto()
    """The session works in the transaction that follows one that the application has committed."""
    ROLLED_BACK = auto()
    """The application has rolled it back, and the session's work with it."""
    VANISHED = auto()
    """The application has ended it, and the session's work was not simply rolled back: the end came as text, which
    does not tell how it ended; or a part was committed before."""
    INTERRUPTED = auto()
    """The server was asked to interrupt its end, since the task was cancelled."""


class TransactionEvent(Enum):
    """A cause for another state."""

    __hash__ = object.__hash__

    BEGIN = auto()
    """The session asks for a transaction."""
    OPEN = auto()
    """The session runs a statement that opens the server's transaction."""
    JOIN = auto()
    """The session runs a statement in a transaction that is open."""
    APPLICATION_WORKS = auto()
    """The application runs a statement whose fate the session need not know."""
    SESSION_RELIES = auto()
    """The application runs a statement that the session's commit stands for."""
    APPLICATION_COMMITS = auto()
    """The application has committed, by a method of SQLAlchemy or of the driver."""
    APPLICATION_ROLLS_BACK = auto()
    """The application has rolled back, by a method of SQLAlchemy or of the driver, or the server refused to commit."""
    VANISH = auto()
    """The server's transaction is gone, by a statement or a call that does not tell how it ended."""
    INTERRUPT = auto()
    """The end of the transaction was interrupted."""
    END = auto()
    """The session has ended it, or given its connection up."""


_S, _E = TransactionState, TransactionEvent

WORKING_STATES: Final = frozenset({_S.OURS, _S.SHARED, _S.CONTINUED})
"""The server's transaction holds work that the session's commit stands for."""
LOST_STATES: Final = frozenset({_S.ROLLED_BACK, _S.VANISHED, _S.INTERRUPTED})
"""Work of the session is gone, or its fate is unknown."""
_APPLICATION = (_E.APPLICATION_WORKS, _E.SESSION_RELIES, _E.APPLICATION_COMMITS, _E.APPLICATION_ROLLS_BACK, _E.VANISH)
_ENDS_WORK = {
    _E.APPLICATION_COMMITS: _S.COMMITTED,
    _E.APPLICATION_ROLLS_BACK: _S.ROLLED_BACK,
    _E.VANISH: _S.VANISHED,
    _E.INTERRUPT: _S.INTERRUPTED,
    _E.END: _S.NONE,
}

TRANSITIONS: Final[Mapping[TransactionState, Mapping[TransactionEvent, TransactionState]]] = {
    _S.NONE: {
        _E.BEGIN: _S.BEGUN,
        **dict.fromkeys(_APPLICATION, _S.NONE),
        _E.INTERRUPT: _S.NONE,
        _E.END: _S.NONE,
    },
    _S.BEGUN: {
        _E.BEGIN: _S.BEGUN,
        _E.OPEN: _S.OURS,
        _E.JOIN: _S.SHARED,
        **dict.fromkeys(_APPLICATION, _S.BEGUN),
        _E.SESSION_RELIES: _S.SHARED,
        _E.INTERRUPT: _S.INTERRUPTED,
        _E.END: _S.NONE,
    },
    _S.OURS: {
        **dict.fromkeys((_E.BEGIN, _E.OPEN, _E.JOIN), _S.OURS),
        **dict.fromkeys((_E.APPLICATION_WORKS, _E.SESSION_RELIES), _S.SHARED),
        **_ENDS_WORK,
    },
    _S.SHARED: {
        **dict.fromkeys((_E.BEGIN, _E.OPEN, _E.JOIN, _E.APPLICATION_WORKS, _E.SESSION_RELIES), _S.SHARED),
        **_ENDS_WORK,
    },
    _S.COMMITTED: {
        _E.BEGIN: _S.COMMITTED,
        **dict.fromkeys((_E.OPEN, _E.JOIN), _S.CONTINUED),
        **dict.fromkeys(_APPLICATION, _S.COMMITTED),
        _E.SESSION_RELIES: _S.CONTINUED,
        _E.INTERRUPT: _S.INTERRUPTED,
        _E.END: _S.NONE,
    },
    _S.CONTINUED: {
        **dict.fromkeys((_E.BEGIN, _E.OPEN, _E.JOIN, _E.APPLICATION_WORKS, _E.SESSION_RELIES), _S.CONTINUED),
        **_ENDS_WORK,
        _E.APPLICATION_ROLLS_BACK: _S.VANISHED,  # a part was committed, so "rolled back" would be a lie
    },
    **{lost: {**dict.fromkeys((*_APPLICATION, _E.INTERRUPT), lost), _E.END: _S.NONE} for lost in LOST_STATES},
}
"""The next state, by state and event. A pair that is not here cannot occur, and raises KeyError."""
