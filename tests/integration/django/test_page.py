"""The page on Django leads from an empty directory to a handled message."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx2
import psycopg
import pytest

from jmsql.testing import wait_for
from tests.documentation import FILE, ROOT, blocks, commands

PAGE = "docs/django.md"
PATIENCE = 60.0


@pytest.fixture
def shop(jmsql_server_url: str) -> Iterator[dict[str, str]]:
    """A database of its own: what processes find in their environment, with the name that stands for `shop`."""
    name = f"jmsql_page_{os.getpid()}"
    parameters = psycopg.conninfo.conninfo_to_dict(jmsql_server_url)
    keys = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "password": "PGPASSWORD"}
    with psycopg.connect(jmsql_server_url, autocommit=True) as administrator:
        administrator.execute(f"create database {name}".encode())
        environment = {key: value for key, value in os.environ.items() if not key.startswith("DJANGO")}
        yield environment | {
            **{variable: str(parameters[key]) for key, variable in keys.items() if key in parameters},
            "PYTHONPATH": str(ROOT),
            "DATABASE": name,
        }
        administrator.execute(f"drop database {name} with (force)".encode())


@pytest.mark.timeout(300)
def test_it_leads_from_startproject_to_a_handled_message(shop: dict[str, str], tmp_path: Path) -> None:
    project = tmp_path / "shop"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    running: list[subprocess.Popen[bytes]] = []

    def run(words: list[str], directory: Path) -> str:
        command = [sys.executable, *words[1:]] if words[0] == "python" else [sys.executable, "-m", "django", *words[1:]]
        done = subprocess.run(
            command, cwd=directory, env=shop, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def place() -> str:
        try:
            return httpx2.get(f"http://127.0.0.1:{port}/place/A1").text
        except httpx2.ConnectError:
            return ""

    def is_shipped(words: list[str]) -> bool:
        return "shipped" in run(words, project)

    was_shipped = False
    try:
        for words in commands(PAGE):
            match words:
                case ["pip", *_]:
                    continue
                case ["cd", directory]:
                    assert (tmp_path / directory) == project
                case ["python", "manage.py", "startapp", *_]:
                    run(words, project)
                    write_files(project, shop["DATABASE"])
                case ["python", "manage.py", "makemigrations", *_]:
                    run(words, project)
                    write_files(project, shop["DATABASE"], migrations=True)
                case ["python", "manage.py", "jmsql", "worker"]:
                    running.append(subprocess.Popen([sys.executable, *words[1:]], cwd=project, env=shop))
                case ["python", "manage.py", "runserver", _]:
                    command = [sys.executable, *words[1:3], "--noreload", str(port)]
                    running.append(subprocess.Popen([sys.executable, "manage.py", *command[2:]], cwd=project, env=shop))
                case ["curl", _]:
                    assert wait_for(place, PATIENCE) == "placed\n"
                case ["python", "manage.py", "shell", *_]:
                    wait_for(partial(is_shipped, words), PATIENCE)
                    was_shipped = True
                case _:
                    run(words, project if project.exists() else tmp_path)
    finally:
        for process in running:
            process.send_signal(signal.SIGTERM)
        ended = [process.wait(PATIENCE) for process in running]
    assert was_shipped
    assert ended[0] == 0
    assert len(running) == 2


def write_files(project: Path, database: str, *, migrations: bool = False) -> None:
    """Write the files of the page, or its migrations; what is for the settings is added to them."""
    for block in blocks(PAGE, "python"):
        assert block.title is not None
        assert FILE.fullmatch(block.title)
        if ("/migrations/" in block.title) != migrations:
            continue
        file = project / block.title
        text = block.text.replace('"NAME": "shop"', f'"NAME": "{database}"')
        if file.name == "settings.py":
            is_django_6 = "TASKS" in text and sys.version_info < (3, 12)
            text = file.read_text() + ('INSTALLED_APPS += ["django_tasks"]\n' if is_django_6 else "") + text
        file.write_text(text)
