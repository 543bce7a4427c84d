"""A call of a function that another thread ends by an exception inside of it."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType
from typing import TypeVar

T = TypeVar("T")

_OWN_PACKAGE = __name__.partition(".")[0]

_set_asynchronous_exception = ctypes.pythonapi.PyThreadState_SetAsyncExc
_set_asynchronous_exception.argtypes = (ctypes.c_ulong, ctypes.py_object)
_set_asynchronous_exception.restype = ctypes.c_int

# The interpreter raises an asynchronous exception when the thread comes to its next check for one: at a call, at the
# end of a call, at a jump backward. By then the function may have returned, and the thread may be in the commit or at
# the next message. So:
#
# - The end of the call and the exception compete for one lock, which is never released. If the end has it, nothing is
#   raised any more.
# - If the exception has it, the call does not end before the exception is set, and takes it back if it was not raised
#   yet. An exception that is raised meanwhile is raised inside of the call.
# - It is taken back by another exception, which takes its place and is caught. To set none in its place (NULL) leaves
#   the interpreter's flag up, in Python 3.11 and 3.12: each check is slow from then on, and in 3.11 a function that is
#   called under a profiler or a debugger never begins.
# - Nothing is raised twice, so after one landing the thread is safe wherever it is.
# - The end waits for the one that sets the exception by a lock that it never releases: an exception may land before it
#   could.


class _TakenBack(BaseException):
    """Takes the place of an exception that was not raised yet."""


def _take_back(thread: int) -> None:
    """Take back the exception that is set for the caller's thread, if it was not raised yet."""
    try:
        _set_asynchronous_exception(thread, _TakenBack)
        while True:  # the interpreter looks for the exception when it jumps back
            pass
    except _TakenBack:
        return


class InterruptibleCall:
    """One call of a function, in which another thread can raise one exception.

    Nothing is raised outside of the call; nor in code of jmsql that the function calls, which may hold a lock or be in
    the middle of an exchange with the server.
    """

    __slots__ = ("_interrupting", "_is_decided", "_outside", "_thread", "has_ended")

    def __init__(self) -> None:
        self._thread: int | None = None
        self._is_decided = threading.Lock()
        self._interrupting = threading.Lock()
        """Held while an exception is set."""
        self._outside = threading.Lock()
        self.has_ended = False
        """True once `end` has been called. Written under the lock `_outside`."""

    def run(self, function: Callable[..., T], /, *arguments: object, **options: object) -> T:
        """Call the function, in the caller's thread; may be called once.

        Raises:
            BaseException: The error of the function, or the exception of another thread.
        """
        thread = self._thread = threading.get_ident()
        try:
            return function(*arguments, **options)
        finally:
            if not self._is_decided.acquire(blocking=False):
                self._interrupting.acquire()
                _take_back(thread)

    def interrupt(self, kind: type[BaseException]) -> bool:
        """Raise an exception in the function, from another thread.

        A function that waits in C code gets it once that returns.

        Args:
            kind: The class of the exception, which is made without arguments.

        Returns:
            True if the exception is set; False if the function has ended, has been interrupted before, or is in code
            of jmsql now.
        """
        thread = self._thread
        if thread is None or not self._interrupting.acquire(blocking=False):
            return False
        try:
            if not self._is_in_function(thread) or not self._is_decided.acquire(blocking=False):
                return False
            _set_asynchronous_exception(thread, kind)
            return True
        finally:
            self._interrupting.release()

    def raise_here(self, kind: type[BaseException]) -> None:
        """Raise an exception in the caller's thread if the function runs there, and was not interrupted before."""
        if threading.get_ident() == self._thread and self._is_decided.acquire(blocking=False):
            raise kind

    @contextmanager
    def interrupting(self) -> Iterator[bool]:
        """Enclose an interruption by other means, for which `end` waits; yield False if the call has ended."""
        with self._outside:
            yield not self.has_ended

    def end(self) -> None:
        """End the call for those that interrupt it; its thread goes on with other work."""
        with self._outside:
            self.has_ended = True

    def _is_in_function(self, thread: int) -> bool:
        """Return True unless the thread is in code of jmsql: around the function, or called by it."""
        frame = sys._current_frames().get(thread)  # noqa: SLF001 - documented, and named so to warn
        codes: list[str] = []
        while frame is not None and frame.f_code is not _RUN:
            codes.append(frame.f_globals.get("__name__") or "")
            frame = frame.f_back
        is_own = [name.partition(".")[0] == _OWN_PACKAGE for name in reversed(codes)]  # from the call inward
        return frame is not None and False in is_own and not any(is_own[is_own.index(False) :])


class Interrupted:
    """A guard for the objects of a function that is to end: the next call of one raises an exception.

    A function that calls jmsql in a loop is in code of jmsql whenever another thread looks, so that nothing could be
    raised from there.

    Args:
        call: The call of the function.
        error: The class of the exception.
    """

    def __init__(self, call: InterruptibleCall, error: type[BaseException]) -> None:
        self._call = call
        self._error = error

    def check(self, kind: str) -> None:  # noqa: ARG002 - whatever it is
        """Raise the exception."""
        self._call.raise_here(self._error)


_RUN: CodeType = InterruptibleCall.run.__code__
