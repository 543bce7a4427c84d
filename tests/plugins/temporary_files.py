"""Where temporary files of the tests go: into memory where there is room.

A server's directory has a thousand files. ext4 searches the longer for a free inode, the more files were removed within
the last seconds.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import ExitStack
from multiprocessing import util
from pathlib import Path

import pytest

from jmsql.testing.servers import directory_of_servers

_MEMORY = Path("/dev/shm")
_ROOM = 4 << 30
"""Bytes that the servers and files of five processes do not fill."""

_directories: list[ExitStack] = []
"""Keeps the directories in forked children, where `multiprocessing` drops its own references: their end removes one."""


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Let this process and all that it starts make their temporary files in memory, unless TMPDIR is set."""
    has_room = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free >= _ROOM
    if "TMPDIR" in os.environ or not has_room:
        return
    stack = ExitStack()
    _directories.append(stack)
    directory = stack.enter_context(directory_of_servers("jmsql-", _MEMORY))
    os.environ["TMPDIR"] = str(directory)
    tempfile.tempdir = None  # which was asked for before

    # Behind multiprocessing's own directory in it, which goes with the priority -100.
    util.Finalize(None, stack.close, exitpriority=-200)

    def leave() -> None:
        del os.environ["TMPDIR"]
        tempfile.tempdir = None

    config.add_cleanup(leave)
