"""Judges the facts of `store.administration.diagnosis`: what is well, what is worth knowing, what must be put right."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from jmsql.cli.doctor.finding import Finding, Health, shortened
from jmsql.cli.doctor.message_health import (
    Thresholds,
    examine_clock,
    examine_messages,
    finishing_advice,
)
from jmsql.cli.terminal.output import counted
from jmsql.store.administration import diagnosis, inspection
from jmsql.store.administration.diagnosis import MessageTable, ServerFacts, SnapshotHolder
from jmsql.store.runners._sync.runner import AutocommitRunner
from jmsql.store.schema.version import current_version, newest_version

__all__ = ["examine"]

_SLOW_NOTIFICATION = 1.0
_LOST_NOTIFICATION = 3.0
_FULL_NOTIFICATIONS = 0.5
_MANY_DEAD_ROWS = 100_000
_AUTOVACUUM_IS_LATE = timedelta(minutes=5)


def examine(runner: AutocommitRunner, thresholds: Thresholds) -> Iterator[Finding]:
    """Examine the store; if the schema cannot be worked with, nothing that needs it.

    Args:
        runner: Asks for the facts.
        thresholds: How long things may take.
    """
    server = runner.run(diagnosis.server)
    yield _server(server)
    yield _durability(server)
    yield examine_clock(runner)
    schema = _schema(runner)
    yield schema
    if schema.health is not Health.problem:
        yield _clients(runner)
        yield _maintenance(runner)
        yield from examine_messages(runner, thresholds)
    yield _pooler(runner.is_pooled)
    yield _notifications(runner)
    yield _autovacuum(server)
    in_doubt = runner.run(diagnosis.prepared_transactions) if schema.health is not Health.problem else []
    finishing = {each.identifier: finishing_advice(each) for each in in_doubt}
    yield from _vacuum(runner, server, thresholds.oldest_snapshot, finishing)
    if schema.health is not Health.problem:
        for table in runner.run(diagnosis.tables):
            yield _table(table)
        yield _plans(runner.run(diagnosis.tables_without_pages))


def _server(server: ServerFacts) -> Finding:
    name = f"PostgreSQL {server.version}, database {server.database!r}"
    if server.in_recovery:
        return Finding("server", Health.problem, f"{name}: a standby, which is read-only", "Connect to the primary.")
    if server.encoding != "UTF8":
        return Finding(
            "server",
            Health.problem,
            f"{name}, in the encoding {server.encoding}, which cannot hold every text",
            "Use a database that was created with the encoding UTF8.",
        )
    return Finding("server", Health.ok, name)


def _durability(server: ServerFacts) -> Finding:
    settings = {
        "fsync": server.fsync,
        "full_page_writes": server.full_page_writes,
        "synchronous_commit": server.synchronous_commit != "off",
    }
    off = ", ".join(f"{name} = off" for name, is_on in settings.items() if not is_on)
    if off:
        return Finding(
            "durability",
            Health.note,
            f"{off}: a crash of the server may lose committed messages, PERSISTENT ones too",
            "Leave it so only where messages may be lost, as in tests.",
        )
    return Finding("durability", Health.ok, "what is committed survives a crash of the server")


def _schema(runner: AutocommitRunner) -> Finding:
    found, wanted = runner.run(current_version(runner.schema)), newest_version()
    if found == wanted:
        return Finding("schema", Health.ok, f"version {found}")
    if found is None:
        return Finding("schema", Health.problem, "it is not there", "Run `jmsql migrate`.")
    ahead = int(found) - int(wanted)
    health = Health.note if abs(ahead) == 1 and int(found) > 0 else Health.problem
    if ahead < 0:
        return Finding("schema", health, f"version {found}; that of this release is {wanted}", "Run `jmsql migrate`.")
    return Finding(
        "schema",
        health,
        f"version {found}, made by a newer release; that of this one is {wanted}",
        "Upgrade jmsql.",
    )


def _clients(runner: AutocommitRunner) -> Finding:
    clients = runner.run(inspection.clients)
    gone = [client for client in clients if not client.connected]
    alive = f"{len(clients) - len(gone)} connected"
    if not gone:
        return Finding("clients", Health.ok, alive)
    claimed = sum(client.claimed for client in gone)
    processes = ", ".join(f"{client.process_id} on {client.host}" for client in gone[:3])
    return Finding(
        "clients",
        Health.note,
        f"{alive}; {len(gone)} gone without a word (process {processes}), holding {counted(claimed, 'message')}",
        "The next maintenance forgets them, and takes back what they hold. Any connected client does it, within "
        "seconds.",
    )


def _maintenance(runner: AutocommitRunner) -> Finding:
    maintenance = runner.run(diagnosis.maintenance)
    if maintenance.expired:
        return Finding(
            "maintenance",
            Health.problem if maintenance.led else Health.note,
            f"{counted(maintenance.expired, 'message')} expired more than a minute ago, and nobody has removed them",
            "A client that is connected removes them."
            if not maintenance.led
            else "A client is to remove them: look into its log, and into what it waits for (`pg_stat_activity`).",
        )
    return Finding("maintenance", Health.ok, "a client does it" if maintenance.led else "nothing waits for it")


def _pooler(is_pooled: bool) -> Finding:
    if is_pooled:
        return Finding(
            "pooler",
            Health.note,
            "this URL leads through one, such as PgBouncer: LISTEN and locks of sessions do not work there",
            "Clients work through it, and hear of messages late. Give them a control_url, or JMSQL_CONTROL_URL, that "
            "goes past it.",
        )
    return Finding("pooler", Health.ok, "none between here and the server")


def _notifications(runner: AutocommitRunner) -> Finding:
    usage = runner.run(diagnosis.notification_queue_usage)
    if usage > _FULL_NOTIFICATIONS:
        return Finding(
            "notifications",
            Health.problem,
            f"the server's queue of notifications is {usage:.0%} full; when it is full, commits fail",
            "End the oldest transaction of a session that listens: see `pg_stat_activity`.",
        )
    if runner.is_pooled:
        return Finding("notifications", Health.ok, f"the server's queue of them is {usage:.0%} full")
    delay = diagnosis.notification_delay(runner, _LOST_NOTIFICATION)
    if delay is None:
        return Finding(
            "notifications",
            Health.problem,
            f"none came within {_LOST_NOTIFICATION:g} s, so that consumers hear of messages only when they look again",
            "A pooler in transaction mode breaks LISTEN: give ConnectionFactory a control_url that goes around it.",
        )
    says = f"{delay * 1000:.1f} ms from NOTIFY to LISTEN"
    if delay > _SLOW_NOTIFICATION:
        return Finding("notifications", Health.note, says, "The server, or the way to it, is slow.")
    return Finding("notifications", Health.ok, says)


def _autovacuum(server: ServerFacts) -> Finding:
    if not server.autovacuum:
        return Finding(
            "autovacuum",
            Health.problem,
            "it is off, so that dead rows stay and receiving gets slower and slower",
            "Set autovacuum = on and track_counts = on.",
        )
    return Finding("autovacuum", Health.ok, f"on, looking around every {server.autovacuum_naptime}")


def _vacuum(
    runner: AutocommitRunner, server: ServerFacts, oldest_snapshot: float, finishing: dict[str, str]
) -> Iterator[Finding]:
    if not server.sees_all_sessions:
        yield Finding(
            "vacuum",
            Health.note,
            "this role does not see the sessions of others, which may hold vacuum back",
            "Grant it the role pg_read_all_stats.",
        )
    holders = runner.run(diagnosis.snapshot_holders)
    late = [holder for holder in holders if holder.seconds is None or holder.seconds > oldest_snapshot]
    for holder in late:
        yield Finding("vacuum", Health.problem, _held_back_by(holder), _release_advice(holder, finishing))
    if not late:
        oldest = max((holder.seconds for holder in holders if holder.seconds is not None), default=None)
        says = "nothing holds it back" if oldest is None else f"the oldest snapshot is {oldest:.1f} s old"
        yield Finding("vacuum", Health.ok, says)


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
        doing += f": {shortened(holder.query)}"
    return f"held back for {how_long} by the {who}{doing}"


def _release_advice(holder: SnapshotHolder, finishing: dict[str, str]) -> str:
    match holder.kind:
        case "session":
            return (
                f"Commit there, or end it: select pg_terminate_backend({holder.process_id}). "
                "idle_in_transaction_session_timeout prevents it."
            )
        case "replication slot":
            return f"Let its reader catch up, or drop it: select pg_drop_replication_slot('{holder.name}')."
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
        return Finding(
            check, Health.problem, says, f"Turn autovacuum on: alter table {table.table} reset (autovacuum_enabled)."
        )
    is_late = table.last_autovacuum is None or datetime.now(UTC) - table.last_autovacuum > _AUTOVACUUM_IS_LATE
    if table.dead_rows > _MANY_DEAD_ROWS and is_late:
        return Finding(
            check,
            Health.problem,
            says,
            "Autovacuum does not come by. See what holds it back above; else it has too few workers, "
            "or autovacuum_naptime is too long.",
        )
    return Finding(check, Health.ok, says)


def _plans(tables: list[str]) -> Finding:
    if tables:
        return Finding(
            "plans",
            Health.note,
            f"{' and '.join(tables)}: fewer pages than plans are to count with, as after VACUUM FULL, CLUSTER or a "
            "restored dump, or when an index has grown; receiving may read the whole table for each message",
            "A client that does the maintenance adds them within 10 seconds; without one: select "
            "jmsql_internal.restore_pages(). An index that is large though there are few messages becomes small with "
            "REINDEX INDEX CONCURRENTLY.",
        )
    return Finding("plans", Health.ok, "statements find messages by the key")
