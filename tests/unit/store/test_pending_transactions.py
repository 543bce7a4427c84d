"""Messages of pending transactions are hidden: each statement that reads the table `message` says so.

A statement that does not has its reason here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import jmsql
from jmsql.store.receiving.candidates import wanted
from jmsql.store.schema.version import migrations_directory

PRODUCT = Path(jmsql.__file__).parent

_BY_KEY = "It looks up, by key, what was claimed or delivered. What is not sent is neither."
_BY_ADDRESS = "The addresses are of messages that the transaction has found by asking, and locked."
_WRITE = "It is the write itself."
_DEAD_LETTER = "The provider alone sets the property that makes a dead letter."
_OPEN = "A message of a batch that is not sent has not ended."
_REMOVED = "The queue is removed, with all that is in it, sent or not."
_BOUNDS = "It finds bounds. What lies between them is read by a statement that asks."
_WINDOW = "It reads so many rows, and asks about those that it has read."
_STAYS = "What is not sent has its queue and its body, too."
_OWN = "The transaction that asks has sent them itself, and is not at its end."
_OF_A_KEY = "Only a send that has noted its key is looked up. What is written as pending notes none."
_NO_READ = "It reads nothing: it grants rights."

EXCEPTIONS = {
    "receiving.sql: acknowledge": (1, _BY_KEY),
    "receiving.sql: acknowledge_with_history": (2, _BY_KEY),
    "receiving.sql: ask_to_acknowledge": (1, _BY_KEY),
    "receiving.sql: lock_claimed": (1, _BY_KEY),
    "receiving.sql: delete_locked": (1, _BY_ADDRESS),
    "receiving.sql: delete_last": (1, _BY_ADDRESS),
    "receiving.sql: delete_locked_with_history": (1, _BY_ADDRESS),
    "receiving.sql: present": (1, _BY_KEY),
    "control.sql: lost_claims": (1, _BY_KEY),
    "browse.sql: samples": (1, _BOUNDS),
    "progress.sql: running": (1, _BY_KEY),
    "view jmsql.progress": (1, _BY_KEY),
    "pending.sql: waiting_writes": (1, "It counts what is not sent."),
    "candidates.py: grouped_candidates": (
        3,
        "What is looked up by place is asked outside; by address, it was asked. What precedes in a group is counted.",
    ),
    "lists.sql: lagging": (1, "It compares the first messages of subscriptions, whose counts ask."),
    "searching.sql: end_of_present": (1, _BOUNDS),
    "searching.sql: present": (1, _WINDOW),
    "looks.sql: dead_letters": (1, _DEAD_LETTER),
    "looks.sql: destinations": (1, "It finds where messages may be. Their counts and times are asked for."),
    "looks.sql: end_of_present": (1, _BOUNDS),
    "looks.sql: letters_of_keys": (1, _DEAD_LETTER),
    "looks.sql: message_ids": (1, _BY_KEY),
    "overview.sql: bounds": (4, _BOUNDS),
    "overview.sql: counts": (3, "It looks up deliveries by key. Without asking it counts only if nothing is pending."),
    "overview.sql: dead_letters": (2, _DEAD_LETTER),
    "overview.sql: sampled": (1, _WINDOW),
    "overview.sql: unattended": (1, _WINDOW),
    "overview.sql: oldest": (3, "It finds where messages may be. Their counts and times are asked for."),
    "looks.sql: has_dead_letters": (1, _DEAD_LETTER),
    "looks.sql: move_keys": (1, _BY_ADDRESS),
    "looks.sql: present": (1, _WINDOW),
    "looks.sql: present_keys": (1, _WINDOW),
    "inspection.sql: chosen_letters": (1, _DEAD_LETTER),
    "inspection.sql: dead_letter_queues": (1, _DEAD_LETTER),
    "inspection.sql: dead_letters": (1, _DEAD_LETTER),
    "inspection.sql: purge": (1, _BY_ADDRESS),
    "inspection.sql: retry_dead_letters": (1, _DEAD_LETTER),
    "maintenance.sql: find_lost": (2, _STAYS),
    "maintenance.sql: forget_bodies": (1, _STAYS),
    "maintenance.sql: forget_deleted": (1, _STAYS),
    "maintenance.sql: forget_orphans": (1, _BY_KEY),
    "maintenance.sql: purge_deleted": (2, _REMOVED),
    "maintenance.sql: reap_expired": (1, _BY_ADDRESS),
    "measurement.sql: destinations": (1, _BY_KEY),
    "queue_stream.sql: acknowledge": (2, _BY_KEY),
    "queue_stream.sql: keep_history": (1, _BY_KEY),
    "queue_stream.sql: pieces": (1, _BOUNDS),
    "queue_stream.sql: read": (1, _BY_KEY),
    "receive.py: claim_statement": (1, _BY_KEY),
    "receive.py: claim_within_limit_statement": (1, _BY_KEY),
    "receive.py: _waits_in_group": (
        1,
        "What is not sent comes first in its group, once it is.",
    ),
    "receive.py: dequeue_statement": (1, _BY_ADDRESS),
    "receiving.sql: highest_sequences": (1, _BOUNDS),
    "own_messages.sql: empty": (1, "It removes all there is, sent or not."),
    "own_messages.sql: read": (1, _OWN),
    "own_messages.sql: take": (2, _OWN),
    "redelivery.sql: record_attempts": (1, _BY_KEY),
    "pending.sql: delay": (2, _WRITE),
    "pending.sql: message_of_t": (1, _WRITE),
    "pending.sql: remove_abandoned": (2, _WRITE),
    "view jmsql.dead_letters": (1, _DEAD_LETTER),
    "policy may_select on jmsql_internal.body": (1, _STAYS),
    "function jmsql.depth": (1, _WINDOW),
    "function jmsql.purge": (1, _BY_ADDRESS),
    "view jmsql.queues": (1, _BY_KEY),
    "function jmsql_internal.last_one_waits": (1, _BY_KEY),
    "function jmsql.retry": (1, _DEAD_LETTER),
    "view jmsql.subscriptions": (1, _BY_KEY),
    "function jmsql_internal.find_witness": (2, _OPEN),
    "function jmsql_internal.bury_dead_letters": (2, _BY_KEY),
    "function jmsql_internal.cancel_at": (3, _BY_KEY),
    "delivering.sql: waiting_keys": (1, _BY_KEY),
    "now.sql: consumers": (2, _BY_KEY),
    "now.sql: held_messages": (1, _BY_KEY),
    "function jmsql_internal.deliver_waiting": (1, _BY_KEY),
    "function jmsql_internal.dequeue_next": (2, "It asks in its own words, and then goes by address."),
    "function jmsql_internal.forget_deliveries": (1, _BY_ADDRESS),
    "conditional.sql: forget_keys": (1, _OF_A_KEY),
    "function jmsql_internal.lock_waiting": (2, _OF_A_KEY),
    "function jmsql_internal.note_sent": (2, _OF_A_KEY),
    "function jmsql_internal.wait_for_key": (1, _OF_A_KEY),
    "function jmsql_internal.keep_history": (1, _BY_ADDRESS),
    "function jmsql_internal.open_members": (1, _OPEN),
    "function jmsql_internal.remove_messages": (1, _REMOVED),
    "function jmsql_internal.remove_received": (3, _BY_ADDRESS),
    "function jmsql_internal.return_dead_letters": (2, _DEAD_LETTER),
    "function jmsql_internal.set_privileges": (2, _NO_READ),
}
"""By the statement: how many of its reads do not ask, and why."""

_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)
_NAMED = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_MADE = re.compile(r"^(?=(?:create|comment|alter|insert|delete|do|drop|grant|revoke)\b)", re.MULTILINE)
_OBJECT = re.compile(
    r"create (?:or replace )?(?:(?:function|procedure|view|materialized view) [\w.]+|policy \w+\s+on [\w.]+)"
)
_PLACEHOLDER = re.compile(r"%\(\w+\)s")
_IS_SENT = re.compile(
    r"\{+is_sent\}+|\{is_wanted\}"
    r"|nullif\(\w+\.transaction_id = any\(array\(\s*select p\.transaction_id from jmsql_internal\.pending_transaction p"
    r"\)\), true\) is not null"
)
_READ = re.compile(
    r"(?<!insert into )(?<!copy )(?<!')(?<!\bon )(?:jmsql_internal|\{internal\})\.message(?!\w)"
    r"|\{message_of_\w+\}"
    r"|by_key\([^()]*[\"']message[\"']"
)
_TOKEN = re.compile(rf"(?P<sent>{_IS_SENT.pattern})|(?P<read>{_READ.pattern})|[()]")


def reads_of_what_is_not_sent(text: str) -> int:
    """Count the reads of the table that ask nothing: not in the same parentheses."""
    reads: dict[tuple[int, ...], int] = {}
    asked: set[tuple[int, ...]] = set()
    block: tuple[int, ...] = ()
    opened = 0
    for token in _TOKEN.finditer(_PLACEHOLDER.sub("", text)):
        if token["sent"]:
            asked.add(block)
        elif token["read"]:
            reads[block] = reads.get(block, 0) + 1
        if token[0] == ")":
            block = block[:-1]
        elif token[0].endswith("(") and not token["sent"]:
            opened += 1
            block = (*block, opened)
    return sum(count for block, count in reads.items() if block not in asked)


def sql_files() -> Iterator[tuple[str, str]]:
    for file in PRODUCT.rglob("sql/*.sql"):
        _, *parts = _NAMED.split(file.read_text())
        for name, text in zip(parts[::2], parts[1::2], strict=True):
            yield f"{file.stem}.sql: {name}", _COMMENT.sub("", text)


def python_files() -> Iterator[tuple[str, str]]:
    for file in PRODUCT.rglob("*.py"):
        if "_sync" in file.parts:
            continue
        source = file.read_text()
        if _READ.search(source):
            for name, node in definitions(ast.parse(source)):
                for string in strings(node):
                    yield f"{file.stem}.py: {name}", ast.get_source_segment(source, string) or ""


def definitions(module: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    for node in module.body:
        if isinstance(node, ast.ClassDef):
            yield from ((f"{node.name}.{getattr(each, 'name', '')}", each) for each in node.body)
        else:
            yield getattr(node, "name", ""), node


def strings(node: ast.AST) -> Iterator[ast.expr]:
    """Find the strings that a part of a module makes, each whole, without docstrings."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.JoinedStr) or (isinstance(child, ast.Constant) and isinstance(child.value, str)):
            yield child
        elif not (isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)):
            yield from strings(child)


def made_in_the_database() -> Iterator[tuple[str, str]]:
    """Functions, views and policies, each as the last revision makes it."""
    made: dict[str, str] = {}
    folder = Path(str(migrations_directory()))
    revisions = [folder / "baseline", *sorted(folder.glob("0*"))]
    for file in chain.from_iterable(sorted(revision.glob("*.sql")) for revision in revisions):
        for part in _MADE.split(_COMMENT.sub("", file.read_text())):
            if found := _OBJECT.match(part):
                made[found[0].replace("or replace ", "").removeprefix("create ")] = part
    yield from made.items()


def test_statements_that_read_messages_leave_out_pending_ones() -> None:
    found: dict[str, int] = {}
    for name, text in (*sql_files(), *python_files(), *made_in_the_database()):
        if count := reads_of_what_is_not_sent(text):
            found[name] = found.get(name, 0) + count
    assert found == {name: count for name, (count, _) in EXCEPTIONS.items()}


def test_condition_of_consumers_leaves_it_out() -> None:
    assert "{is_sent}" in wanted(None).condition
