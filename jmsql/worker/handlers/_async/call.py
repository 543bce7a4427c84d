"""A call of a handler with a message: its parameters, its transaction, and the message's outcome."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from contextvars import Context, copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from jmsql.client._async.connection.context import JMSContext
from jmsql.client._async.connection.simplified import message_of
from jmsql.client._async.session.session import HandlerSession
from jmsql.client.batches._async.batch import Batch, batch_of, batch_of_next_step
from jmsql.client.sending.steps import next_message
from jmsql.client.transaction_of_caller import handler_in_transaction
from jmsql.concurrency import ASYNC
from jmsql.concurrency.interruptible_call import Interrupted
from jmsql.concurrency.tasks import (
    BackgroundTask,
    InterruptibleCall,
    call,
    call_isolated,
    current,
    ends_task,
    entered,
    is_cancelled,
    obtain,
    sleep,
)
from jmsql.exceptions import IllegalStateException, InvalidDestinationException, JMSException, MessageFormatException
from jmsql.logs import contained_logger
from jmsql.messages import Message
from jmsql.messages.plain_json import plain_json
from jmsql.store.receiving.acknowledge import CLAIM_LOST
from jmsql.store.receiving.progress import Progress
from jmsql.store.receiving.results import Handled, Keeping
from jmsql.values.clock import monotonic
from jmsql.values.destinations import TemporaryQueue, TemporaryTopic
from jmsql.values.outcomes import UNREADABLE, CancelledMessage, Interruption, LostClaim, Reject, RetryAfter
from jmsql.worker.handlers.deadline import Deadline
from jmsql.worker.handlers.listener import HandlerCall as AnyCall
from jmsql.worker.handlers.listener import Listener
from jmsql.worker.logs import from_application
from jmsql.worker.reports import Outcome

if TYPE_CHECKING:
    import psycopg
    from sqlalchemy.ext.asyncio import AsyncConnection as DatabaseConnection
    from sqlalchemy.ext.asyncio import AsyncSession as DatabaseSession

    from jmsql.client._async.connection.context import Part
    from jmsql.client._async.session.consumer import MessageConsumer
    from jmsql.client._async.session.producer import MessageProducer
    from jmsql.store.rows.message_rows import MessageKey


AnySession = TypeVar("AnySession", bound="DatabaseSession")

logger = contained_logger("jmsql.worker")

# One call of a handler, in this order: the `around` functions are entered, the values of the parameters are read, the
# function runs, `around` is left, the reply or the next step is sent, the result is kept, and the transaction commits.
# All of this is inside the message's transaction, if the listener is transacted, so an error anywhere undoes all of it
# and fails the delivery. After the commit only callbacks follow, whose errors are logged and change nothing.
#
# Five others may end the call: its time-out, a cancelled message, a lost claim, a lost slot of a limit, and the end of
# the worker.
# Each sets a flag first, and interrupts then, so that `_verdict` knows the cause of any error that follows. In that
# order of precedence:
#
# - Cancelled: the message is gone, and its row of `delivery` with the count.
# - Its claim is lost: the message is with another client, or will be, and that one counts.
# - Cut off, by the worker's end or a lost slot: the delivery is interrupted, and has not failed. `Reject` and
#   `RetryAfter` stand, since the handler has decided by then.
# - Timed out: an error of the message, a TimeoutError.
# - Any other error is the handler's own.
#
# In an event loop the call is a task, which is cancelled. In a thread the running statement is interrupted; if none
# runs, an exception is raised at the function's current line (`jmsql.concurrency.interruptible_call`), but not in code
# of jmsql, which may hold a lock or be in the middle of an exchange. A function that calls jmsql in a loop is there
# whenever another thread looks, so the next call of its session raises as well (`Interrupted`).
#
# Things that do not work:
#
# - Raising a second exception if the function goes on: it would land in the cleanup after the first one (decision 78).
# - Ending a handler by PostgreSQL's `transaction_timeout`: it ends the connection, so the message comes again without
#   an error (decision 48).
# - Keeping the handler's session for the next call as it is: a context that the handler has kept could send in the next
#   message's transaction. So each call closes its contexts (`HandlerContext`), which
#   test_code_that_outlives_a_handler_sends_nothing_in_another_transaction protects.


_INTERRUPTION_PAUSE = 0.005
"""Seconds after which a handler that cannot be interrupted now is tried again: it is in code of jmsql."""

_NOTIFICATION_PATIENCE = 0.2
"""Seconds that a notification may come later than the server's answer that the message is gone."""


