"""The advisory locks that tests look at."""

from __future__ import annotations

from jmsql.testing.database import SPARK_DRIVER_LOCK

__all__ = ["ADVISORY_LOCKS"]

ADVISORY_LOCKS = f"""(
    select l.* from pg_locks l join pg_stat_activity a using (pid)
    where l.locktype = 'advisory' and a.application_name <> '{SPARK_DRIVER_LOCK}') as locks"""
"""They are a relation. A driver of Spark that an earlier test has started lives on, and so does its lock."""
