"""Judges the facts of `store.administration.diagnosis`: good, worth knowing, or to be put right."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import NamedTuple

from jmsql.exceptions import JMSException
from jmsql.extension.checks import Check
from jmsql.store.administration import diagnosis, inspection
from jmsql.store.administration.diagnosis import (
    Blocker,
    FailingDestination,
    LimitFacts,
    MaintenanceFacts,
    MessageTable,
    PausedDestination,
    PreparedTransaction,
    ScheduleFacts,
    ServerFacts,
    SnapshotHolder,
    WaitingQueue,
)
from jmsql.store.administration.incidents import incidents_in
from jmsql.store.administration.selector_indexes import selector_indexes, serving
from jmsql.store.errors import is_connection_lost
from jmsql.store.identifier import in_schema, quote_identifier
from jmsql.store.schema.version import DEFAULT_SCHEMA, current_version, former_name, newest_version, rename_back
from jmsql.store.sending.pending_transactions import waiting_writes
from jmsql.store.wire._sync.runner import PsycopgRunner, Runner
from jmsql.values.counting import counted

_SLOW_NOTIFICATION = 1.0
_LOST_NOTIFICATION = 3.0
_FULL_NOTIFICATIONS = 0.5
_MANY_DEAD_ROWS = 100_000
_AUTOVACUUM_IS_LATE = timedelta(minutes=5)
_NOTED_SKEW = 1.0
_DEEP = 1000
_SHOWN = 5
_WRITE_ENDS = 3600.0
"""Within so many seconds after its first task, if it is not a very long one."""
_UNREAD = 3600.0
"""Within so many seconds, a durable subscription that was read before, or a consumer for other messages, comes back."""
_UNDECLARED = 900.0
"""Workers say every five minutes that they declare a schedule. After so many seconds none that runs does."""
_OVERDUE = 120.0
"""Seconds after which a tick has found no client, each of which asks once a minute."""
_KEPT_LOG = 64 * 2**20
_FEW_CONNECTIONS_LEFT = 0.9
_LOCK_LASTS = 1.0
"""Seconds between the two looks of which both find a lock that counts as a problem."""
_HIDDEN = 10_000
_HIDDEN_SECONDS = 300.0
"""So many messages of a write that has not ended after so many seconds are in the way of consumers."""
_QUERY_LENGTH = 100
_QUICK_ROWS = 10_000
"""How many rows of a table a quick examination reads."""


class Health(StrEnum):
    """How well a thing is."""

    ok = "ok"
    note = "note"
    problem = "problem"


class Finding(NamedTuple):
    """A finding about one subject, and its remedy."""

    check: str
    health: Health
    says: str
    advice: str | None = None


class Thresholds(NamedTuple):
    """How many seconds things may take."""

    oldest_snapshot: float = 60.0
    longest_transaction: float = 60.0
    longest_claim: float = 600.0


def _ok(check: str, says: str) -> Finding:
    return Finding(check, Health.ok, says)


def _note(check: str, says: str, advice: str) -> Finding:
    return Finding(check, Health.note, says, advice)


def _problem(check: str, says: str, advice: str) -> Finding:
    return Finding(check, Health.problem, says, advice)


def examine(runner: PsycopgRunner, thresholds: Thresholds) -> Iterator[Finding]:
    """Examine the store; if the schema cannot be worked with, nothing that needs it."""
    return _in_schema(_everything(runner, thresholds), runner.schema)


def _everything(runner: PsycopgRunner, thresholds: Thresholds) -> Iterator[Finding]:
    server = diagnosis.ask(runner, diagnosis.server)
    yield from _server(server)
    yield from _examined("disk", lambda: [_disk(runner, server)])
    yield from _examined("clock", lambda: [_clock(runner)])
    yield from _resources(runner)
    schema = _examined("schema", lambda: [_schema(runner)])
    yield from schema
    if all(each.health is not Health.problem for each in schema):
        yield from _contents(runner, thresholds)
    yield _pooler(runner.is_pooled)
    test = _notification_queue if server.in_recovery else _notifications  # no session can listen on a standby
    yield from _examined("notifications", lambda: [test(runner)])
    yield from _server_contents(runner, thresholds, schema)


def examine_quickly(
    runner: PsycopgRunner, thresholds: Thresholds, *, hides_statements: bool = False
) -> Iterator[Finding]:
    """Examine what shows with few rows, however much is stored, for those who look again and again.

    That leaves out what counts the messages of each queue, and the test of notifications, which sends one.

    Args:
        runner: Asks for the facts.
        thresholds: How long things may take.
        hides_statements: Whether to leave out the statements of other sessions, which may contain data.
    """
    return _in_schema(_what_shows(runner, thresholds, hides_statements=hides_statements), runner.schema)


def _what_shows(runner: PsycopgRunner, thresholds: Thresholds, *, hides_statements: bool) -> Iterator[Finding]:
    yield from _server(diagnosis.ask(runner, diagnosis.server))
    yield from _resources(runner, hides_statements=hides_statements)
    schema = _examined("schema", lambda: [_schema(runner)])
    yield from schema
    if all(each.health is not Health.problem for each in schema):
        checks: dict[str, Callable[[], Iterable[Finding]]] = {
            "rights": lambda: _rights(runner),
            "functions": lambda: _functions(runner),
            "maintenance": lambda: [_maintenance(runner, _QUICK_ROWS)],
            "transactions": lambda: _transactions(runner, thresholds, hides_statements=hides_statements),
            "claims": lambda: _claims(runner, thresholds, _QUICK_ROWS),
            "two-phase": lambda: _prepared(runner, thresholds),
            "redelivery": lambda: _failing(runner, _QUICK_ROWS),
            "schedules": lambda: _schedules(runner, hides_statements=hides_statements),
        }
        for check, look in checks.items():
            yield from _examined(check, look)
    yield _pooler(runner.is_pooled)
    yield from _examined("notifications", lambda: [_notification_queue(runner)])
    yield from _server_contents(runner, thresholds, schema, hides_statements=hides_statements)


def _in_schema(findings: Iterable[Finding], schema: str) -> Iterator[Finding]:
    """Write the SQL in advice for a schema of another name than `jmsql`."""
    for each in findings:
        is_default = each.advice is None or schema == DEFAULT_SCHEMA
        yield each if is_default else each._replace(advice=in_schema(each.advice or "", schema))


def _resources(runner: PsycopgRunner, *, hides_statements: bool = False) -> Iterator[Finding]:
    """Examine the limits of the server, and the locks, which tell why other checks cannot look."""
    yield from _examined("connections", lambda: _connections(runner))
    yield from _examined("log", lambda: _slots(runner))
    yield from _examined("locks", lambda: _locks(runner, hides_statements=hides_statements))


def _server_contents(
    runner: PsycopgRunner, thresholds: Thresholds, schema: list[Finding], *, hides_statements: bool = False
) -> Iterator[Finding]:
    yield from _examined(
        "vacuum", lambda: _vacuum(runner, thresholds.oldest_snapshot, hides_statements=hides_statements)
    )
    if all(each.health is not Health.problem for each in schema):
        yield from _examined("tables", lambda: map(_table, diagnosis.ask(runner, diagnosis.tables)))
        yield from _examined("plans", lambda: [_plans(diagnosis.ask(runner, diagnosis.tables_without_pages))])


def _examined(check: str, look: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """Return what a check finds, or a note of what keeps it from looking."""
    try:
        return list(look())
    except JMSException as error:
        if is_connection_lost(error):
            raise
        return [_unexamined(check, error)]


def _unexamined(check: str, error: JMSException) -> Finding:
    match error.error_code:
        case diagnosis.NO_LOCK:
            return _note(check, "not examined: a table is locked", "The check locks says by whom.")
        case diagnosis.TOO_LONG:
            return _note(
                check,
                f"not examined: it took longer than {diagnosis.LONGEST_LOOK:g} s",
                "See which queries keep the server busy.",
            )
        case _:
            advice = "Connect as the owner of the schema, or as a member of jmsql_admin, to examine it."
            return _note(check, f"not examined: {error}", advice)


def _locks(runner: PsycopgRunner, *, hides_statements: bool) -> Iterator[Finding]:
    found = diagnosis.ask(runner, diagnosis.blockers)
    if found:  # a lock that lasts for a moment harms nobody
        time.sleep(_LOCK_LASTS)
        lasting = {(each.process_id, each.query_start) for each in found}
        found = [
            each for each in diagnosis.ask(runner, diagnosis.blockers) if (each.process_id, each.query_start) in lasting
        ]
    for each in found[:_SHOWN]:
        yield _problem(
            "locks",
            "tables are locked, or wait to be locked, so that clients cannot send, by "
            + _blocker(each, hides_statements),
            f"Commit or roll back there, or end it: `select pg_terminate_backend({each.process_id})`.",
        )
    if not found:
        yield _ok("locks", "no lock keeps clients from sending")


def _blocker(blocker: Blocker, hides_statements: bool) -> str:
    who = f"process {blocker.process_id}, user {blocker.user_name!r}, application {blocker.application_name!r}"
    if blocker.state is None:  # a session of a role that this one may not look at
        return who
    since = "" if blocker.query_start is None else f" of {blocker.query_start.astimezone():%Y-%m-%d %H:%M:%S}"
    query = "a statement that is hidden here" if hides_statements else _shortened(blocker.query)
    return f"{who}, which is {blocker.state} after the statement{since}: {query}"


def _connections(runner: PsycopgRunner) -> Iterator[Finding]:
    limits = diagnosis.ask(runner, diagnosis.connection_limits)
    close = [each for each in limits if each.used >= _FEW_CONNECTIONS_LEFT * each.most]
    for each in close[:_SHOWN]:
        name, more = quote_identifier(each.name), 2 * max(each.most, each.used)
        place, command = {
            "server": ("the server", f"`alter system set max_connections = {more}`, then restart the server"),
            "database": (f"the database {each.name!r}", f"`alter database {name} connection limit {more}`"),
            "role": (f"the role {each.name!r}", f"`alter role {name} connection limit {more}`"),
        }[each.kind]
        yield _problem(
            "connections",
            f"{each.used} of the {each.most} of {place} are in use, {each.used_by_it} by the application "
            f"{each.application_name!r} of the user {each.user_name!r}; new clients are refused when all are",
            f"Let programs keep fewer, or share them by a pooler. To allow more: {command}.",
        )
    if not close:
        yield _ok("connections", f"{limits[0].used} of {limits[0].most} are in use" if limits else "there is room")


def _slots(runner: PsycopgRunner) -> Iterator[Finding]:
    slots = [each for each in diagnosis.ask(runner, diagnosis.idle_slots) if each.kept > _KEPT_LOG]
    for each in slots[:_SHOWN]:
        yield _problem(
            "log",
            f"the server keeps {each.kept / 2**20:,.0f} MiB of its write-ahead log for the replication slot "
            f"{each.name!r}, which nothing reads, until the disk is full",
            f"Start its reader, or drop it: `select pg_drop_replication_slot('{each.name}')`. "
            "max_slot_wal_keep_size limits what slots keep.",
        )
    if not slots:
        yield _ok("log", "no replication slot without a reader keeps much of the write-ahead log")


def _disk(runner: PsycopgRunner, server: ServerFacts) -> Finding:
    """Have the server write to its disk what the next segment of its log takes."""
    try:
        if not server.in_recovery:
            diagnosis.ask(runner, diagnosis.write_file())
    except JMSException as error:
        if error.error_code != diagnosis.DISK_FULL:
            raise
        return _problem(
            "disk",
            f"the server cannot write 16 MB, so that sends fail: {error}",
            "Make room on its disk, but remove nothing from its directory. The check log names what keeps the "
            "write-ahead log.",
        )
    return _ok("disk", "the server can write to it")


def _server(server: ServerFacts) -> Iterator[Finding]:
    yield _version(server)
    yield _durability(server)


def _version(server: ServerFacts) -> Finding:
    name = f"PostgreSQL {server.version}, database {server.database!r}"
    if server.read_only and not server.in_recovery:
        return _problem(
            "server",
            f"{name}: transactions are read-only by default, so that nothing can be sent",
            "Some providers set it when the disk is nearly full: then make room first. "
            f"`alter database {quote_identifier(server.database)} set default_transaction_read_only = off` ends it for "
            "new connections, unless a role has a setting of its own.",
        )
    if server.in_recovery:
        return _problem("server", f"{name}: a standby, which is read-only", "Connect to the primary.")
    if server.without_triggers:
        return _problem(
            "server",
            f"{name}: session_replication_role = replica is set, so that PostgreSQL runs no triggers: clients are "
            "refused, and messages that are sent in SQL miss their groups and batches",
            f"{'; '.join(f'`{each}`' for each in server.without_triggers)} ends it for new connections.",
        )
    return _ok("server", name)


def _durability(server: ServerFacts) -> Finding:
    settings = {
        "fsync": server.fsync,
        "full_page_writes": server.full_page_writes,
        "synchronous_commit": server.synchronous_commit != "off",
    }
    off = ", ".join(f"{name} = off" for name, is_on in settings.items() if not is_on)
    if off:
        return _note(
            "durability",
            f"{off}: a crash of the server may lose committed messages, PERSISTENT ones too",
            "Leave it so only where messages may be lost, as in tests. "
            "`select name, source, sourcefile from pg_settings where setting = 'off'` says where it was set.",
        )
    return _ok("durability", "what is committed survives a crash of the server")


def _schema(runner: PsycopgRunner) -> Finding:
    former = diagnosis.ask(runner, former_name(runner.schema))
    if former is not None:
        advice = rename_back(runner.schema, former)
        return _problem("schema", f"it was {former!r} before", f"{advice[0].upper()}{advice[1:]}.")
    found, wanted = diagnosis.ask(runner, current_version(runner.schema)), newest_version()
    if found == wanted:
        return _ok("schema", f"version {found}")
    if found is None:
        return _problem("schema", "it is not there", "Run `jmsql migrate`.")
    ahead = int(found) - int(wanted)
    health = Health.note if abs(ahead) == 1 and int(found) > 0 else Health.problem
    if ahead < 0:
        return Finding("schema", health, f"version {found}; that of this release is {wanted}", "Run `jmsql migrate`.")
    return Finding(
        "schema", health, f"version {found}, made by a newer release; that of this one is {wanted}", "Upgrade jmsql."
    )


def _clients(runner: PsycopgRunner) -> Finding:
    clients = diagnosis.ask(runner, inspection.clients)
    gone = [client for client in clients if not client.connected]
    alive = f"{len(clients) - len(gone)} connected"
    if not gone:
        return _ok("clients", alive)
    claimed = sum(client.claimed for client in gone)
    processes = ", ".join(f"{client.process_id} on {client.host}" for client in gone[:3])
    return _note(
        "clients",
        f"{alive}; {len(gone)} gone without a word (process {processes}), holding {counted(claimed, 'message')}",
        "The next maintenance forgets them, and takes back what they hold. A connected client does it within seconds, "
        "if its role may administer.",
    )


def _maintenance(runner: PsycopgRunner, most_rows: int | None = None) -> Finding:
    maintenance = diagnosis.ask(runner, diagnosis.maintenance(most_rows))
    if maintenance.overdue:
        late = _at_least(maintenance.overdue, most_rows)
        return _problem(
            "maintenance",
            f"{late} with a delivery time should have been moved to their queues more than a minute ago, and "
            + (
                "the client that does the maintenance does not do it"
                if maintenance.led
                else f"none of {counted(maintenance.clients, 'connected client')} does the maintenance"
            ),
            _maintenance_advice(maintenance),
        )
    if maintenance.expired:
        return Finding(
            "maintenance",
            Health.problem if maintenance.led else Health.note,
            f"{_at_least(maintenance.expired, most_rows)} expired more than a minute ago and were not removed",
            _maintenance_advice(maintenance),
        )
    return _ok("maintenance", "a client does it" if maintenance.led else "nothing waits for it")


def _maintenance_advice(maintenance: MaintenanceFacts) -> str:
    if maintenance.led:
        return "A client is to do it: look into its log, and into what it waits for (`select * from pg_stat_activity`)."
    if maintenance.restricted_users:
        roles = ", ".join(map(quote_identifier, maintenance.restricted_users))
        return (
            "The roles of the clients may not administer. Let one: `select jmsql.create_roles()`, "
            f"`grant jmsql_admin to {roles}`; then connect its clients again. Or start a client of the schema's owner."
        )
    return "Start a client as the owner of the schema or as a member of jmsql_admin, such as a worker."


def _pooler(is_pooled: bool) -> Finding:
    if is_pooled:
        return _note(
            "pooler",
            "this URL leads through one, such as PgBouncer: LISTEN and locks of sessions do not work there",
            "Clients work through it, and hear of messages late. Give them a control_url, or JMSQL_CONTROL_URL, that "
            "goes past it.",
        )
    return _ok("pooler", "none between here and the server")


def _notification_queue(runner: PsycopgRunner) -> Finding:
    usage = diagnosis.ask(runner, diagnosis.notification_queue_usage)
    if usage > _FULL_NOTIFICATIONS:
        return _problem(
            "notifications",
            f"the server's queue of notifications is {usage:.0%} full; when it is full, commits fail",
            "A session that listens is in an old transaction. End the oldest: `select pg_terminate_backend(pid) from "
            "pg_stat_activity where xact_start is not null and pid <> pg_backend_pid() and datname is not null "
            "order by xact_start limit 1`; then look again.",
        )
    return _ok("notifications", f"the server's queue of them is {usage:.0%} full")


def _notifications(runner: PsycopgRunner) -> Finding:
    queue = _notification_queue(runner)
    if queue.health is Health.problem or runner.is_pooled:
        return queue
    delay = diagnosis.notification_delay(runner, _LOST_NOTIFICATION)
    if delay is None:
        return _problem(
            "notifications",
            f"none came within {_LOST_NOTIFICATION:g} s, so that consumers hear of messages only when they look again",
            "A pooler in transaction mode breaks LISTEN: give ConnectionFactory a control_url that goes around it.",
        )
    says = f"{delay * 1000:.1f} ms from NOTIFY to LISTEN"
    if delay > _SLOW_NOTIFICATION:
        return _note("notifications", says, "The server, or the way to it, is slow.")
    return _ok("notifications", says)


def _autovacuum(server: ServerFacts) -> Finding:
    if not server.autovacuum:
        return _problem(
            "autovacuum",
            "it is off, so that dead rows stay and receiving gets slower and slower",
            "Turn it on: `alter system set autovacuum = on`; `alter system set track_counts = on`; "
            "`select pg_reload_conf()`.",
        )
    return _ok("autovacuum", f"on, looking around every {server.autovacuum_naptime}")


def _vacuum(runner: PsycopgRunner, oldest_snapshot: float, *, hides_statements: bool = False) -> Iterator[Finding]:
    server = diagnosis.ask(runner, diagnosis.server)
    in_doubt = diagnosis.ask(runner, diagnosis.prepared_transactions)
    finishing = {each.identifier: _finishing_advice(each) for each in in_doubt}
    yield _autovacuum(server)
    if not server.sees_all_sessions:
        yield _note(
            "vacuum",
            "this role does not see the sessions of others, which may hold vacuum back",
            f"Grant it the role for that: `grant pg_read_all_stats to {quote_identifier(server.role)}`.",
        )
    holders = diagnosis.ask(runner, diagnosis.snapshot_holders)
    if hides_statements:
        holders = [holder._replace(query=None) for holder in holders]
    late = [holder for holder in holders if holder.seconds is None or holder.seconds > oldest_snapshot]
    for holder in late:
        yield _problem("vacuum", _held_back_by(holder), _release_advice(holder, finishing))
    if not late:
        oldest = max((holder.seconds for holder in holders if holder.seconds is not None), default=None)
        says = "nothing holds it back" if oldest is None else f"the oldest snapshot is {oldest:.1f} s old"
        yield _ok("vacuum", says)


def _held_back_by(holder: SnapshotHolder) -> str:
    who = f"{holder.kind} {holder.name!r}"
    if holder.process_id is not None:
        who += f" of process {holder.process_id}"
    if holder.user_name is not None:
        who += f", user {holder.user_name!r}"
    how_long = counted(holder.transactions, "transaction")
    if holder.seconds is not None:
        how_long = f"{holder.seconds:,.0f} s, {how_long}"
    doing = "" if holder.state is None else f"; {holder.state}"
    if holder.query:
        doing += f": {_shortened(holder.query)}"
    return f"held back for {how_long} by the {who}{doing}"


def _release_advice(holder: SnapshotHolder, finishing: dict[str, str]) -> str:
    match holder.kind:
        case "session":
            return (
                f"Commit there, or end it: `select pg_terminate_backend({holder.process_id})`. "
                "idle_in_transaction_session_timeout prevents it."
            )
        case "replication slot" if holder.state == "active":
            return (
                "A query on the standby that reads it holds it back: end that there, or set hot_standby_feedback = off "
                "there."
            )
        case "replication slot":
            return f"Start its reader, or drop it: `select pg_drop_replication_slot('{holder.name}')`."
        case _:
            return finishing.get(holder.name or "", "The program that prepared it is to finish it.")


def _table(table: MessageTable) -> Finding:
    last = "never" if table.last_autovacuum is None else f"{table.last_autovacuum.astimezone():%Y-%m-%d %H:%M:%S}"
    says = (
        f"about {table.live_rows:,} rows, {table.dead_rows:,} dead, {table.bytes / 2**20:,.1f} MiB; "
        f"last autovacuum: {last}; {', '.join(table.settings) or 'no settings of its own'}"
    )
    check = f"table {table.table}"
    if not table.autovacuum_enabled:
        return _problem(
            check, says, f"Turn autovacuum on: `alter table jmsql_internal.{table.table} reset (autovacuum_enabled)`."
        )
    is_late = table.last_autovacuum is None or datetime.now(UTC) - table.last_autovacuum > _AUTOVACUUM_IS_LATE
    if table.dead_rows > _MANY_DEAD_ROWS and is_late:
        return _problem(
            check,
            says,
            "Autovacuum has not run. End what holds it back, which the check vacuum names; then "
            f"`vacuum jmsql_internal.{table.table}`. If nothing does, it has too few workers, or autovacuum_naptime is "
            "too long.",
        )
    return _ok(check, says)


def _plans(tables: list[str]) -> Finding:
    if tables:
        return _note(
            "plans",
            f"{' and '.join(tables)}: fewer pages than plans are to count with, as after VACUUM FULL, CLUSTER or a "
            "restored dump, or when an index has grown; receiving may read the whole table for each message",
            "A client that does the maintenance adds them within 10 seconds; without one: "
            "`select jmsql_internal.restore_pages()`. An index that is large though there are few messages becomes "
            "small with REINDEX INDEX CONCURRENTLY.",
        )
    return _ok("plans", "statements find messages by the key")


def _clock(runner: Runner) -> Finding:
    """Compare the clocks. Clients reckon with the server's where theirs is wrong."""
    skew = diagnosis.ask(runner, diagnosis.clock_skew())
    if abs(skew.seconds) <= _NOTED_SKEW + skew.uncertainty:
        return _ok("clock", f"this machine's and the server's agree within {_NOTED_SKEW:g} s")
    ahead, behind = ("the server's", "this machine's") if skew.seconds > 0 else ("this machine's", "the server's")
    return _note(
        "clock",
        f"{ahead} is {abs(skew.seconds):.1f} s ahead of {behind}",
        "Messages expire and become due by the server's clock, but timestamps of logs and of messages do not agree. "
        "Let both keep time by NTP.",
    )