class HandlerContext(JMSContext):
    """The session of a handler as a context that is closed with the call, and leaves the session open."""

    def __init__(self, session: HandlerSession) -> None:
        super().__init__(session)
        self._parts: list[MessageProducer | MessageConsumer] = []
        self._why_closed: str | None = None

    def _check_open(self) -> None:
        if self._why_closed is not None:
            raise IllegalStateException(self._why_closed)
        super()._check_open()

    def _made(self, part: Part) -> Part:
        self._parts.append(part)
        return part

    async def close(self) -> None:
        if self._why_closed is None:
            self._why_closed = "The context is closed."

    async def end(self) -> None:
        """Close it and its objects, so that a handler's leftover thread or task cannot act on another message."""
        self._why_closed = "The handler that was given this context has returned, and with it the context is closed."
        for part in self._parts:
            try:
                await part.close()
            except JMSException as problem:
                logger.warning("A producer or consumer of a handler could not be closed: %s", problem)


class HandlerCall(AnyCall):
    """A call of a listener's handler with one message, in the session that has received the message.

    Args:
        listener: The listener.
        message: The message.
        session: The session: transacted if the listener is, else one that acknowledges explicitly (CLIENT).
        cancel_timeout: For how many seconds a handler that looks at `is_cancelled` is left to end by itself.
    """

    def __init__(
        self, listener: Listener, message: Message, session: HandlerSession, cancel_timeout: float = 2.0
    ) -> None:
        super().__init__(listener, message)
        self._cancel_timeout = cancel_timeout
        self.session = session
        self.started = monotonic()
        self.seconds = 0.0
        """How long the call took, with its commit, once `run` has returned."""
        self.deadline = None if listener.timeout is None else Deadline(listener.timeout)
        self._exits = AsyncExitStack()
        # The call of the function alone: nothing may be raised in `around`, whose cleanup has to run, or in the commit.
        self._function_call = InterruptibleCall()
        # Contexts that the handler was given. The end of the call closes them.
        self._contexts: list[HandlerContext] = []
        self.verdict: BaseException | None = None
        """The error that the session was told of, once `run` has returned; None: the message was handled."""
        self.outcome = Outcome.handled
        """The outcome, once `run` has returned."""
        self._context: Context | None = None
        self._report: Callable[[Progress | None], object] | None = None
        """Takes the progress; None: there was none. Written by the handler, in any thread."""
        self._has_returned = False
        """True once the function has returned; False if `around` has swallowed its error. Written by the handler."""
        self._is_over = False
        """True once the message is settled. Written by `run`; read by threads that the handler has left behind."""
        self._is_claim_lost = False
        """True if `_is_cancelled` has a lost claim as its cause. Written by the control thread, before it."""
        self._is_cut_off = False
        """True once the worker ends without waiting any longer, or the call has lost its slot. Written by the thread
        that ends the worker, by `lose_slot` in any thread, and by the call itself if it finds its slot lost."""
        if ASYNC:
            self._called: asyncio.Task[BaseException | None] | None = None

    async def run(self) -> BaseException | None:
        """Call the handler, and settle the message.

        If the handler returns, the transaction is committed or the message acknowledged. If anything raises, it is
        rolled back or released, and the message comes again or moves to the dead-letter queue.

        Returns:
            The error of the handler, or of the commit after it; None: the message was handled.

        Raises:
            BaseException: The program ends: the calling task was cancelled, for example.
        """
        claim, has_returned = self.session.claim, False
        try:
            with self.session.processing(*self.messages):
                with self.session.extend_claims():
                    await self._call_until_cancelled(claim)
                    has_returned = True
                    if self.result is not None or (self._has_returned and self._is_in_chain()):
                        await self._answer(self.result)
                    if self.listener.keep_result is not None:
                        await self._keep_result(self.listener.keep_result)
                if self.listener.transacted:
                    await self.session.commit()
                else:
                    await self.session.acknowledge()
        except BaseException as error:  # any exception, also SystemExit, is the handler's failure and not the worker's
            # Every role may notify: beside another failure, a notification means nothing.
            is_claim_lost = isinstance(error, JMSException) and error.error_code == CLAIM_LOST
            if has_returned and claim is not None and is_claim_lost:
                await self._hear_of_cancellation(claim)
            await self._settle_failure(error)
            if ends_task(error):
                raise
            return error
        finally:
            self._is_over = True
            for context in self._contexts:
                await context.end()
            if self._report is not None:
                self._report(None)
        self._tell_success()
        if self.callbacks:
            await self._call_back(self.callbacks)
        return None

    async def _settle_failure(self, error: BaseException) -> None:
        """Release the message of a handler that has failed, and run the failure callbacks."""
        error.__traceback__ = from_application(error.__traceback__)
        verdict = self.verdict = self._verdict(error)
        self.outcome = _outcome_of(verdict)
        if self.is_abandoned:
            return  # the watcher does the rest
        # In the handler's context, so that a handler of the log knows an error that `around` has seen there.
        (self._context or copy_context()).run(self._tell_failure, verdict)
        if self.listener.keep_result is not None and not self._is_cancelled:
            await self._keep_failures(self.listener.keep_result)
        await release(self.listener, self.session, verdict)
        await self._call_failure_callbacks(error)
        if self._is_cancelled:
            self.session.pop_dead_letter()  # as there is none
        else:
            await self.call_dead_letter_hooks()

    async def _call_failure_callbacks(self, error: BaseException) -> None:
        await self._call_back([partial(function, error) for function in self.failure_callbacks])

    @property
    def is_abandoned(self) -> bool:
        """True if a watcher settles the message, and closes the session: the handler's thread did not end in time."""
        return self.deadline is not None and self.deadline.is_abandoned

    def _verdict(self, error: BaseException) -> BaseException:
        """Return the error that the session gets."""
        if self._is_cancelled:
            return LostClaim() if self._is_claim_lost else CancelledMessage()
        if (self._is_cut_off or ends_task(error)) and not isinstance(error, Reject | RetryAfter):
            return Interruption()
        return self.listener.verdict(error)

    async def cut_off(self, timeout: float) -> bool:
        """Interrupt the handler, since the worker ends; its message is delivered again, and has not failed.

        Args:
            timeout: How many seconds interrupting a statement may take.

        Returns:
            True if the call ends by that, unless the handler swallows the error.
        """
        if self._is_cut_off:
            return await self._interrupt_again(timeout)
        self._is_cut_off = True
        return await self.interrupt(timeout)

    async def _call_until_cancelled(self, claim: tuple[MessageKey, int] | None) -> None:
        """Call the handler, and end it if its message is cancelled or its claim lost meanwhile."""
        if claim is None:
            try:
                await self._call()
            finally:
                self._function_call.end()
            return
        key, claim_id = claim
        cancellations = self.session.cancellations
        slots = None if self.listener.at_most is None else self.session.slots
        if slots is not None and not slots.begin_call(key.sequence, claim_id, self.lose_slot):
            self._is_cut_off = True
            self._function_call.end()
            raise Interruption
        cancellations.watch(key, claim_id, self.cancel)
        try:
            await self._call()
        finally:
            cancellations.unwatch(key)
            if slots is not None:
                slots.end_call(key.sequence)
            self._function_call.end()

    async def _hear_of_cancellation(self, claim: tuple[MessageKey, int]) -> None:
        """Wait a moment for the notification of a cancellation, which may be the reason why the message is gone."""
        give_up_at = monotonic() + _NOTIFICATION_PATIENCE
        while not self._is_cancelled and monotonic() < give_up_at:
            self._is_cancelled = claim[0].sequence in self.session.cancellations.heard
            await sleep(_INTERRUPTION_PAUSE)

    async def _call(self) -> None:
        self._context = copy_context()
        if ASYNC:
            # In a task that can be cancelled without the commit.
            handle: Callable[[], Coroutine[Any, Any, None]] = self._handle
            if self.deadline is not None and self.listener.timeout is not None:
                handle = partial(_limited, handle, self.listener.timeout, self.deadline)
            self._called = asyncio.get_running_loop().create_task(_outcome(handle), context=self._context)
            if self._is_cancelled or self._is_cut_off:  # before there was something to cancel
                self._called.cancel()
            try:
                error = await self._called
            finally:
                self._called = None
                if self.deadline is not None:
                    self.deadline.is_over = True
            if error is not None:
                raise error
        else:
            if self.deadline is not None:
                self._handle_until(self.deadline, self._context)
            else:
                self._context.run(self._handle)

    async def _handle(self) -> None:
        """Call the handler, inside of its `around` functions."""
        session, listener = self.session, self.listener
        session.call_in(current())
        token = handler_in_transaction.set(listener.name) if listener.transacted else None
        try:
            if listener.is_surrounded:
                async with self._exits:
                    for around in listener.arounds:
                        await entered(self._exits, around(self))
                    await self._call_function()
            else:
                await self._call_function()
        finally:
            if token is not None:
                handler_in_transaction.reset(token)
            session.call_in(None)

    async def _call_function(self) -> None:
        arguments = await self.arguments()
        try:
            self.result = await self._function_call.run(call, self.listener.handler, **arguments)
            self._has_returned = True
        except BaseException as error:
            if self.deadline is not None and self.deadline.has_caused(error):
                own = self.deadline.error_for(error)
                raise own from own.__cause__
            raise

    if ASYNC:

        def cancel(self, *, is_claim_lost: bool) -> None:
            """End the handler, since its message was cancelled or its claim lost; called from the control thread."""
            self._is_claim_lost = is_claim_lost
            self._is_cancelled = True
            if self._called is not None:
                self._called.get_loop().call_soon_threadsafe(self._called.cancel)

        def lose_slot(self) -> None:
            """End the handler, whose slot others have: its message is delivered again. From any thread."""
            self._is_cut_off = True
            if self._called is not None:
                self._called.get_loop().call_soon_threadsafe(self._called.cancel)

        async def interrupt(self, timeout: float) -> bool:  # noqa: ARG002 - nothing waits for the server
            """Cancel the handler's task, and with it the statement that it runs; return True."""
            if self._called is not None:
                self._called.cancel()
            return True

        async def _interrupt_again(self, timeout: float) -> bool:  # noqa: ARG002 - nothing waits for the server
            """Return True: a second cancellation would end the cleanup after the first."""
            return True

    else:

        def cancel(self, *, is_claim_lost: bool) -> None:
            """End the handler, since its message was cancelled or its claim lost; called from the control thread."""
            self._is_claim_lost = is_claim_lost
            self._is_cancelled = True
            BackgroundTask(self._end_cancelled, "end of a cancelled handler").start()

        def lose_slot(self) -> None:
            """End the handler, whose slot others have: its message is delivered again. From any thread."""
            self._is_cut_off = True
            end = partial(self._end_function, asyncio.CancelledError, self._cancel_timeout)
            BackgroundTask(end, "end of a handler without a slot").start()

        def interrupt(self, timeout: float) -> bool:
            """Interrupt the statement that the handler runs in the session's transaction; return True if it ran one.

            Args:
                timeout: How many seconds that may take.
            """
            try:
                return self.listener.shares_transaction and self.session.interrupt(timeout)
            except JMSException as error:
                logger.warning("%s could not interrupt its statement: %s", self.listener, error)
                return False

        def _interrupt_again(self, timeout: float) -> bool:
            """Do what `interrupt` does while the function runs, but not in the rollback after it."""
            with self._function_call.interrupting() as is_possible:
                return not is_possible or self.interrupt(timeout)

        def _handle_until(self, deadline: Deadline, context: Context) -> None:
            """Call the handler, which a watcher ends at its deadline."""
            try:
                context.run(self._handle)
            except BaseException as error:
                deadline.returned(error)
                raise
            deadline.returned(None)

        def expire(self, patience: float) -> bool:
            """End the handler, which has taken too long, from another thread; return whether its thread is lost.

            A statement that it runs in the session's transaction is interrupted; if there is none, or the handler goes
            on, a TimeoutError is raised inside of it. If that does not end it, its message is settled here, and the
            session closed.

            Args:
                patience: How many seconds it has to end.
            """
            deadline = self.deadline
            if deadline is None or not deadline.expire():
                return False
            give_up_at = monotonic() + patience
            self._end_function(deadline.error_class(), patience)
            if not deadline.abandon(max(give_up_at - monotonic(), 0.0)):
                return False
            verdict = self.listener.verdict(deadline.error)
            self._tell_failure(verdict)
            self._give_up()
            if self.listener.keep_result is not None:
                self._keep_failures(self.listener.keep_result)
            release(self.listener, self.session, verdict)
            self.verdict = verdict
            self._call_failure_callbacks(deadline.error)
            self.call_dead_letter_hooks()
            self.session.close()
            return True

        def _give_up(self) -> None:
            """Prepare the session for the release of all that it has received."""

        def _end_cancelled(self) -> None:
            """End the handler, whose message it has no more; a handler that checks for that has time to return."""
            if not (self._looks and self._has_ended(self._cancel_timeout)):
                self._end_function(asyncio.CancelledError, self._cancel_timeout)

        def _end_function(self, error: type[BaseException], patience: float) -> None:
            """Interrupt the statement of the function, or raise an error inside of it as soon as that is possible.

            Args:
                error: The class of the error.
                patience: For how many seconds to try.
            """
            give_up_at = monotonic() + patience
            self.session.check_calls(Interrupted(self._function_call, error))
            while (remaining := give_up_at - monotonic()) > 0:
                with self._function_call.interrupting() as is_possible:
                    was_interrupted = is_possible and self.interrupt(remaining)
                # An interrupted statement raises an error of its own, which has half of the time to end the handler.
                if not was_interrupted and self._function_call.interrupt(error):
                    return
                if self._has_ended(patience / 2 if was_interrupted else _INTERRUPTION_PAUSE):
                    return

        def _has_ended(self, patience: float) -> bool:
            """Wait until the call has ended; return False if it has not after so many seconds."""
            give_up_at = monotonic() + patience
            while not self._function_call.has_ended and monotonic() < give_up_at:
                sleep(_INTERRUPTION_PAUSE)
            return self._function_call.has_ended

    async def arguments(self) -> dict[str, object]:
        """Return the values of the handler's parameters, by their names.

        Raises:
            Reject: The message does not fit the handler's parameters.
        """
        values: dict[str, object] = {}
        for parameter in self.listener.parameters:
            if parameter.provided_as in self.provided:
                values[parameter.name] = self.provided[parameter.provided_as]
            else:
                values[parameter.name] = await obtain(parameter.value, self)
        return values

    def _is_in_chain(self) -> bool:
        """Return True if a message has a next step."""
        return self.message.has_next_steps

    async def _answer(self, result: object) -> None:
        """Send the handler's return value as the reply."""
        await self._reply(self.message, result)

    async def _reply(self, message: Message, result: object) -> None:
        """Send a reply to the message's next step, or else to its sender, in the message's transaction."""
        if message.has_next_steps:
            await self._continue(message, result)
            return
        destination = message.jms_reply_to or self.listener.reply_destination
        if destination is None:
            if self.listener.keep_result is None:
                self.listener.warn_of_lost_reply()
            return
        try:
            producer = await self.session.create_producer(destination)
        except InvalidDestinationException:
            if not isinstance(destination, TemporaryQueue | TemporaryTopic):
                raise
            logger.info(
                "%s: the reply to %s was dropped: its temporary queue is gone.", self.listener, message.jms_message_id
            )
            return
        reply = message_of(result)
        reply.jms_correlation_id = message.jms_correlation_id or message.jms_message_id
        await producer.send(reply)
        await producer.close()

    async def _continue(self, message: Message, result: object) -> None:
        """Send the handler's result to the next step of a chain.

        Raises:
            Reject: The message's property names no steps.
        """
        try:
            destination = message.next_steps[0]
        except MessageFormatException as error:
            raise Reject(str(error)) from error
        following = next_message(message, None if result is None else message_of(result))
        following.jms_correlation_id = message.jms_correlation_id or message.jms_message_id
        batch = await batch_of_next_step(self.session, message)
        if batch is not None:
            await batch.send(destination, following, priority=message.jms_priority)
            return
        producer = await self.session.create_producer(destination)
        producer.priority = message.jms_priority
        await producer.send(following)
        await producer.close()

    async def _keep_result(self, keeping: Keeping) -> None:
        """Store the handler's return value as the message's result, in its transaction.

        Raises:
            MessageFormatException: JSON cannot represent the value.
        """
        try:
            value = plain_json(self.result)
        except MessageFormatException as error:
            raise MessageFormatException(
                f"{self.listener} keeps results, and its value cannot be kept: {error}"
            ) from error
        handled = Handled("done", value, None, monotonic() - self.started)
        await self.session.keep_result(self.message, handled, keeping)

    async def _keep_failures(self, keeping: Keeping) -> None:
        """Have the error stored if this was the last attempt: the queue may have been made again since the start."""
        try:
            await self.session.keep_results(keeping)
        except JMSException as problem:
            logger.warning("%s: the result of a failure may not be kept: %s", self.listener, problem)

    # Values for the handler's parameters

    def _report_progress(self, progress: Progress) -> None:
        report = self._report
        if report is None:
            report = self.session.progress_reporter()
            # Checked after the session was asked: it reports for the next message as soon as this call has ended.
            if self._is_over:
                return
            self._report = report
        report(progress)

    def _own_batch(self) -> Batch | None:
        return batch_of(self.context(), self.message)  # a context that ends with the call

    def context(self) -> JMSContext:
        """Return the session as a context."""
        context = HandlerContext(self.session)
        self._contexts.append(context)
        return context

    async def connection(self) -> DatabaseConnection:
        """Return the connection of the message's transaction."""
        return await self.session.get_database()

    async def driver_connection(self) -> psycopg.AsyncConnection[Any]:
        """Return psycopg's own connection in the message's transaction."""
        return await self.session.get_driver_connection()

    async def orm_session(self, kind: type[AnySession]) -> AnySession:
        """Return an SQLAlchemy session in the message's transaction, which is flushed when the handler returns.

        Args:
            kind: Its class.
        """
        return await self._exits.enter_async_context(_orm_session(kind, await self.connection()))

    async def call_dead_letter_hooks(self) -> None:
        """Call the functions of `on_dead_letter` if the release of the message has made it a dead letter."""
        hooks, verdict = self.listener.dead_letter_hooks, self.verdict
        if hooks and verdict is not None and await self._is_dead_letter(verdict):
            error = verdict.error if isinstance(verdict, Reject) else verdict
            await self._call_back([partial(hook, self.message, error) for hook in hooks])

    async def _is_dead_letter(self, verdict: BaseException) -> bool:  # noqa: ARG002 - the session knows
        """Return whether an error has made the message a dead letter, once."""
        return self.session.pop_dead_letter()

    async def _call_back(self, functions: Iterable[Callable[[], object]]) -> None:
        for function in functions:
            try:
                await call_isolated(function)
            except BaseException as error:  # the message is settled: an error here must not fail it
                if ends_task(error):
                    raise
                logger.exception("%s: a function that is called after the transaction failed.", self.listener)

    # The log

    @property
    def _subject(self) -> str:
        return f"the message {self.message_id}"

    def _tell_success(self) -> None:
        self.seconds = monotonic() - self.started
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug(
                "%s has handled %s in %.3f s.",
                self.listener,
                self._subject,
                self.seconds,
                extra=self._facts(),
            )

    def _tell_failure(self, verdict: BaseException) -> None:
        self.seconds = monotonic() - self.started
        if isinstance(verdict, RetryAfter):
            logger.info(
                "%s puts %s off in delivery %s: %s.",
                self.listener,
                self._subject,
                self.delivery_count,
                verdict,
                extra=self._facts(),
            )
            return
        if isinstance(verdict, CancelledMessage):
            logger.info(
                "%s was cancelled in delivery %s of the message %s.",
                self.listener,
                self.delivery_count,
                self.message_id,
                extra=self._facts(),
            )
            return
        if isinstance(verdict, LostClaim):
            logger.warning(
                "%s was interrupted in delivery %s of the message %s, whose claim was lost: it is delivered again.",
                self.listener,
                self.delivery_count,
                self.message_id,
                extra=self._facts(),
            )
            return
        if isinstance(verdict, Interruption):
            logger.info(
                "%s was interrupted in delivery %s of %s, which is delivered again.",
                self.listener,
                self.delivery_count,
                self._subject,
                extra=self._facts(),
            )
            return
        error = verdict.error if isinstance(verdict, Reject) else verdict
        if isinstance(error, Reject) or (isinstance(verdict, Reject) and verdict.dead_letter_reason == UNREADABLE):
            logger.warning(
                "%s rejects the message %s in delivery %s: %s",
                self.listener,
                self.message_id,
                self.delivery_count,
                first_line(error),
                extra=self._facts(),
            )
            return
        logger.error(
            "%s failed in delivery %s of %s with %s: %s",
            self.listener,
            self.delivery_count,
            self._subject,
            type(error).__name__,
            first_line(error),
            exc_info=error,
            extra=self._facts(),
        )

    def _facts(self) -> dict[str, object]:
        """Return the fields of the call's log records."""
        return {
            "listener": self.listener.name,
            "destination": str(self.listener.destination),
            "message_id": self.message_id,
            "delivery_count": self.delivery_count,
            "seconds": round(self.seconds, 6),
        }


