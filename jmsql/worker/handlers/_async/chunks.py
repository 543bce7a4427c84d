"""A call of a handler with a chunk of messages, all of them or a part."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from jmsql.client._async.session.session import HandlerSession
from jmsql.logs import contained_logger
from jmsql.messages import Message
from jmsql.values.clock import monotonic
from jmsql.values.outcomes import Interruption, Reject, RetryAfter
from jmsql.worker.handlers._async.call import HandlerCall, first_line
from jmsql.worker.handlers.listener import Listener

logger = contained_logger("jmsql.worker")


# A call with a chunk settles all of its messages, or none, or the one that a `Reject` names. The verdict decides which:
# `is_divided` says that the rest is handled again in parts, by `ChunkTask`. Replies are a list with one element for
# each message, since nothing else tells which reply answers which message.


class ChunkCall(HandlerCall):
    """A call of a listener's handler with a list of messages, which the session's transaction settles together.

    Args:
        listener: The listener.
        messages: The messages.
        session: The session.
        cancel_timeout: As for a call with one message.
    """

    def __init__(
        self, listener: Listener, messages: Sequence[Message], session: HandlerSession, cancel_timeout: float = 2.0
    ) -> None:
        super().__init__(listener, messages[0], session, cancel_timeout)
        self.messages = messages

    @property
    def settled(self) -> int:
        """How many messages have the call's outcome, once `run` has returned; the others are handled in parts."""
        if self.verdict is None or not self.is_divided(self.verdict):
            return len(self.messages)
        return 0 if self.rejected(self.verdict) is None else 1

    def is_divided(self, verdict: BaseException) -> bool:
        """Tell whether the messages of a call that has failed are handled again in parts."""
        return len(self.messages) > 1 and not isinstance(verdict, RetryAfter | Interruption)

    def rejected(self, verdict: BaseException) -> Message | None:
        """Return the message that an error names; None: it names none of these."""
        index = verdict.index if isinstance(verdict, Reject) else None
        return self.messages[index] if index is not None and 0 <= index < len(self.messages) else None

    def _is_in_chain(self) -> bool:
        return any(message.has_next_steps for message in self.messages)

    async def _answer(self, result: object) -> None:
        if result is None:
            result = [None] * len(self.messages)
        if not isinstance(result, list | tuple) or len(result) != len(self.messages):
            raise TypeError(
                f"{self.listener} returns a list with a reply, or None, for each of the {len(self.messages)} messages "
                f"of its chunk, or None for no replies, and has returned {type(result).__name__}"
                + (f" of {len(result)}." if isinstance(result, list | tuple) else ".")
            )
        for message, reply in zip(self.messages, result, strict=True):
            if reply is not None or message.has_next_steps:
                await self._reply(message, reply)

    async def call_dead_letter_hooks(self) -> None:
        hooks, verdict = self.listener.dead_letter_hooks, self.verdict
        if hooks and verdict is not None:
            dead = await self._pop_dead_letters(verdict)
            error = verdict.error if isinstance(verdict, Reject) else verdict
            await self._call_back([partial(hook, message, error) for message in dead for hook in hooks])

    async def _pop_dead_letters(self, verdict: BaseException) -> Sequence[Message]:  # noqa: ARG002 - the session knows
        """Return the messages that an error has made dead letters, once."""
        return self.session.chunk.pop_dead_letters()

    def _give_up(self) -> None:
        # The handler that does not end may wait for any of them. All count, and each is a chunk of its own then.
        self.session.chunk.join()

    def _tell_failure(self, verdict: BaseException) -> None:
        if not self.is_divided(verdict):
            super()._tell_failure(verdict)
            return
        self.seconds = monotonic() - self.started
        error = verdict.error if isinstance(verdict, Reject) else verdict
        named = self.rejected(verdict)
        if named is None:
            logger.info(
                "%s failed with a chunk of %d messages, and is called again with its halves: %s: %s",
                self.listener,
                len(self.messages),
                type(error).__name__,
                first_line(error),
                extra=self._facts(),
            )
        else:
            logger.warning(
                "%s rejects the message %s in delivery %s, and is called again with the other %d of its chunk: %s",
                self.listener,
                named.jms_message_id,
                named.delivery_count,
                len(self.messages) - 1,
                first_line(error),
                extra=self._facts() | {"message_id": named.jms_message_id, "delivery_count": named.delivery_count},
            )

    @property
    def _subject(self) -> str:
        others = len(self.messages) - 1
        return super()._subject + (f" and {others} more of its chunk" if others else "")

    def _facts(self) -> dict[str, object]:
        return super()._facts() | {"messages": len(self.messages)}
