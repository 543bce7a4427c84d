"""The end of a forked child in which the application's code returns to jmsql."""

from __future__ import annotations

import os
import sys
import traceback
from typing import NoReturn

generation = 0
"""The number of forks between the first process and this one. Asking the system for the process costs a microsecond."""


def end_forked_child(error: BaseException | None = None) -> NoReturn:
    """End this process, which the application's code has forked.

    Such a child is a copy of its parent, with the parent's message, session and loop. It must not settle the message,
    nor receive the next one. So it ends as if the code had been the whole program; its parent goes on.

    Args:
        error: The error that the code has raised, if it has.
    """
    exit_code = 0
    if isinstance(error, SystemExit):
        exit_code = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            sys.stderr.write(f"{error.code}\n")
    elif error is not None:
        traceback.print_exception(error)
        exit_code = 1
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(exit_code)  # the functions that the parent has registered for its exit are not the child's


def _note_fork() -> None:
    global generation
    generation += 1


os.register_at_fork(after_in_child=_note_fork)