def _outcome_of(verdict: BaseException) -> Outcome:
    match verdict:
        case CancelledMessage():
            return Outcome.cancelled
        case LostClaim():
            return Outcome.claim_lost
        case RetryAfter():
            return Outcome.postponed
        case Interruption():
            return Outcome.interrupted
        case _:
            return Outcome.failed


def first_line(error: BaseException) -> str:
    """Return the first line of an application error's text, if it can be read."""
    try:
        return str(error).partition("\n")[0]
    except Exception as problem:  # noqa: BLE001 - it is the application's, and may raise anything
        return f"(it cannot be written: its __str__ has raised {type(problem).__name__})"


async def release(listener: Listener, session: HandlerSession, error: BaseException | None = None) -> None:
    """Roll back a handler's transaction, or release the message if the listener is not transacted.

    Args:
        listener: The listener.
        session: The session that has received the message.
        error: The handler's error; None if it has not failed.
    """
    try:
        if listener.transacted:
            await session.rollback(error)
        else:
            await session.recover(error)
    except JMSException as problem:  # also where the session was closed from outside, at the deadline
        logger.warning("%s could not release its message: %s", listener, problem)


@asynccontextmanager
async def _orm_session(kind: type[AnySession], connection: DatabaseConnection) -> AsyncIterator[AnySession]:
    # Its commit and rollback end at a savepoint: a handler that calls them does not touch the message.
    async with kind(bind=connection, join_transaction_mode="create_savepoint") as database:
        yield database
        await database.commit()


if ASYNC:

    async def _outcome(handle: Callable[[], Coroutine[Any, Any, None]]) -> BaseException | None:
        """Return a handler's exception if asyncio would end the event loop for it."""
        try:
            await handle()
        except (SystemExit, KeyboardInterrupt, GeneratorExit) as error:
            return error
        return None

    async def _limited(handle: Callable[[], Coroutine[Any, Any, None]], timeout: float, deadline: Deadline) -> None:
        """Wait until a handler has returned.

        Raises:
            TimeoutError: It has taken longer.
        """
        limit = deadline.limit = asyncio.timeout(timeout)
        try:
            async with limit:
                await handle()
        except BaseException as error:
            # Any error after the expiry is a consequence of it, also one of the handler's cleanup; except if the task
            # was cancelled for another reason as well, which takes precedence.
            if not limit.expired() or error is deadline.error or ends_task(error) or is_cancelled():
                raise
            raise deadline.error from error
        if limit.expired():  # and the handler, or an `around` function, has swallowed its cancellation
            raise deadline.error