def _contents(runner: PsycopgRunner, thresholds: Thresholds) -> Iterator[Finding]:
    """Examine the stored messages, the clients that hold some, and queues without a consumer."""
    checks: dict[str, Callable[[], Iterable[Finding]]] = {
        "rights": lambda: _rights(runner),
        "functions": lambda: _functions(runner),
        "clients": lambda: [_clients(runner)],
        "maintenance": lambda: [_maintenance(runner)],
        "transactions": lambda: _transactions(runner, thresholds),
        "claims": lambda: _claims(runner, thresholds),
        "two-phase": lambda: _prepared(runner, thresholds),
        **_extensions(runner),
        "writes": lambda: _writes(runner),
        "selectors": lambda: _selectors(runner),
        "paused": lambda: judge_paused(diagnosis.ask(runner, diagnosis.paused)),
        "consumers": lambda: judge_unattended(diagnosis.ask(runner, diagnosis.unattended_queues)),
        "subscriptions": lambda: _subscriptions(runner),
        "unwanted": lambda: _unwanted(runner),
        "redelivery": lambda: _failing(runner),
        "schedules": lambda: _schedules(runner),
        "limits": lambda: [_limits(runner)],
        "dead letters": lambda: _dead_letters(runner),
    }
    for check, look in checks.items():
        yield from _examined(check, look)


