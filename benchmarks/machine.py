"""What the figures were measured on."""

from __future__ import annotations

import os
import platform
import statistics
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.database import BenchmarkDatabase

_PACKAGES = (
    *("jmsql", "psycopg", "sqlalchemy", "asyncpg", "pgmq", "pgqueuer", "procrastinate", "pika"),
    *("celery", "dramatiq", "redis"),
)
_SETTINGS = (
    "server_version",
    "fsync",
    "synchronous_commit",
    "wal_sync_method",
    "full_page_writes",
    "shared_buffers",
    "max_wal_size",
    "autovacuum",
)


def describe_machine(database: BenchmarkDatabase) -> dict[str, object]:
    """Return what is known of the machine, PostgreSQL and the packages."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3, 1),
        "system": platform.platform(),
        "fsync_microseconds": round(_fsync_microseconds()),
        "python": platform.python_version(),
        "packages": {name: found for name in _PACKAGES if (found := _version(name)) is not None},
        "postgresql": {name: database.setting(name) for name in _SETTINGS},
    }


def _processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _fsync_microseconds() -> float:
    """Return the median time of a write of 8 KiB and its fsync, in the directory for temporary files."""
    times = []
    with tempfile.TemporaryFile(buffering=0) as file:
        for _ in range(200):
            file.seek(0)
            started = time.perf_counter()
            file.write(b"\0" * 8192)
            os.fsync(file.fileno())
            times.append(time.perf_counter() - started)
    return 1e6 * statistics.median(times)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
