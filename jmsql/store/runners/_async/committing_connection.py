"""A connection on which a commit may be under way that nobody waits for."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Generator
from typing import Any, TypeVar

import psycopg
from psycopg import generators
from psycopg.pq import ConnStatus, ExecStatus, PipelineStatus

T = TypeVar("T")


class CommittingConnection(psycopg.AsyncConnection[Any]):
    """Has a commit answered before anything else that it is used for, by its sender or by others."""

    _failed: Callable[[psycopg.Error], object] | None = None

    @property
    def is_committing(self) -> bool:
        """Whether a commit was sent whose answer nobody has read."""
        return self._failed is not None

    def notice_loss(self) -> None:
        """Count as closed if the server has ended the connection, before anything is sent."""
        with contextlib.suppress(psycopg.OperationalError):
            self.pgconn.consume_input()  # the server's last words
            self.pgconn.consume_input()

    def leave(self, failed: Callable[[psycopg.Error], object]) -> None:
        """Leave the answer to a commit that was sent to the next use of the connection.

        Args:
            failed: Called if the commit has failed, or nobody knows. Its sender alone is told.
        """
        self._failed = failed
        self.__dict__["wait"] = self._settle_and_wait  # until it is answered, so that nothing else is slower

    async def settle(self) -> None:
        """Wait for the commit, if one is under way; its sender hears what goes wrong, and nobody else."""
        if self.is_committing:
            try:
                with contextlib.suppress(psycopg.Error):
                    await self.converse(self._settle())
            finally:
                if self.pgconn.pipeline_status != PipelineStatus.OFF:
                    self.pgconn.finish()

    @property
    def converse(self) -> Callable[[Generator[Any, Any, Any]], Awaitable[Any]]:
        """Exchanges messages with the server that heed a commit under way themselves."""
        return super().wait

    async def _settle_and_wait(self, gen: Generator[Any, Any, T], *arguments: Any, **parameters: Any) -> T:
        await self.settle()
        return await super().wait(gen, *arguments, **parameters)  # whose parameters differ between releases

    def _settle(self) -> Generator[Any, Any, None]:
        yield from self.answer()
        self.pgconn.exit_pipeline_mode()

    # The messages from the server

    def answer(self) -> Generator[Any, Any, None]:
        """Read the answer to the commit, if one is under way.

        Raises:
            psycopg.Error: The connection is lost.
        """
        if self._failed is not None:
            try:
                error = yield from self.synchronized()
            except BaseException as failure:  # GeneratorExit as well: an interrupt has ended the connection
                lost = failure if isinstance(failure, psycopg.Error) else psycopg.OperationalError("interrupted")
                self._answered(lost)
                raise
            self._answered(error)

    def _answered(self, error: psycopg.Error | None) -> None:
        failed, self._failed = self._failed, None
        self.__dict__.pop("wait", None)
        if error is not None and failed is not None:
            failed(error)

    def synchronized(self) -> Generator[Any, Any, psycopg.Error | None]:
        """Read what the server sends until it is done with a message Sync; return the first error of that.

        Raises:
            psycopg.Error: The connection is lost.
        """
        error: psycopg.Error | None = None
        while True:
            result = yield from generators.fetch(self.pgconn)
            if result is None:
                if self.pgconn.status == ConnStatus.BAD:
                    raise error or psycopg.OperationalError("the connection is lost")
            elif result.status == ExecStatus.PIPELINE_SYNC:
                return error
            elif result.status == ExecStatus.FATAL_ERROR:
                error = error or psycopg.errors.error_from_result(result, encoding=self.info.encoding)
