"""The operating-system account of the embedded server.

PostgreSQL refuses to run as root. A server that root starts therefore runs under an unprivileged account which exists
already: ``postgres`` if there is one, else ``nobody``.
"""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from jmsql.exceptions import ResourceAllocationException


def user_name() -> str:
    """The name of the user that this process runs as.

    Raises:
        ResourceAllocationException: The user has no name, as in a container started with a bare number; PostgreSQL
            refuses to run for such a user.
    """
    user = os.geteuid()
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError as error:
        raise ResourceAllocationException(
            f"The embedded PostgreSQL server needs a user with a name, but user {user} has no entry in the password "
            "database. Add one, run as another user, or give the URL of a server."
        ) from error


@dataclass(frozen=True, slots=True)
class ServerAccount:
    """The account of the server's processes and files; None stands for the user of this process."""

    entry: pwd.struct_passwd | None

    @classmethod
    def choose(cls) -> ServerAccount:
        """The account for a server started by this process.

        Raises:
            ResourceAllocationException: The process runs as root, and there is no unprivileged account.
        """
        if os.geteuid() != 0:
            return cls(None)
        for name in ("postgres", "nobody"):
            try:
                return cls(pwd.getpwnam(name))
            except KeyError:
                continue
        raise ResourceAllocationException(
            "PostgreSQL does not run as root, and there is neither an account 'postgres' nor 'nobody' to run it under. "
            "Add one, run as an ordinary user, or give the URL of a server."
        )

    def take_over(self, path: Path) -> None:
        """Make the account the owner of a directory."""
        if self.entry is not None:
            os.chown(path, self.entry.pw_uid, self.entry.pw_gid)

    def run(self, command: Sequence[str | Path], *, output: BinaryIO | int, timeout: float) -> int:
        """Run a program of PostgreSQL under the account and return its exit code.

        Args:
            command: The program, by its absolute path, and its arguments.
            output: Takes both standard output and standard error.
            timeout: Seconds after which the program is killed.

        Raises:
            OSError: The account cannot reach the program.
            subprocess.TimeoutExpired: The program took too long.
        """
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=timeout,
            cwd="/",
            env=_environment(),
            user=None if self.entry is None else self.entry.pw_uid,
            group=None if self.entry is None else self.entry.pw_gid,
            extra_groups=None if self.entry is None else [],
            check=False,
        ).returncode

    @property
    def is_another(self) -> bool:
        """True if it is another account than this process's."""
        return self.entry is not None

    def reaches(self, directory: Path) -> bool:
        """Return whether the account may enter the directory."""
        return self.run(["/bin/sh", "-c", 'cd "$0"', directory], output=subprocess.DEVNULL, timeout=60) == 0


def _environment() -> dict[str, str]:
    """This process's environment, without variables that would direct PostgreSQL's programs to another server."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_", "LANG"))}
    return kept | {"LC_ALL": "C"}