def _rights(runner: Runner) -> Iterator[Finding]:
    if not diagnosis.ask(runner, diagnosis.sees_all_messages):
        role = quote_identifier(diagnosis.ask(runner, diagnosis.server).role)
        yield _note(
            "rights",
            "this role does not see the messages of all destinations: what follows is of those that it may browse",
            f"Grant it the role for that: `select jmsql.create_roles()`, `grant jmsql_browser to {role}`.",
        )


def _functions(runner: Runner) -> Iterator[Finding]:
    if diagnosis.ask(runner, diagnosis.has_lost_privileges):
        yield _problem(
            "functions",
            "their privileges are not as jmsql sets them, as after a dump was restored without privileges: every role "
            "that has access may execute those with the rights of the schema's owner, or no such role can send",
            "Run `jmsql migrate` as the owner of the schema, which gives each role what it needs.",
        )


def judge_paused(paused: list[PausedDestination], number: int | None = None) -> Iterator[Finding]:
    """Judge the destinations that are paused.

    Args:
        paused: The destinations.
        number: How many there are, if these are the first of them.
    """
    number = len(paused) if number is None else number
    if not paused:
        yield _ok("paused", "every destination delivers")
        return
    waiting = (
        repr(each.destination) + (f" ({_number(each.depth)})" if each.kind == "queue" else "")
        for each in paused[:_SHOWN]
    )
    more = _more(number - len(paused[:_SHOWN]))
    commands = "; ".join(f"`jmsql resume {shlex.quote(each.destination)}`" for each in paused[:_SHOWN])
    yield _note(
        "paused",
        f"{', '.join(waiting)}{more} {'is' if number == 1 else 'are'} paused: messages collect there, and "
        "are not delivered",
        f"To go on: {commands}.",
    )


