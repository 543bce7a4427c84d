"""What the documentation shows works as it is shown: programs, SQL and commands."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import inspect
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy
import typer
from typer.testing import CliRunner

import jmsql
from jmsql import tracing
from jmsql.cli.application import app
from jmsql.cli.commands import COMMANDS, load_command
from jmsql.testing import wait_for
from tests.documentation import (
    EXAMPLES,
    FILE,
    PAGES,
    ROOT,
    Block,
    blocks,
    commands,
    inline_commands,
    inline_options,
    outputs,
    programs,
    run,
    unknown_fences,
)

SHOWN_URL = "postgresql://shop@db/shop"
SHOWN_ENGINE_URL = "postgresql+psycopg://shop@db/shop"

PROGRAMS = [program for page in PAGES for program in programs(page)]
# Tests that have a Spark run the programs of these pages.
WITH_SPARK = {"docs/archive.md", "docs/spark.md", "docs/statistics.md"}
# It would start the server of the user who runs the tests.
ONLY_CHECKED = {"docs/embedded.md"}
RUN_HERE = [program for program in PROGRAMS if program.page not in WITH_SPARK | ONLY_CHECKED]

# The statements of the demonstration read the tables that it makes.
STATEMENTS = [block for page in PAGES if page != "docs/demo.md" for block in blocks(page, "sql") if block.title is None]


def of_page(page: str) -> list[Block]:
    """The programs and the SQL of a page, in their order."""
    return sorted((block for block in (*RUN_HERE, *STATEMENTS) if block.page == page), key=lambda block: block.line)


# Commands that print a table.
LISTINGS = (
    "queues",
    "browse",
    "subscriptions",
    "destination list",
    "top",
    "dead-letters",
    "history list",
    "history days",
)

# Packages that the pages install beside jmsql.
BESIDE = {"django", "fastapi", "flask", "httpx", "pydantic", "pytest", "uvicorn"}

# Options of spark-submit and of uvicorn that the text names.
FOREIGN_OPTIONS = {
    *("--archives", "--conf", "--properties-file", "--py-files", "--timeout-graceful-shutdown"),
    *("--max-memory-per-child", "--max-requests", "--max-tasks-per-child"),
}


@pytest.fixture
def url(jmsql_clean_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The database that the variable names. What the programs store of their own is dropped at the end."""
    monkeypatch.setenv("JMSQL_URL", jmsql_clean_url)
    yield jmsql_clean_url
    with psycopg.connect(jmsql_clean_url) as database:
        database.execute(
            "drop table if exists orders, shipment, purchase, sale, published, booking, invoice, letter, album"
        )
        database.execute("drop function if exists tell_of_sale")


def driver_url(url: str) -> str:
    return sqlalchemy.make_url(url).set(drivername="postgresql+psycopg").render_as_string(hide_password=False)


def is_for_pytest(value: object) -> bool:
    return inspect.isfunction(value) and value.__name__.startswith("test_")


@pytest.mark.parametrize("page", [*PAGES, *EXAMPLES])
def test_every_block_of_a_page_is_of_a_kind_that_is_tested(page: str) -> None:
    assert unknown_fences(page) == []
    titles = {block.title for block in blocks(page, "python", "sql", "sh", "console", "text", "json")}
    assert {title for title in titles if not FILE.fullmatch(title or "")} <= {None, "continued", "DuckDB"}


def run_program(url: str, program: Block, request: pytest.FixtureRequest) -> None:
    """Run a program, and the tests that it defines."""
    names: dict[str, Any] = {}
    try:
        names = run(program, {SHOWN_ENGINE_URL: driver_url(url), SHOWN_URL: url})
        for test in filter(is_for_pytest, list(names.values())):
            test(*(request.getfixturevalue(name) for name in inspect.signature(test).parameters))
    finally:
        tracing.uninstrument()
        for value in names.values():
            if isinstance(value, sqlalchemy.Engine):
                value.dispose()


@pytest.mark.parametrize("program", RUN_HERE, ids=str)
def test_a_program_runs_alone(url: str, program: Block, request: pytest.FixtureRequest) -> None:
    run_program(url, program, request)


@pytest.mark.parametrize("page", [page for page in PAGES if len(of_page(page)) > 1])
def test_the_blocks_of_a_page_run_one_after_another(url: str, page: str, request: pytest.FixtureRequest) -> None:
    """As somebody pastes them, who reads the page from top to bottom."""
    with psycopg.connect(url, autocommit=True) as database:
        for block in of_page(page):
            if block.language == "python":
                run_program(url, block, request)
            else:
                database.execute(block.text.encode())


