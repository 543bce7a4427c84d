"""The words that `make lint` keeps out of the documentation, docstrings and comments."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.prose import Rates, count_by_file, findings, rates, written

ROOT = Path(__file__).parents[2]
CEILINGS = {"what": 0.6, "opens": 10, "of": 0.3}
"""Habits in docstrings and comments of `jmsql`: per 1,000 words, but `opens` in all. They only fall."""
FLOORS = {"client": 3.9, "store/wire": 8.8, "store/receiving": 3.9, "worker": 3.9}
"""Percentages of lines that are comments where code hurts. They only rise."""


def words(directory: Path, name: str, text: str) -> list[tuple[int, str]]:
    file = directory / name
    file.write_text(text)
    return [(found.line, found.word) for found in findings(file)]


def test_a_page_is_read_but_for_its_code(tmp_path: Path) -> None:
    code = "```sh\necho whoever\n```\n\n`whoever` is a name"
    page = f"# Start\n\nWhoever reads starts\nanew.\n\n{code}, what\nthere is more.\n"
    assert words(tmp_path, "page.md", page) == [(4, "anew"), (10, "what there is"), (3, "Whoever")]


def test_comments_and_docstrings_of_a_module_are_read_and_its_strings_are_not(tmp_path: Path) -> None:
    module = (
        '"""Reads anew."""\n\n# Whoever calls waits.\nTEXT = "whoever"\n"""To be had from here."""\n\n\n'
        'def read(name: str) -> None:\n    """Read.\n\n    Raises:\n        TypeError: It is none.\n    """\n'
    )
    assert sorted(words(tmp_path, "module.py", module)) == [
        (1, "anew"),
        (3, "Whoever"),
        (5, "To be had"),
        (12, "It is none."),
    ]


def test_messages_for_users_are_read_and_other_strings_are_not(tmp_path: Path) -> None:
    module = (
        'logger.warning("Nothing is looked after: %s", error)\n'
        'raise JMSException(f"A queue is wanted, not {name}.") from None\n'
        'option(help="Try anew.")\nname = "anew"\nread("anew")\n'
    )
    assert sorted(words(tmp_path, "module.py", module)) == [(1, "looked after"), (2, "is wanted"), (3, "anew")]


def test_names_are_read_word_by_word(tmp_path: Path) -> None:
    module = "def begin_anew(vanity, renewed):\n    class InVain:\n        begin_anew = Tally\n"
    assert words(tmp_path, "module.py", module) == [(1, "begin_anew"), (2, "InVain"), (3, "Tally")]


def test_comments_of_sql_are_read_and_its_values_are_not(tmp_path: Path) -> None:
    sql = "-- Whoever reads.\nselect 'whoever';\ncomment on table message is\n    'Filled anew.';\n"
    assert sorted(words(tmp_path, "schema.sql", sql)) == [(1, "Whoever"), (4, "anew")]


@pytest.mark.parametrize(
    "text", ["None if there is none.", "At first the queue is empty.", "The value is None.", "renewed, manner"]
)
def test_other_words_are_not_found(tmp_path: Path, text: str) -> None:
    assert words(tmp_path, "page.md", text + "\n") == []


def test_habits_of_syntax_are_counted_in_docstrings_and_comments(tmp_path: Path) -> None:
    module = tmp_path / "module.py"
    module.write_text(
        '"""What is read, and `what` is not."""\n# Whose it is\n# is what counts.\n'
        'name = "what"  # a name of the caller\'s\n'
        '"""That of the pool\'s limit."""\n'
    )
    assert rates([module]) == Rates(words=22, lines=5, comments=2, what=2, opens=3, of=2)


def test_clauses_do_not_stand_for_nouns_more_often_than_before() -> None:
    found = rates(written(ROOT / "jmsql"))
    counted = {"what": found.per_thousand("what"), "opens": found.opens, "of": found.per_thousand("of")}
    assert {habit: count for habit, count in counted.items() if count > CEILINGS[habit]} == {}, (
        "`python -m tools.prose --rates jmsql` has the numbers; name the thing instead"
    )


@pytest.mark.parametrize(("package", "floor"), FLOORS.items())
def test_code_that_hurts_is_commented_no_less_than_before(package: str, floor: float) -> None:
    assert rates(written(ROOT / "jmsql" / package)).commented() >= floor


def test_no_file_has_more_clauses_for_nouns_than_before() -> None:
    lines = (ROOT / "tests/unit/prose.txt").read_text().splitlines()
    most = {name: int(count) for count, _, name in (line.partition(" ") for line in lines)}
    found = count_by_file(ROOT / "jmsql")
    assert {name: count for name, count in found.items() if count > most.get(name, count)} == {}, (
        "name the thing instead; `python -m tools.prose jmsql --record tests/unit/prose.txt` records lower counts"
    )


_NAMED = re.compile(r"`([A-Za-z_][\w.]*)|\b(test_\w+)\b")
_ELSEWHERE = {"BaseDatabaseWrapper", "CONTRIBUTING", "NAME_internal", "dictConfig", "transaction_timeout"}
"""Names of PostgreSQL, Python and Django that jmsql does not use, and a placeholder."""


def test_comments_and_internals_name_nothing_that_is_gone() -> None:
    code, remarks = set[str](), {"docs/internals.md": (ROOT / "docs/internals.md").read_text()}
    places = [*written(ROOT / "jmsql"), *(ROOT / "tests").rglob("*.py"), *(ROOT / "tools").rglob("*.py")]
    places += [*(ROOT / "jmsql").rglob("*.sql"), *(ROOT / "migrations").rglob("*.sql")]
    for path in places:
        lines = path.read_text().splitlines()
        code.update(*(re.findall(r"\w+", line) for line in lines if not line.lstrip().startswith("#")), [path.stem])
        if path.is_relative_to(ROOT / "jmsql"):
            remarks[str(path)] = "\n".join(line for line in lines if line.lstrip().startswith("#"))
    named = {
        (place, name)
        for place, text in remarks.items()
        for found in _NAMED.findall(text)
        for name in "".join(found).removesuffix(".py").removesuffix(".md").split(".")
    }
    assert {(place, name) for place, name in named if name and name not in code | _ELSEWHERE} == set()