def _transactions(runner: Runner, thresholds: Thresholds, *, hides_statements: bool = False) -> Iterator[Finding]:
    transactions = diagnosis.ask(runner, diagnosis.transactions)
    if hides_statements:
        transactions = [each._replace(query="a statement that is hidden here") for each in transactions]
    late = [each for each in transactions if each.transaction_seconds > thresholds.longest_transaction]
    for each in late[:_SHOWN]:
        is_idle = each.state is not None and each.state.startswith("idle in transaction")
        who = f"session {each.application_name!r} of process {each.process_id}, user {each.user_name!r}"
        doing = f"{each.state}" + (f" for {each.state_seconds:,.0f} s, after" if is_idle else "")
        yield _problem(
            "transactions",
            f"messages are held for {each.transaction_seconds:,.0f} s by the transaction of the {who}; "
            f"{doing}: {_shortened(each.query)}",
            (
                "It has received or sent messages and does nothing: see what its program waits for. "
                if is_idle
                else "Its handler or statement takes long. "
            )
            + f"To have the messages delivered again, end it: `select pg_terminate_backend({each.process_id})`.",
        )
    if not late:
        says = f"{counted(len(transactions), 'open transaction')} with messages"
        yield _ok("transactions", says)


def _claims(runner: Runner, thresholds: Thresholds, most_rows: int | None = None) -> Iterator[Finding]:
    claims = diagnosis.ask(runner, diagnosis.claims(most_rows))
    late = [each for each in claims if each.seconds > thresholds.longest_claim]
    for each in late[:_SHOWN]:
        client = "" if each.client_id is None else f", client {each.client_id!r}"
        yield _note(
            "claims",
            f"connection {each.connection_id} (process {each.process_id} on {each.host}{client}) holds "
            f"{counted(each.claimed, 'message')}, the first of {each.destination!r} for {each.seconds:,.0f} s",
            "Its listener takes long, or it does not acknowledge. If it hangs, end the process: its messages are then "
            "delivered again. A visibility timeout of the destination takes them from such a client.",
        )
    if not late:
        claimed = sum(each.claimed for each in claims)
        yield _ok("claims", f"{counted(claimed, 'message')} held by {counted(len(claims), 'client')}")


