"""Transactions whose steps are taken in a given order, each as soon as the server lets it."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from enum import Enum
from typing import Any, Self

import psycopg

from jmsql import JMSException

ENDS = ("commit", "rollback", "kill")

Connection = psycopg.AsyncConnection[Any]


class Step(Enum):
    SEND = "send"
    END = "end"


def orders(number: int) -> Iterator[tuple[int, ...]]:
    """Return all orders of the two steps of so many transactions that begin in the order of their numbers."""
    for order in sorted(set(itertools.permutations(sorted([*range(number)] * 2)))):
        firsts = [order.index(each) for each in range(number)]
        if firsts == sorted(firsts):
            yield order


def schedules(number: int, most: int, seed: int) -> list[tuple[tuple[int, ...], tuple[str, ...]]]:
    """Return orders with ends: all of them, or as many as wanted by chance."""
    if number <= 3:
        every = [(order, ends) for order in orders(number) for ends in itertools.product(ENDS, repeat=number)]
        return every if len(every) <= most else random.Random(seed).sample(every, most)
    chance = random.Random(seed)
    chosen = []
    for _ in range(most):
        steps = [*range(number)] * 2
        chance.shuffle(steps)
        chosen.append((tuple(steps), tuple(chance.choice(ENDS) for _ in range(number))))
    return chosen


class Backends:
    """Connections for transactions that run side by side, and one that watches them."""

    def __init__(self, url: str, number: int) -> None:
        self._url = url
        self._number = number
        self.connections: list[Connection] = []

    async def __aenter__(self) -> Self:
        self._watch = await psycopg.AsyncConnection.connect(self._url, autocommit=True)
        self.connections = [await psycopg.AsyncConnection.connect(self._url) for _ in range(self._number)]
        return self

    async def __aexit__(self, *error: object) -> None:
        for connection in (*self.connections, self._watch):
            await connection.close()

    async def rows(self, statement: str, *parameters: object) -> list[tuple[Any, ...]]:
        """Run a statement that commits, and return its rows."""
        cursor = await self._watch.execute(statement.encode(), parameters)
        return await cursor.fetchall() if cursor.description is not None else []

    async def _waits(self, number: int) -> bool:
        pid = self.connections[number].info.backend_pid
        [(waits,)] = await self.rows("select cardinality(pg_blocking_pids(%s)) > 0", pid)
        return bool(waits)

    async def _settle(self, number: int, task: asyncio.Task[None]) -> None:
        """Return when a send is over, or waits for another transaction."""
        while not task.done() and not await self._waits(number):
            await asyncio.wait([task], timeout=0.001)

    async def run(
        self, order: Sequence[int], ends: Sequence[str], send: Callable[[Connection, int], Awaitable[object]]
    ) -> list[int]:
        """Take the steps, and return the transactions that have committed, in their order.

        A transaction whose send waits ends once it does not any more; it is killed where it waits.
        """
        sends: dict[int, asyncio.Task[None]] = {}
        committed: list[int] = []
        due: list[int] = []

        async def sending(number: int) -> None:
            await send(self.connections[number], number)

        async def end(number: int) -> None:
            connection = self.connections[number]
            if ends[number] == "kill":
                await self.rows("select pg_terminate_backend(%s, 10000)", connection.info.backend_pid)
                await asyncio.gather(sends[number], return_exceptions=True)
                await connection.close()
                self.connections[number] = await psycopg.AsyncConnection.connect(self._url)
                return
            await sends[number]
            if ends[number] == "commit":
                await connection.commit()
                committed.append(number)
            else:
                await connection.rollback()

        async def end_due() -> None:
            for number in list(due):
                await self._settle(number, sends[number])
                if ends[number] == "kill" or sends[number].done():
                    due.remove(number)
                    await end(number)

        for number in order:
            if number not in sends:
                sends[number] = asyncio.create_task(sending(number))
                await self._settle(number, sends[number])
            else:
                due.append(number)
            before = None
            while before != due:
                before = list(due)
                await end_due()
        try:
            async with asyncio.timeout(60):
                while due:
                    await end_due()
        except TimeoutError as error:
            raise AssertionError(f"{due} wait for ever") from error
        return committed

    async def rejected(self, call: Awaitable[object]) -> JMSException | None:
        """Return the error of a call, or None."""
        try:
            await call
        except JMSException as error:
            return error
        return None
