"""The figures of workers by their names: what a run has written, for tables and pictures."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

RATE = "worker-peers"
CLIENT = "worker-peers client"
SERVER = "worker-peers server"
LATENCY = "worker-peers idle latency"
MISSING = "worker-peers kill -9: missing"
DOUBLED = "worker-peers kill -9: doubled"

JMSQL, JMSQL_COROUTINES = "jmsql, def", "jmsql, async def"
JMSQL_PSYCOPG, JMSQL_PSYCOPG_COROUTINES = "jmsql, def, psycopg", "jmsql, async def, psycopg"
JMSQL_CHUNKS, JMSQL_CHUNK_COROUTINES = "jmsql, def, psycopg, chunks", "jmsql, async def, psycopg, chunks"

OWN = (
    JMSQL,
    JMSQL_COROUTINES,
    JMSQL_PSYCOPG,
    JMSQL_PSYCOPG_COROUTINES,
    JMSQL_CHUNKS,
    JMSQL_CHUNK_COROUTINES,
)
"""jmsql's workers: with SQLAlchemy's connection unless they name another, and one message a call but for chunks."""

_BESIDE = {
    JMSQL_COROUTINES: (JMSQL, 1.0),
    JMSQL_PSYCOPG: (JMSQL, 1.0),
    JMSQL_PSYCOPG_COROUTINES: (JMSQL_PSYCOPG, 1.0),
    JMSQL_CHUNKS: (JMSQL_PSYCOPG, 10.0),
    JMSQL_CHUNK_COROUTINES: (JMSQL_PSYCOPG_COROUTINES, 10.0),
}
"""The reference of each of jmsql's other workers, and by what factor it has to win."""
_CHUNKS_BOUND = 3.0
"""By what factor chunks have to win against the peers on PostgreSQL."""

ARRANGEMENTS = ((1, 1), (10, 1), (50, 1), (10, 2), (50, 2))
"""How many handlers at a time in a process, and how many processes."""

USUAL = (10, 1)
"""The arrangement of what is shown for one alone."""

SENT = "sent"
"""What stands where messages are counted beside those that were sent."""


def pairs(workers: Sequence[str], bounds: Mapping[str, float]) -> list[tuple[str, str, float]]:
    """Return which workers are compared, each a subject and its reference, and by what factor the subject has to win.

    Peers on PostgreSQL alone insert their rows by its driver, so jmsql's worker with psycopg's connection stands beside
    them as well.

    Args:
        workers: Those that were measured.
        bounds: By what factor jmsql has to win against each of the others.
    """
    found = []
    for worker in workers:
        if worker in OWN:
            reference, bound = _BESIDE.get(worker, (None, 1.0))
            found += [(worker, reference, bound)] if reference in workers and reference is not None else []
            continue
        bound = bounds.get(worker, 1.0)
        found.append((JMSQL, worker, bound))
        if bound > 1.0:
            found += [
                (subject, worker, _CHUNKS_BOUND if "chunks" in subject else bound)
                for subject in OWN
                if subject in workers and "psycopg" in subject
            ]
    return found


def arrangement(concurrency: int, processes: int) -> str:
    """Return how the name of a benchmark says how many handlers and processes there were."""
    return f", {concurrency} at a time, {processes} {'process' if processes == 1 else 'processes'}"


class WorkerFigures:
    """What a run has shown.

    Args:
        comparisons: Those of the file of figures.
    """

    def __init__(self, comparisons: Sequence[Mapping[str, Any]]) -> None:
        self._found: dict[str, dict[str, list[float]]] = {}
        for comparison in comparisons:
            if comparison["benchmark"].startswith(RATE):
                figures = self._found.setdefault(comparison["benchmark"], {})
                figures[comparison["subject"]] = comparison["figures"]
                figures[comparison["reference"]] = comparison["reference_figures"]

    @property
    def workers(self) -> list[str]:
        """The names of the workers: jmsql's own, then the others in the order in which they were compared."""
        names = {name: None for figures in self._found.values() for name in figures if name != SENT}
        return sorted(names, key=lambda name: OWN.index(name) if name in OWN else len(OWN))

    @property
    def arrangements(self) -> list[tuple[int, int]]:
        """Those that were measured."""
        return [each for each in ARRANGEMENTS if RATE + arrangement(*each) in self._found]

    @property
    def rounds(self) -> int:
        """How many rounds were measured; of an interrupted run, where the most were."""
        return max((len(each) for figures in self._rates for each in figures.values()), default=0)

    @property
    def _rates(self) -> list[dict[str, list[float]]]:
        return [self._found[RATE + arrangement(*each)] for each in self.arrangements]

    def median(self, benchmark: str, worker: str) -> float | None:
        """Return a worker's figure; None: it has none."""
        figures = self._found.get(benchmark, {}).get(worker)
        return None if figures is None else statistics.median(figures)

    def ratio(self, benchmark: str, worker: str, reference: str) -> float | None:
        """Return the median of the ratios of all rounds; None: one of the two has no figures."""
        figures, others = (self._found.get(benchmark, {}).get(name) for name in (worker, reference))
        if figures is None or others is None:
            return None
        return statistics.median(figure / other for figure, other in zip(figures, others, strict=True))

    def counted(self, benchmark: str, worker: str) -> str:
        """Return how many messages of how many, of all rounds together."""
        found = self._found.get(benchmark, {})
        if worker not in found:
            return ""
        return f"{sum(found[worker]):,.0f} of {sum(found[SENT]):,.0f}"