def _prepared(runner: Runner, thresholds: Thresholds) -> Iterator[Finding]:
    prepared = diagnosis.ask(runner, diagnosis.prepared_transactions)
    late = [each for each in prepared if each.seconds > thresholds.longest_transaction]
    for each in late[:_SHOWN]:
        yield _problem(
            "two-phase",
            f"the transaction {each.identifier!r} of {each.owner!r} is in doubt for {each.seconds:,.0f} s"
            + (", and holds messages" if each.holds_messages else ""),
            _finishing_advice(each),
        )
    if not late:
        yield _ok("two-phase", f"{counted(len(prepared), 'prepared transaction')}")


def _finishing_advice(transaction: PreparedTransaction) -> str:
    """Say how a prepared transaction ends, and only what cannot lose or double anything."""
    name = transaction.identifier.replace("'", "''")
    if transaction.is_global:
        return (
            "Its transaction manager is to finish it (tpc_recover, then tpc_commit or tpc_rollback). If that is "
            "gone for good, look into its log, and at the other branches of the transaction: if any was committed, "
            f"`commit prepared '{name}'`; if it never decided to commit, `rollback prepared '{name}'`."
        )
    return "jmsql has not prepared it: the program that did so is to finish it, and knows how."


def _extensions(runner: Runner) -> dict[str, Callable[[], Iterable[Finding]]]:
    """Return the checks that installed packages add, as Spark's."""
    return {each.name: partial(_of_extension, runner, each) for each in entry_points(group="jmsql.doctor")}


