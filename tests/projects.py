"""Projects of pages: a page's files are saved and its commands typed, in an empty folder and with an empty database.

A page with blocks of Python whose title is a file (```` ```python title="shop.py" ````) leads to a project. The reader
goes from top to bottom: saves each file (a second block of a title is added to the file), and types each command of the
blocks ``sh`` and ``console``. Lines below a command of ``console`` are its output; a block ``text`` shows lines that
a running server or worker has printed. ``<!-- fragments -->`` ends the project on the page, and ``<!-- project -->``
takes it up again, or begins one on a page without files: the blocks between belong to no project, and
`tests.integration.test_documentation` alone tests them.

Output is compared line by line. Times, durations, identifiers and process numbers may differ, and ``…`` stands for
anything.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psycopg
import sqlalchemy

from jmsql.testing import wait_for
from tests.documentation import FILE, PAGES, ROOT, Block, blocks

PATIENCE = 120.0
SHOWN_URL = re.compile(r"postgresql(?:\+\w+)?://\w*(?::\w+)?@(?:db|localhost)/shop")
"""The database that the pages show."""

_LANGUAGES = ("python", "sh", "console", "text")
_MARKS = re.compile(r"^<!-- (fragments|project) -->$", re.MULTILINE)
_SHOWN_NAME = '"NAME": "shop"'
"""The same in the settings of Django."""

_SHOWN_PORT = re.compile(r"(?<=localhost:)(\d{4})\b|(?<=--port )(\d{4})\b")


class _Kind(NamedTuple):
    """Commands that run until they are stopped.

    Attributes:
        pattern: Matches the command's beginning.
        ready: The output of one that is ready.
        port: The port that it listens on by default.
        option: The option for another port, as a format.
    """

    pattern: re.Pattern[str]
    ready: str
    port: int | None = None
    option: str = " --port {}"


_KINDS = (
    _Kind(re.compile(r"uvicorn "), "Uvicorn running on", 8000),
    _Kind(re.compile(r"flask .*\brun\b"), "Running on", 5000),
    _Kind(re.compile(r"python manage.py runserver"), "Quit the server with", 8000, " --noreload 127.0.0.1:{}"),
    _Kind(re.compile(r"(?:python manage.py )?jmsql worker\b(?!.*--(?:list|help))"), "Handling messages"),
    _Kind(re.compile(r"(?:python manage.py )?jmsql console (?!.*--help)|jmsql console$"), "http://", 8161),
    _Kind(re.compile(r"jmsql metrics (?!.*--once)"), "Metrics are shown", 9187),
)

_CHANGES = re.compile(
    r"POST|PUT|DELETE|PATCH| -d |jmsql (?:send|migrate|purge|retry|move)|python (?!manage.py shell)|pytest"
)
"""A command that is typed once."""

_VARIABLE = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:[.,]\d+)?(?:Z|\+\d\d:?\d\d)?|\b\d\d:\d\d:\d\d\b)"
    r"|(?P<id>[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})"
    r"|(?P<duration>\b\d+(?:\.\d+)? (?:ms|s|min|h)\b)"
    r"|(?P<process>(?<=process )\[?\d+\]?|\[\d+\])"
    r"|(?P<port>(?<=127\.0\.0\.1:)\d+|(?<=localhost:)\d+)"
    r"|(?P<database>in database '\w+'(?: on [^ \n]*[\w/])?)"
)
"""Parts of the output that differ from run to run."""


def _pattern(shown: str) -> re.Pattern[str]:
    """Return the pattern of a shown line."""
    return re.compile(".*".join(map(re.escape, _normal(shown).split("…"))), re.DOTALL)


def _normal(line: str) -> str:
    return " ".join(_VARIABLE.sub(lambda found: f"<{found.lastgroup}>", line).split())


def is_shown(shown: Sequence[str], printed: Sequence[str]) -> bool:
    """True if a page shows what was printed; a line of ``…`` stands for any number of lines."""
    shown = [line for line in shown if line.strip()]
    printed = [line for line in printed if line.strip()]
    if not shown:
        return not printed
    if shown[0].strip() == "…":
        return any(is_shown(shown[1:], printed[number:]) for number in range(len(printed) + 1))
    return bool(printed) and _is_like(shown[0], printed[0]) and is_shown(shown[1:], printed[1:])


def is_shown_among(shown: Iterable[str], printed: Iterable[str]) -> bool:
    """True if the lines that a page shows are among the printed ones, in their order."""
    rest = iter(printed)
    return all(any(_is_like(line, each) for each in rest) for line in shown if line.strip() not in {"", "…"})


def _is_like(shown: str, printed: str) -> bool:
    return _pattern(shown).fullmatch(_normal(printed)) is not None


def in_project(page: str) -> list[Block]:
    """Return the blocks of a page that belong to its project; none if the page leads to no project."""
    text = (ROOT / page).read_text()
    marks = [(text.count("\n", 0, mark.start()) + 1, mark[1] == "project") for mark in _MARKS.finditer(text)]
    found = [
        block
        for block in blocks(page, *_LANGUAGES)
        if next((is_in for line, is_in in reversed(marks) if line < block.line), True)
        and (block.language != "python" or FILE.fullmatch(block.title or ""))
    ]
    begins = bool(marks) and marks[0][1]
    return found if begins or any(block.language == "python" for block in found) else []


def _projects() -> Iterator[tuple[str, str | None]]:
    for page in PAGES:
        if page == "docs/index.md":
            continue  # it shows the project of the README
        if found := in_project(page):
            tabs = {block.tab for block in found}
            yield from ((page, tab) for tab in sorted(filter(None, tabs)) or tabs)


PROJECTS = list(_projects())
"""Each page that leads to a project, with each of its tabs."""


class _Server(NamedTuple):
    kind: _Kind
    command: str
    process: subprocess.Popen[str]
    log: Path


class Project:
    """A folder with the files of a page, in which its commands run.

    Args:
        page: The page.
        folder: The folder.
        url: The database that stands for the one that the page shows.
        environment: The variables of the commands, beside those of this process.
        tab: The tab that the reader follows, on a page with tabs.
    """

    def __init__(
        self, page: str, folder: Path, url: str, environment: Mapping[str, str], tab: str | None = None
    ) -> None:
        self._blocks = [block for block in in_project(page) if block.tab in {None, tab}]
        self._folder = folder
        self._url = url
        address = sqlalchemy.make_url(url)
        self._environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("JMSQL_", "DJANGO"))},
            **environment,
            # A page that exports no URL leaves the database to the reader: here it is no embedded one.
            **({} if any("export JMSQL_URL" in block.text for block in self._blocks) else {"JMSQL_URL": url}),
            "PYTHONUNBUFFERED": "1",
            "COLUMNS": "160",
            "PGHOST": str(address.host or address.query["host"]),
            "PGPORT": str(address.port or address.query["port"]),
            "PGUSER": str(address.username),
            "PGPASSWORD": str(address.password or ""),
        }
        self._ports: dict[int, int] = {}
        self._servers: list[_Server] = []
        self.printed = ""
        """The output of the last command."""

    def follow(self) -> Iterator[Block]:
        """Go through the page: save its files, type its commands, compare the output. Return each block when done."""
        for block in self._blocks:
            if block.language == "python":
                file = self._folder / str(block.title)
                file.parent.mkdir(parents=True, exist_ok=True)
                with file.open("a") as opened:
                    opened.write(self._here(block.text))
            elif block.language == "text":
                self._check_log(block)
            elif block.language == "sh":
                for line in _lines(block.text):
                    self.type(line)
            else:
                for shown in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
                    command, *lines = _lines(shown)
                    self.type(command, lines)
            yield block

    def type(self, command: str, expected: Sequence[str] | None = None) -> None:
        """Type a command; compare its output, if some is given.

        A command that reads is repeated for a while: a handler ends a moment after the command before.
        """
        command = command.split("  #", maxsplit=1)[0].strip().removesuffix(" &")
        if not command or command.startswith(("#", "pip install", "createdb ")):
            return  # the packages and the database are there
        command = self._here(command, is_command=True)
        if export := re.fullmatch(r"export (\w+)=(.*)", command):
            self._environment[export[1]] = shlex.split(export[2])[0]
            return
        if moved := re.fullmatch(r"cd (\S+)", command):
            self._folder /= moved[1]
            return
        for kind in _KINDS:
            if kind.pattern.match(command):
                self._start(kind, command)
                return

        def ran() -> bool:
            done = subprocess.run(
                ["bash", "-ec", command],
                cwd=self._folder,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=PATIENCE,
                text=True,
                check=False,
            )
            self.printed = done.stdout + done.stderr
            return done.returncode == 0 and (not expected or is_shown(expected, done.stdout.splitlines()))

        changes = _CHANGES.search(command)
        try:
            wait_for(ran, PATIENCE if self._servers and not changes else 0.0)
        except AssertionError as error:
            logs = "".join(f"\n{each.command} printed\n{each.log.read_text()}" for each in self._servers)
            wanted = "" if expected is None else f", not {expected}"
            raise AssertionError(f"{command} printed\n{self.printed}{wanted}{logs}") from error

    def _here(self, text: str, *, is_command: bool = False) -> str:
        """Put this project's database and ports in the place of those that the page shows."""

        def url(found: re.Match[str]) -> str:
            here = f"{found[0].partition('://')[0]}://{self._url.partition('://')[2]}"
            return shlex.quote(here) if is_command else here

        text = text.replace(_SHOWN_NAME, f'"NAME": "{sqlalchemy.make_url(self._url).database}"')
        return _SHOWN_PORT.sub(lambda found: str(self._port(int(found[0]))), SHOWN_URL.sub(url, text))

    def _port(self, shown: int) -> int:
        if shown not in self._ports:
            with socket.create_server(("127.0.0.1", 0)) as free:
                self._ports[shown] = free.getsockname()[1]
        return self._ports[shown]

    def _start(self, kind: _Kind, command: str) -> None:
        for server in [each for each in self._servers if each.kind is kind]:
            self._end(server)  # the page goes on to another way to run it
        if kind.port is not None and "--port" not in command:
            command += kind.option.format(self._port(kind.port))
        log = self._folder / f"server{len(self._servers)}.log"
        with log.open("w") as file:
            process = subprocess.Popen(
                ["bash", "-ec", f"exec {command}"],
                cwd=self._folder,
                env=self._environment,
                stdout=file,
                stderr=subprocess.STDOUT,
                text=True,
            )
        self._servers.append(_Server(kind, command, process, log))

        def is_ready() -> bool:
            assert process.poll() is None, f"{command} has ended, and printed\n{log.read_text()}"
            return kind.ready in log.read_text()

        wait_for(is_ready, PATIENCE)

    def _end(self, server: _Server) -> None:
        if server.process.poll() is None:
            server.process.send_signal(signal.SIGINT)
        code = server.process.wait(PATIENCE)
        assert code in {0, 130, -signal.SIGINT}, (
            f"{server.command} ended with {code}, and printed\n{server.log.read_text()}"
        )

    def _check_log(self, block: Block) -> None:
        def printed() -> list[str]:
            return [line for each in self._servers for line in each.log.read_text().splitlines()]

        try:
            wait_for(lambda: is_shown_among(block.text.splitlines(), printed()), PATIENCE)
        except AssertionError as error:
            raise AssertionError(
                f"{block} shows\n{block.text}, and this was printed:\n" + "\n".join(printed())
            ) from error

    def close(self) -> None:
        """Stop the servers as a user does, with Ctrl-C."""
        for server in self._servers:
            self._end(server)

    def kill(self) -> None:
        """Kill what is left of the servers."""
        for server in self._servers:
            server.process.kill()
            server.process.wait()


def _lines(text: str) -> list[str]:
    return text.replace("\\\n", " ").splitlines()


@contextmanager
def project(
    page: str, folder: Path, url: str, environment: Mapping[str, str], tab: str | None = None
) -> Iterator[Project]:
    """Begin the project of a page; stop its servers at the end."""
    begun = Project(page, folder, url, environment, tab)
    try:
        yield begun
        begun.close()
    finally:
        begun.kill()


@contextmanager
def empty_database(server_url: str, name: str) -> Iterator[str]:
    """Make a database; return its URL; drop it at the end."""
    server = sqlalchemy.make_url(server_url).set(drivername="postgresql")
    with psycopg.connect(server.render_as_string(hide_password=False), autocommit=True) as administrator:
        administrator.execute(f"create database {name}".encode())
        try:
            yield server.set(database=name).render_as_string(hide_password=False)
        finally:
            administrator.execute(f"drop database {name} with (force)".encode())
