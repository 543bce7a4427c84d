"""Functions that are called with messages which have become dead letters."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from jmsql.concurrency.functions import is_coroutine_function, refuse_generator_function
from jmsql.messages import Message

# A hook is called once the message's mark as a dead letter is committed, in the process that has handled the last
# delivery. No process calls it for a message that has expired, or that kills its process at every delivery: there is no
# error then. A listener of the dead-letter queue misses none of them.


DeadLetterHook: TypeAlias = Callable[[Message, BaseException], object]
"""Called with a message and the error of its last delivery."""


def dead_letter_hooks(
    handler: Callable[..., object], name: str, *hooks: DeadLetterHook | None
) -> tuple[DeadLetterHook, ...]:
    """Return the functions that can be called for the dead letters of a handler.

    Args:
        handler: The handler.
        name: Its name, for errors.
        hooks: The functions, of the listener first; None: it has none.

    Raises:
        TypeError: One of them is no function that can be called there.
    """
    given = tuple(hook for hook in hooks if hook is not None)
    for hook in given:
        if not callable(hook):
            raise TypeError(f"on_dead_letter=… is called with a message and its error, and {hook!r} cannot be called.")
        refuse_generator_function(hook)
        if is_coroutine_function(hook) and not is_coroutine_function(handler):
            raise TypeError(
                f"The handler {name} is a plain function, and is called in a thread, where nothing can be awaited; "
                f"on_dead_letter=… is the coroutine function {getattr(hook, '__qualname__', hook)}. Make it a plain "
                "function, or the handler a coroutine function."
            )
    return given