def _of_extension(runner: Runner, check: EntryPoint) -> Iterator[Finding]:
    make: Callable[[], Check] = check.load()
    remarks, otherwise = diagnosis.ask(runner, make())
    for remark in remarks[:_SHOWN]:
        yield _note(check.name, remark.says, remark.advice)
    if not remarks:
        yield _ok(check.name, otherwise)


def _writes(runner: Runner) -> Iterator[Finding]:
    writes = diagnosis.ask(runner, waiting_writes)
    late = [
        each
        for each in writes
        if each.seconds > _WRITE_ENDS or (each.messages >= _HIDDEN and each.seconds > _HIDDEN_SECONDS)
    ]
    for each in late[:_SHOWN]:
        name = each.write_id.replace("'", "''")
        yield _note(
            "writes",
            f"the write {each.write_id!r} of Spark has {counted(each.messages, 'message')} of "
            f"{counted(each.tasks, 'task')} that are hidden, the first for {_duration(each.seconds)}; consumers pass "
            "over them",
            "Leave it if its driver runs. If its query dies again and again, see why in its log. If that is gone, they "
            "are deleted after a day, or with the next batch of its query; within a minute after: "
            "`update jmsql_internal.pending_transaction set abandoned = true where "
            f"write_id = '{name}'`.",
        )
    if late:
        return
    if writes:
        hidden = counted(sum(each.messages for each in writes), "message")
        yield _ok(
            "writes",
            f"{counted(len(writes), 'write')} of Spark under way, with {hidden} that are hidden, the first for "
            f"{_duration(writes[0].seconds)}",
        )
    else:
        yield _ok("writes", "no write of Spark waits for its driver")