@pytest.mark.parametrize("block", STATEMENTS, ids=str)
def test_sql_runs_alone(url: str, block: Block) -> None:
    with psycopg.connect(url, autocommit=True) as database:
        database.execute(block.text.encode())


def columns(line: str) -> list[str]:
    """The cells of a line of a table."""
    return re.split(r" {2,}", line.strip())


@pytest.fixture
def everything_listed(url: str) -> Iterator[None]:
    """A store in which each command that lists something has something to list."""
    orders, prices = jmsql.Queue("orders"), jmsql.Topic("prices")
    with jmsql.admin.Administration(url) as administration:
        administration.create_queue(orders.queue_name, history=True, maximum_deliveries=1)
        administration.create_topic(prices.topic_name)
    with jmsql.ConnectionFactory(url, client_id="warehouse").create_connection() as connection:
        connection.start()
        session = connection.create_session(transacted=True)
        session.create_durable_subscriber(prices, "audit")
        producer = session.create_producer(orders)
        for text in ("fails", "is received", "waits"):
            producer.send(session.create_text_message(text))
        session.commit()
        consumer = session.create_consumer(orders)
        assert consumer.receive(timeout=60) is not None
        session.rollback(KeyError("goods"))
        with jmsql.admin.Administration(url) as administration:
            wait_for(lambda: administration.depth("DLQ").number == 1)  # maintenance may have to move it
        assert consumer.receive(timeout=60) is not None
        session.commit()
        yield


@pytest.mark.usefixtures("everything_listed")
def test_tables_have_the_columns_that_the_pages_show() -> None:
    for page in PAGES:
        for words, shown in outputs(page):
            if " ".join(words[1:]).startswith(LISTINGS):
                ran = CliRunner().invoke(app, words[1:], env={"COLUMNS": "240"}, catch_exceptions=False)
                printed = [columns(line) for line in ran.output.splitlines()]
                header = shown[1 if words[1] == "top" else 0]
                shown_columns = columns(header.removesuffix("…"))  # which stands for the rest
                assert shown_columns in [line[: len(shown_columns)] for line in printed], (page, words, ran.output)


def click_command(words: list[str]) -> tuple[Any, Any, list[str]]:
    """The subcommand of `jmsql` that the words name, its context, and the words that are its own."""
    command: Any = typer.main.get_command(app)
    context = command.context_class(command, info_name="jmsql")
    rest = list(words)
    while hasattr(command, "commands") and rest and not rest[0].startswith("-"):
        assert rest[0] in command.commands, f"jmsql has no {rest[0]!r} in {' '.join(words)!r}"
        name, command, rest = command.resolve_command(context, rest)
        context = command.context_class(command, parent=context, info_name=name)
    return command, context, rest


