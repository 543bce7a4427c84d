"""The advisory locks that tests look at."""

from __future__ import annotations

__all__ = ["ADVISORY_LOCKS"]

ADVISORY_LOCKS = """(
    select l.* from pg_locks l join pg_stat_activity a using (pid)
    where l.locktype = 'advisory' and a.application_name <> 'jmsql-spark-keeping-the-lock-of-a-driver') as locks"""
"""They are a relation. A driver of Spark that an earlier test has started lives on, and so does its lock."""