def _selectors(runner: Runner) -> Iterator[Finding]:
    indexes = diagnosis.ask(runner, selector_indexes())
    for index in indexes:
        if not index.valid:
            yield _problem(
                "selectors",
                f"the index {index.name} is not valid: its making broke off, and it costs each send something",
                f"Drop it: `drop index concurrently jmsql_internal.{quote_identifier(index.name)}`. Then make it again "
                "with `jmsql destination index QUEUE SELECTOR`.",
            )
    consumers = diagnosis.ask(runner, diagnosis.selective_consumers(_DEEP))
    slow = []
    for each in consumers:
        selector = diagnosis.recorded_selector(each.selector)
        if selector is None or serving(indexes, selector.indexable_expressions) is not None:
            continue
        slow.append(each)
        can_be_served = bool(selector.indexable_expressions)
        yield _note(
            "selectors",
            f"{counted(each.consumers, 'consumer')} of {each.queue!r} ({each.depth:,} messages) with the selector "
            f"{each.selector!r}, which no index serves",
            (
                "If few messages match: "
                f"`jmsql destination index {shlex.quote(each.queue)} {shlex.quote(each.selector)}`."
                if can_be_served
                else "No index can serve it. If few messages match, give them a queue of their own, or add to it a "
                "comparison by = with a property that they share."
            ),
        )
    if not slow and all(index.valid for index in indexes):
        yield _ok("selectors", "no consumer reads many messages that it does not receive")


def judge_unattended(queues: list[WaitingQueue], number: int | None = None) -> Iterator[Finding]:
    """Judge the queues that have messages and no consumer.

    Args:
        queues: The queues.
        number: How many there are, if these are the first of them.
    """
    if not queues:
        yield _ok("consumers", "every queue with messages has one, or is for letters")
        return
    names = ", ".join(_waiting(each.queue, each.ready, each.oldest_seconds) for each in queues[:_SHOWN])
    more = _more((len(queues) if number is None else number) - len(queues[:_SHOWN]))
    yield _note(
        "consumers",
        f"no consumer receives from {names}{more}",
        "Start what is to receive, or see who sends there. Programs that receive inside their own transactions, and "
        "those that open a consumer for less than a second, are not known.",
    )


def _subscriptions(runner: Runner) -> Iterator[Finding]:
    unread = diagnosis.ask(runner, diagnosis.unread_subscriptions)
    for each in unread[:_SHOWN]:
        name = each.name if each.client_id is None else f"{each.name} of {each.client_id}"
        forsaken = not each.was_read or (each.oldest_seconds or 0.0) > _UNREAD
        yield Finding(
            "subscriptions",
            Health.problem if forsaken else Health.note,
            f"no consumer reads the durable subscription {name!r} of {_waiting('topic://' + each.topic, *each[3:5])}"
            + ("" if each.was_read else ", and none ever did"),
            "Start its subscriber. If there is none any more, end it, with its messages: "
            f"`jmsql unsubscribe {shlex.quote(each.name)}"
            + ("`." if each.client_id is None else f" --client-id {shlex.quote(each.client_id)}`."),
        )
    if not unread:
        yield _ok("subscriptions", "every durable subscription with messages has a consumer")


def _schedules(runner: Runner, *, hides_statements: bool = False) -> Iterator[Finding]:
    found = diagnosis.ask(runner, diagnosis.schedules)
    failing = [each for each in found if each.last_error is not None and not each.paused]
    overdue = [each for each in found if each not in failing and (each.late or 0.0) > _OVERDUE]
    undeclared = [each for each in found if (each.undeclared or 0.0) > _UNDECLARED and not each.paused]
    for each in failing[:_SHOWN]:
        yield _problem(
            "schedules",
            f"the schedule {each.name!r} fails: {'hidden here' if hides_statements else _shortened(each.last_error)}",
            f"Mend that, and it is tried again. Or pause it: `jmsql schedule pause {shlex.quote(each.name)}`.",
        )
    if overdue:
        late = max(each.late or 0.0 for each in overdue)
        yield _problem(
            "schedules",
            f"{_named(overdue)}: no client has sent what is due, for {_duration(late)}",
            "Start a worker whose role administers the schema: such clients send what schedules have due.",
        )
    if undeclared:
        commands = "; ".join(f"`jmsql schedule delete {shlex.quote(each.name)} --yes`" for each in undeclared[:_SHOWN])
        since = min(each.undeclared or 0.0 for each in undeclared)
        yield _note(
            "schedules",
            f"{_named(undeclared)}: no worker has declared this for {_duration(since)}, and it still has ticks",
            f"Start its workers. If no release has it any more, pause or delete it: {commands}.",
        )
    if not (failing or overdue or undeclared):
        yield _ok("schedules", f"{counted(len(found), 'schedule')}, none late" if found else "there are none")