@pytest.mark.parametrize("page", [*PAGES, *EXAMPLES])
def test_commands_are_understood(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for file in ("order.pdf", "order.json"):
        (tmp_path / file).write_text("{}")
    extras = {extra.lower() for extra in importlib.metadata.metadata("jmsql").get_all("Provides-Extra") or []}
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for words in commands(page):
        match words:
            case ["jmsql", *rest]:
                command, _, own = click_command(rest)
                with command.make_context("jmsql", own):  # which closes the files that the options name
                    pass
            case ["make", target, *_]:
                assert target in targets
            case ["pip", "install", *packages]:
                named = {name for package in packages for name in re.sub(r"^jmsql\[(.*)\]$", r"\1", package).split(",")}
                assert named <= extras | BESIDE
            case ["python", "-m", module, *_]:
                assert importlib.util.find_spec(module) is not None


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_options_in_the_text_exist(page: str) -> None:
    for words in inline_commands(page):
        command, context, rest = click_command(words[1:])
        known = {
            name for parameter in command.get_params(context) for name in parameter.opts + parameter.secondary_opts
        }
        assert {word for word in rest if word.startswith("--")} <= known, words
    assert inline_options(page) <= all_options() | FOREIGN_OPTIONS


def all_options() -> set[str]:
    found: set[str] = set()
    remaining: list[Any] = [typer.main.get_command(app), *map(load_command, COMMANDS)]
    while remaining:
        command = remaining.pop()
        for parameter in command.params:
            found |= {*parameter.opts, *parameter.secondary_opts}
        remaining += getattr(command, "commands", {}).values()
    return found | {"--help"}


def test_the_page_of_the_command_lists_every_subcommand() -> None:
    page = (ROOT / "docs/command.md").read_text()
    listed = set(re.findall(r"^\| `jmsql ([a-z-]+)", page, re.MULTILINE))
    assert listed == COMMANDS.keys()


def test_the_page_of_the_command_lists_what_the_doctor_examines(url: str) -> None:
    with jmsql.ConnectionFactory(url).create_connection():
        ran = CliRunner().invoke(app, ["doctor", "--json"], catch_exceptions=False)
    checks = [finding["check"] for finding in json.loads(ran.stdout)["findings"]]
    [shown] = [shown for words, shown in outputs("docs/command.md") if words == ["jmsql", "doctor"]]
    sample = [line[:15].strip() for line in shown[1:-1] if not line.startswith(" ")]
    assert sample == checks
    page = (ROOT / "docs/command.md").read_text()
    [table] = re.findall(r"^\| check \| what it looks at \|\n\| --- \| --- \|\n((?:\|.*\n)+)", page, re.MULTILINE)
    explained = [name for row in table.splitlines() for name in row.split("|")[1].strip().split(", ")]
    assert explained == list(dict.fromkeys(re.sub("^table .*", "table …", check) for check in checks))


def test_each_subcommand_has_help_with_an_example_that_is_understood() -> None:
    remaining = [load_command(name) for name in COMMANDS]
    for command in remaining:
        remaining += getattr(command, "commands", {}).values()
        if not hasattr(command, "commands"):
            examples = re.findall(r"`[^`]*?(jmsql [^`]+)`", command.help.partition("Example")[2])
            assert examples, command.name
            for example in examples:
                called, context, rest = click_command(shlex.split(example)[1:])
                assert called.name == command.name
                known = {name for parameter in called.get_params(context) for name in parameter.opts}
                assert {word for word in rest if re.match(r"--?[a-z]", word)} <= known, example


def sections_of_views() -> dict[str, str]:
    """What the page about SQL says of each view."""
    text = (ROOT / "docs/sql.md").read_text()
    return dict(re.findall(r"^## jmsql\.(\w+)\n(.*?)(?=^## )", text, re.MULTILINE | re.DOTALL))


def test_the_page_about_sql_names_every_column_of_every_view(jmsql_clean_url: str, jmsql_schema: str) -> None:
    with psycopg.connect(jmsql_clean_url) as database:
        rows = database.execute(
            """
            select c.relname, array_agg(a.attname::text)
            from pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0
            where c.relnamespace = %s::regnamespace and c.relkind = 'v' group by c.relname
            """,
            (jmsql_schema,),
        ).fetchall()
    views = {name: set(columns) for name, columns in rows}
    sections = sections_of_views()
    assert sections.keys() == views.keys()
    missing = {}
    for view, section in sections.items():
        named = set(re.findall(r"`([a-z_]+)`", re.sub(r"^```.*?^```$", "", section, flags=re.MULTILINE | re.DOTALL)))
        missing[view] = views[view] - named
        cells = "".join(re.findall(r"^\| (?!column)([^|]*) \|", section, re.MULTILINE))
        assert set(re.findall(r"`([a-z_]+)`", cells)) <= views[view], view
    assert {view: names for view, names in missing.items() if names} == {}


def test_the_page_about_sql_lists_functions_with_their_parameters(jmsql_clean_url: str, jmsql_schema: str) -> None:
    text = (ROOT / "docs/sql.md").read_text()
    [table] = re.findall(r"^## Functions\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    shown = re.findall(r"`jmsql\.(\w+)\(([^)]*)\)`", re.sub(r"default '[^']*'|default \w+", "", table))
    assert len(shown) > 10
    with psycopg.connect(jmsql_clean_url) as database:
        rows = database.execute(
            "select proname, proargnames from pg_proc where pronamespace = %s::regnamespace", (jmsql_schema,)
        ).fetchall()
    functions = {(name, *(parameters or ())) for name, parameters in rows}
    for name, parameters in shown:
        names = tuple(parameter.strip() for parameter in parameters.split(",") if parameter.strip() not in {"…", ""})
        assert any(function[: len(names) + 1] == (name, *names) for function in functions), (name, names)
        assert "…" in parameters or (name, *names) in functions, (name, names)
    assert {name for name, *_ in functions} <= set(re.findall(r"jmsql\.(\w+)\(", text)), "each stands on the page"


@pytest.mark.parametrize("program", [program for program in PROGRAMS if "Application(" in program.text], ids=str)
def test_a_program_with_handlers_sends_nothing_when_a_worker_imports_it(program: Block) -> None:
    """Each process of a worker imports it, and `jmsql worker --list` does, too."""
    at_import = [
        node
        for statement in ast.parse(program.text).body
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.If)
        for node in ast.walk(statement)
    ]
    assert {node.attr for node in at_import if isinstance(node, ast.Attribute)}.isdisjoint({"send", "send_many"})
