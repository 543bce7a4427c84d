"""Queues under load, as the public benchmark of PostgreSQL's queues has it: sweeps of workers, pressure, and kills."""

from benchmarks.queues.scenarios import chaos, held_transaction, sweep

__all__ = ["chaos", "held_transaction", "sweep"]
