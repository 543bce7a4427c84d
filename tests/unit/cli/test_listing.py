"""Tables in terminals of any width, and where there is no terminal."""

from __future__ import annotations

import io
import subprocess
import sys
import time

import pytest
from rich.console import Console
from rich.text import Text

from jmsql.cli.listing import Listing


def shown(listing: Listing, width: int, *, terminal: bool = True) -> list[str]:
    output = io.StringIO()
    Console(file=output, width=width, force_terminal=terminal, color_system=None, highlight=False).print(listing)
    return output.getvalue().splitlines()


def make(*rows: tuple[str | None, ...], spare: tuple[str, ...] = ("idle", "size")) -> Listing:
    listing = Listing(("name", "text", "size", "idle"), numbers=("size", "idle"), spare=spare)
    for row in rows:
        listing.add_row(*row)
    return listing


def test_rows_that_fit_are_a_table_with_numbers_flush_right() -> None:
    listing = make(("orders", "some words", "5", "0"), ("answers", None, "1,200", "12"))
    assert shown(listing, 80) == [
        "name     text         size  idle",
        "orders   some words      5     0",
        "answers              1,200    12",
    ]


def test_without_a_terminal_it_is_as_wide_as_it_is_and_no_line_ends_in_spaces() -> None:
    listing = make(("orders", "word " * 100, "5", "0"), ("answers", "x", None, None))
    lines = shown(listing, 65536, terminal=False)
    assert len(lines) == 3
    assert len(lines[1]) > 500
    assert lines[2] == "answers  x"


def test_without_a_terminal_no_console_is_loaded() -> None:
    program = """
import sys
from jmsql.cli.output import print_table, table

listing = table("name", "size", numbers=("size",))
listing.add_row("two\\nlines", "5")
print_table(listing)
print("rich.console" in sys.modules)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == ["name       size", "two lines     5", "False"]


def test_texts_wrap_between_words() -> None:
    listing = make(("orders", "several words that wrap", "5", "7"), spare=())
    assert shown(listing, 34) == [
        "name    text            size  idle",
        "orders  several words      5     7",
        "        that wrap",
    ]


def test_columns_without_news_are_left_out_first_and_are_named() -> None:
    listing = make(("orders", "longerword", "0", "7"))
    assert shown(listing, 26)[:2] == ["name    text        idle", "orders  longerword     7"]
    assert "".join(shown(listing, 26)[2:]) == "Left out in this width: size."


def test_rows_that_do_not_fit_become_lines() -> None:
    listing = make(("orders", "longerword", "5", "0"), ("answers", "x", None, None), spare=())
    assert shown(listing, 20) == [
        "name  orders",
        "text  longerword",
        "size  5",
        "idle  0",
        "",
        "name  answers",
        "text  x",
    ]


@pytest.mark.parametrize("width", range(10, 60, 7))
def test_a_text_that_may_be_cut_ends_in_an_ellipsis(width: int) -> None:
    listing = Listing(("name", "body"), cut=("body",))
    listing.add_row("x", "body " * 30)
    lines = shown(listing, max(width, 16))
    assert len(lines) == 2
    assert lines[1].endswith("…")
    assert len(lines[1]) <= max(width, 16)


def test_wide_characters_count_twice() -> None:
    listing = make(("名前", "x", "5", "0"))
    assert shown(listing, 80)[1] == "名前  x        5     0"


def test_a_cell_does_not_command_the_terminal() -> None:
    assert shown(make(("a\x1b[2Jb\tc\u202e", "x", "5", "0")), 80)[1] == "a�[2Jb c�  x        5     0"


def test_the_time_that_a_listing_takes_grows_with_its_rows_alone() -> None:
    def time_for(rows: int) -> float:
        listing = make(*((f"queue {number}", "x", str(number), "0") for number in range(rows)))
        started = time.thread_time()
        assert len(shown(listing, 80)) == rows + 1
        return time.thread_time() - started

    few = min(time_for(500) for _ in range(3))
    assert time_for(10_000) < 5 * (10_000 / 500) * few


def test_cells_are_texts_as_they_are() -> None:
    """Markup means nothing; lines and styles are kept; two columns may have the same name."""
    listing = Listing(("queue", "queue"))
    listing.add_row("[red]x[/red]", Text("first\nsecond", "bold"))
    assert shown(listing, 80)[1:] == ["[red]x[/red]  first", "              second"]