def _limits(runner: Runner) -> Finding:
    found = diagnosis.ask(runner, diagnosis.limits)
    met = [each for each in found if each.is_met]
    if not found:
        return _ok("limits", "no listener has one")
    if not met:
        return _ok("limits", f"{counted(len({each[:4] for each in found}), 'limit')}, none met")
    named = "; ".join(map(_limit, met[:_SHOWN]))
    return _ok("limits", f"messages wait for {named}{_more(len(met) - len(met[:_SHOWN]))}")


def _limit(limit: LimitFacts) -> str:
    most = f"{limit.most} in {limit.per:g} s" if limit.kind == "rate" else f"{limit.most} at a time"
    value = "" if limit.by is None else f" for {limit.by} {limit.value!r}"
    due = "" if limit.free_in is None or limit.free_in < 1 else f", until {_duration(limit.free_in)} from now"
    return f"{most} of {limit.destination!r}{value}{due}"


def _named(schedules: list[ScheduleFacts]) -> str:
    names = ", ".join(repr(each.name) for each in schedules[:_SHOWN])
    more = _more(len(schedules) - len(schedules[:_SHOWN]))
    return f"the schedule{'' if len(schedules) == 1 else 's'} {names}{more}"


def _unwanted(runner: Runner) -> Iterator[Finding]:
    left = [each for each in diagnosis.ask(runner, diagnosis.unmatched()) if each[1].unwanted]
    for queue, messages in left[:_SHOWN]:
        lasts = not messages.wanted or (messages.oldest_seconds or 0.0) > _UNREAD
        selectors = ", ".join(map(repr, queue.selectors[:_SHOWN])) + (", …" if len(queue.selectors) > _SHOWN else "")
        yield Finding(
            "unwanted",
            Health.problem if lasts else Health.note,
            f"{_number(messages.unwanted)} of {queue.name!r} match no selector of its consumers ({selectors}), the "
            f"oldest for {messages.oldest_seconds or 0.0:,.0f} s",
            f"`jmsql browse {shlex.quote(queue.name)}` shows the queue. Correct the selector, or start a consumer for "
            "the others.",
        )
    if not left:
        yield _ok("unwanted", "every message of a queue with selectors has a consumer that wants it")


def _failing(runner: Runner, most_rows: int | None = None) -> Iterator[Finding]:
    destinations = diagnosis.ask(runner, diagnosis.failing(most_rows))
    if not destinations:
        yield _ok("redelivery", "no message has failed and waits to be delivered again")
        return
    for each in destinations[:_SHOWN]:
        waiting = ""
        if each.waiting:
            until = "" if each.seconds is None else f", the last for {each.seconds:,.0f} s"
            waiting = f"; {each.waiting:,} of them {'waits' if each.waiting == 1 else 'wait'}{until}"
        yield _note(
            "redelivery",
            f"{counted(each.messages, 'message')} of {each.destination!r} failed up to "
            f"{counted(each.most_errors, 'time')}{waiting}",
            "The log of the program that receives them says why, and so does "
            "`select message_id, last_error from jmsql.messages where last_error is not null`. "
            + _end_of_failing(each),
        )


def _end_of_failing(failing: FailingDestination) -> str:
    if failing.maximum_deliveries is not None and failing.has_maximum:
        return f"They move to the dead-letter queue when delivery {failing.maximum_deliveries} has failed."
    command = f"jmsql destination set {shlex.quote(failing.destination)} --maximum-deliveries {failing.most_errors + 1}"
    return (
        "Their consumer's policy says when they move to the dead-letter queue; without a policy, after 20 failures and "
        f"about a day. To set the destination's: `{command}`."
    )


def _dead_letters(runner: Runner) -> Iterator[Finding]:
    queues = diagnosis.ask(runner, diagnosis.dead_letters)
    if not queues:
        yield _ok("dead letters", "there are none")
        return
    letters = (
        f"{counted(each.ready, 'message')} in {each.queue!r}, the oldest for {each.oldest_seconds or 0.0:,.0f} s"
        for each in queues[:_SHOWN]
    )
    recent = diagnosis.ask(runner, incidents_in(each.queue for each in queues[:_SHOWN]))
    yield _note(
        "dead letters",
        "; ".join([*(each.says for each in recent[:_SHOWN]), *letters]),
        "`select * from jmsql.dead_letters` says why. When the cause is fixed, `jmsql retry` sends them back.",
    )


def _more(number: int) -> str:
    return f" and {number:,} more" if number > 0 else ""


def _at_least(messages: int, most: int | None) -> str:
    return f"{messages:,} messages or more" if messages == most else counted(messages, "message")


def _number(messages: int) -> str:
    return "1,000 messages or more" if messages >= _DEEP else counted(messages, "message")


def _duration(seconds: float) -> str:
    if seconds < 2 * 60:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 3600:,.0f} hours" if seconds >= 2 * 3600 else f"{seconds / 60:,.0f} minutes"


def _waiting(queue: str, ready: int, seconds: float | None) -> str:
    return f"{queue!r} ({_number(ready)}" + (")" if seconds is None else f", the oldest for {seconds:,.0f} s)")


def _shortened(query: str | None) -> str:
    """Return a statement in one line that is not long."""
    text = " ".join((query or "").split())
    return f"{text[:_QUERY_LENGTH]}{'…' if len(text) > _QUERY_LENGTH else ''}"
