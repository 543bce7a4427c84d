"""Pages that lead to a project: its files are saved and its commands typed, in an empty folder and a new database."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest

from jmsql.testing import wait_for
from tests.documentation import FILE, ROOT, Block, blocks

SHOWN_URL = "postgresql://shop@db/shop"
SHOWN_PORT = "8000"
PATIENCE = 120.0
SERVERS = ("uvicorn", "jmsql worker")
"""Commands that run until they are stopped."""
ANY = "…"
"""Stands for any text in an output that a page shows, and alone on a line for any lines."""


class Server(NamedTuple):
    """A program that runs until it is stopped."""

    kind: str
    process: subprocess.Popen[str]
    log: Path


def is_shown(shown: Sequence[str], printed: Sequence[str]) -> bool:
    """Compare an output with the lines that a page shows, except for the widths of columns."""
    patterns = [
        r"(?:.*\n)*" if line == ANY else ".*".join(map(re.escape, " ".join(line.split()).split(ANY))) + r"\n"
        for line in shown
    ]
    return re.fullmatch("".join(patterns), "".join(" ".join(line.split()) + "\n" for line in printed)) is not None


@pytest.fixture
def database(jmsql_server_url: str) -> Iterator[str]:
    """The URL of an empty database."""
    name = f"jmsql_project_{os.getpid()}"
    with psycopg.connect(jmsql_server_url, autocommit=True) as administrator:
        administrator.execute(f"create database {name}".encode())
        parameters = psycopg.conninfo.conninfo_to_dict(jmsql_server_url)
        host = str(parameters.get("host", "")).replace("/", "%2F")
        yield (
            f"postgresql://{parameters['user']}:{parameters.get('password', '')}@/{name}"
            f"?host={host}&port={parameters.get('port', 5432)}"
        )
        administrator.execute(f"drop database {name} with (force)".encode())


class Project:
    """A folder with the files of a page, in which its commands run.

    Args:
        folder: The folder.
        url: The database that stands for the one that the page shows.
        tab: The tab that the reader follows, on a page with tabs.
    """

    def __init__(self, folder: Path, url: str, tab: str | None = None) -> None:
        self._tab = tab
        self._folder = folder
        self._url = url
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = str(free.getsockname()[1])
        self._environment = os.environ | {
            "JMSQL_URL": url,
            "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
            "PYTHONPATH": str(ROOT),
            "PYTHONUNBUFFERED": "1",
        }
        self._servers: list[Server] = []
        self.printed = ""
        """The output of the last command."""

    def follow(self, page: str) -> Iterator[Block]:
        """Save the files of a page, type its commands and compare what they print; return each block that is done."""
        for block in blocks(page, "python", "sh", "console", "text"):
            if block.tab not in {None, self._tab}:
                continue
            if block.language == "python":
                self._save(block)
            elif block.language == "text":
                self._check_log(block)
            elif block.language == "sh":
                for line in block.text.splitlines():
                    self.type(line)
            else:
                for shown in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
                    command, *lines = shown.splitlines()
                    self.type(command, lines)
            yield block

    def _save(self, block: Block) -> None:
        """Save a block that is a file, or add it to that file."""
        if FILE.fullmatch(block.title or ""):
            with (self._folder / str(block.title)).open("a") as file:
                file.write(block.text)

    def type(self, command: str, expected: Sequence[str] = ()) -> None:
        """Type a command. If a server runs, the command is repeated until it prints what is expected."""
        if command.startswith(("pip install", "export ")):
            return  # the packages are there, and the variables are set
        command = command.replace(SHOWN_URL, shlex.quote(self._url)).replace(f":{SHOWN_PORT}", f":{self.port}")
        if command.startswith(SERVERS):
            self._start(command)
            return

        def ran() -> bool:
            done = subprocess.run(
                ["bash", "-ec", command],
                cwd=self._folder,
                env=self._environment,
                capture_output=True,
                text=True,
                check=False,
            )
            self.printed = done.stdout + done.stderr
            printed = done.stdout.splitlines()
            return done.returncode == 0 and (not expected or is_shown(expected, printed))

        # A server starts, and a handler ends, a moment after the command before.
        try:
            wait_for(ran, PATIENCE if self._servers else 0.0)
        except AssertionError as error:
            logs = "".join(server.log.read_text() for server in self._servers)
            raise AssertionError(f"{command} printed {self.printed!r}, and the servers {logs!r}") from error

    def _start(self, command: str) -> None:
        kind = next(kind for kind in SERVERS if command.startswith(kind))
        for server in self._servers:
            if server.kind == kind:  # the page goes on to another way to run it
                server.process.send_signal(signal.SIGTERM)
                server.process.wait(PATIENCE)
        if kind == "uvicorn":
            command += f" --port {self.port}"
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
        self._servers.append(Server(kind, process, log))

    def _check_log(self, block: Block) -> None:
        log = self._servers[-1].log
        shown = [ANY, *(line for text in block.text.splitlines() for line in (text, ANY))]
        wait_for(lambda: is_shown(shown, log.read_text().splitlines()), PATIENCE)

    def stop(self) -> None:
        """Stop the servers."""
        for server in self._servers:
            server.process.kill()
            server.process.wait()


@contextmanager
def project(folder: Path, url: str, tab: str | None = None) -> Iterator[Project]:
    made = Project(folder, url, tab)
    try:
        yield made
    finally:
        made.stop()


@pytest.mark.timeout(400)
def test_the_readme_leads_to_a_handled_message(database: str, tmp_path: Path) -> None:
    url = database.replace("postgresql:", "postgresql+psycopg:", 1)
    with project(tmp_path, url) as shop:
        for _ in shop.follow("README.md"):
            pass
    with psycopg.connect(database) as administrator:
        assert administrator.execute("select id, goods, state from purchase").fetchall() == [(1, "kite", "shipped")]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("tab", ["Threads", "asyncio"])
def test_the_tutorial_leads_to_a_retried_message(database: str, tmp_path: Path, tab: str) -> None:
    with psycopg.connect(database, autocommit=True) as administrator, project(tmp_path, database, tab) as shop:
        for _ in shop.follow("docs/tutorial.md"):
            pass
        states = administrator.execute("select number, state from purchase order by number").fetchall()
    assert states == [(1, "shipped"), (2, "shipped")]


@pytest.mark.timeout(400)
def test_the_page_about_fastapi_leads_to_a_handled_message(database: str, tmp_path: Path) -> None:
    with project(tmp_path, database) as shop:
        for block in shop.follow("docs/fastapi.md"):
            if block.language == "text":
                check_that_the_commit_comes_before_the_answer(shop, database)


def check_that_the_commit_comes_before_the_answer(shop: Project, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as administrator:
        administrator.execute(
            """
            create function refuse() returns trigger language plpgsql as $$ begin raise 'refused at the commit'; end $$;
            create constraint trigger refuse after insert on purchase deferrable initially deferred
            for each row when (new.reference = 'A2') execute function refuse()
            """
        )
        shop.type("curl -s -o answer -w '%{http_code}\\n' -X POST localhost:8000/orders/A2", ["500"])
        assert administrator.execute("select reference from purchase").fetchall() == [("A1",)]
        assert administrator.execute("select body from jmsql.messages where body like '%A2%'").fetchall() == []
