"""Series of metrics, and the alert that fires with them, if any."""

from __future__ import annotations

from typing import NamedTuple


class AlertCase(NamedTuple):
    """Series from the first minute on, and what an alert says after some minutes; None: it does not fire.

    Series are in promtool's notation, of which `100x60` is one value for an hour at a scrape a minute.
    """

    alert: str
    says: str | None
    series: dict[str, str]
    labels: dict[str, str] | None = None
    minutes: int = 20


STORE = 'job="jmsql-store",instance="a:9187"'
OTHER = 'job="jmsql-store",instance="b:9187"'
WORKER = 'job="jmsql-worker",instance="w:8080"'
OF_STORE = {"job": "jmsql-store", "instance": "a:9187"}
OF_WORKER = {"job": "jmsql-worker", "instance": "w:8080"}

ORDERS = f'{STORE},kind="queue",destination="orders"'
OF_ORDERS = OF_STORE | {"kind": "queue", "destination": "orders"}
AUDIT = f'{STORE},kind="subscription",destination="prices",subscription="audit",client_id="office"'
OF_AUDIT = OF_STORE | {"kind": "subscription", "destination": "prices", "subscription": "audit", "client_id": "office"}
LETTERS = f'{STORE},kind="queue",destination="failed"'
SAME_NAME = f'{STORE},kind="subscription",destination="failed",subscription="audit"'
OF_SAME_NAME = OF_STORE | {"kind": "subscription", "destination": "failed", "subscription": "audit"}


def waiting(labels: str, age: str = "301+60x60", ready: str = "12x60", consumers: str = "2x60") -> dict[str, str]:
    """Return the series of a queue or subscription where messages wait."""
    return {
        f"jmsql_oldest_message_age_seconds{{{labels}}}": age,
        f'jmsql_messages{{{labels},state="ready"}}': ready,
        f'jmsql_messages{{{labels},state="claimed"}}': "0x60",
        f"jmsql_consumers{{{labels}}}": consumers,
    }


def redelivered(redeliveries: str, acknowledged: str) -> dict[str, str]:
    """Return the series of a queue with deliveries, some of which are repeated."""
    return {
        f"jmsql_redeliveries_total{{{ORDERS}}}": redeliveries,
        f'jmsql_deliveries_total{{{ORDERS},outcome="acknowledged"}}': acknowledged,
        f'jmsql_deliveries_total{{{ORDERS},outcome="rolled_back"}}': redeliveries,
    }


def rows(dead: str, live: str) -> dict[str, str]:
    """Return the series of a table, and those of a small one."""
    return {
        f'jmsql_table_rows{{{STORE},table="message",state="dead"}}': dead,
        f'jmsql_table_rows{{{STORE},table="message",state="live"}}': live,
        f'jmsql_table_rows{{{STORE},table="delivery",state="dead"}}': "10x60",
        f'jmsql_table_rows{{{STORE},table="delivery",state="live"}}': "0x60",
        f'jmsql_table_rows{{{OTHER},table="message",state="dead"}}': "10x60",
        f'jmsql_table_rows{{{OTHER},table="message",state="live"}}': "0x60",
    }


def calls(failed: str, handled: str) -> dict[str, str]:
    """Return the series of a listener in two workers."""
    second = WORKER.replace("w:", "v:")
    return {
        f'jmsql_worker_messages_total{{{WORKER},listener="app.ship",outcome="failed"}}': failed,
        f'jmsql_worker_messages_total{{{WORKER},listener="app.ship",outcome="handled"}}': handled,
        f'jmsql_worker_messages_total{{{second},listener="app.ship",outcome="failed"}}': "0x60",
        f'jmsql_worker_messages_total{{{second},listener="app.ship",outcome="handled"}}': "0+10x60",
    }


def one(metric: str, values: str, labels: str = STORE) -> dict[str, str]:
    """Return a single series."""
    return {f"{metric}{{{labels}}}": values}


UP = one("jmsql_database_up", "1x60")
CASES = [
    AlertCase("JmsqlNotScraped", None, UP | one("up", "1x60") | one("up", "0x60", 'job="shop",instance="x"')),
    AlertCase(
        "JmsqlNotScraped",
        "Prometheus has no metrics from a:9187: other alerts cannot fire.",
        one("jmsql_database_up", "1x5 _x60") | one("jmsql_database_up", "1x60", OTHER) | one("up", "1x5 0x60"),
        OF_STORE,
    ),
    AlertCase(
        "JmsqlNotScraped",
        "Prometheus has no metrics from w:8080: other alerts cannot fire.",
        UP | one("up", "1x5 0x60", WORKER),
        OF_WORKER,
    ),
    AlertCase("JmsqlNotScraped", "Prometheus has no metrics from any jmsql metrics: other alerts cannot fire.", {}),
    AlertCase("JmsqlDatabaseDown", None, UP),
    AlertCase("JmsqlDatabaseDown", None, one("jmsql_database_up", "1x18 0 1x60")),
    AlertCase(
        "JmsqlDatabaseDown",
        "The database does not answer, tables of the store are locked, or the schema is not of this version.",
        one("jmsql_database_up", "1x5 0x60") | one("jmsql_database_up", "1x60", OTHER),
        OF_STORE,
    ),
    AlertCase("JmsqlDestinationsLeftOut", None, one("jmsql_destinations_complete", "1x60")),
    AlertCase(
        "JmsqlDestinationsLeftOut",
        "Some destinations have no metrics, so no alert watches them. Raise --max-destinations of jmsql metrics.",
        one("jmsql_destinations_complete", "1x3 0x60"),
        OF_STORE,
    ),
    AlertCase("JmsqlOldMessages", None, waiting(ORDERS, age="20x60")),
    AlertCase("JmsqlOldMessages", None, waiting(ORDERS, ready="0x60")),
    AlertCase(
        "JmsqlOldMessages",
        "Messages of orders have waited for 25m 1s.",
        waiting(ORDERS) | waiting(ORDERS.replace("a:", "b:"), age="0x60"),
        OF_ORDERS,
    ),
    AlertCase("JmsqlOldMessages", "Messages of prices (audit) have waited for 25m 1s.", waiting(AUDIT), OF_AUDIT),
    AlertCase(
        "JmsqlOldMessages", None, waiting(LETTERS) | one("jmsql_dead_letters", "12x60", f'{STORE},destination="failed"')
    ),
    AlertCase(
        "JmsqlOldMessages",
        "Messages of failed (audit) have waited for 25m 1s.",
        waiting(LETTERS) | waiting(SAME_NAME) | one("jmsql_dead_letters", "12x60", f'{STORE},destination="failed"'),
        OF_SAME_NAME,
    ),
    AlertCase("JmsqlNoConsumers", None, waiting(ORDERS)),
    AlertCase("JmsqlNoConsumers", None, waiting(ORDERS, ready="0x60", consumers="0x60")),
    AlertCase(
        "JmsqlNoConsumers",
        None,
        waiting(LETTERS, consumers="0x60") | one("jmsql_dead_letters", "0x60", f'{STORE},destination="failed"'),
    ),
    AlertCase(
        "JmsqlNoConsumers",
        "At least 12 messages are in orders, and no consumer receives them.",
        waiting(ORDERS, consumers="2x5 0x60") | waiting(LETTERS),
        OF_ORDERS | {"state": "ready"},
    ),
    AlertCase(
        "JmsqlNoConsumers",
        "At least 12 messages are in prices (audit), and no consumer receives them.",
        waiting(AUDIT, consumers="0x60"),
        OF_AUDIT | {"state": "ready"},
    ),
    AlertCase(
        "JmsqlDeadLetters",
        None,
        one("jmsql_newest_dead_letter_age_seconds", "86400+60x60", f'{STORE},destination="DLQ"')
        | one("jmsql_dead_letters", "1x60", f'{STORE},destination="DLQ"'),
    ),
    AlertCase(
        "JmsqlDeadLetters",
        "New dead letters in DLQ: jmsql dead-letters says why, and jmsql retry sends them back.",
        one("jmsql_newest_dead_letter_age_seconds", "_x17 20+60x60", f'{STORE},destination="DLQ"'),
        OF_STORE | {"destination": "DLQ"},
    ),
    AlertCase(
        "JmsqlDeadLetters",
        "New dead letters in DLQ: jmsql dead-letters says why, and jmsql retry sends them back.",
        one("jmsql_newest_dead_letter_age_seconds", "86400+60x17 20+60x60", f'{STORE},destination="DLQ"')
        | one("jmsql_dead_letters", "1000x60", f'{STORE},destination="DLQ"'),
        OF_STORE | {"destination": "DLQ"},
    ),
    AlertCase("JmsqlManyRedeliveries", None, redelivered("0+1x60", "0+100x60")),
    AlertCase("JmsqlManyRedeliveries", None, redelivered("5x60", "5x60")),
    AlertCase(
        "JmsqlManyRedeliveries",
        "More than a tenth of the deliveries of orders are not the first of their message.",
        redelivered("0+20x60", "0+100x60"),
        OF_ORDERS,
    ),
    AlertCase("JmsqlLongTransaction", None, one("jmsql_longest_holding_transaction_seconds", "60x60")),
    AlertCase(
        "JmsqlLongTransaction",
        "A transaction has held messages for 20m 0s: jmsql doctor names it.",
        one("jmsql_longest_holding_transaction_seconds", "0+60x60"),
        OF_STORE,
    ),
    AlertCase("JmsqlLongClaim", None, one("jmsql_oldest_claim_age_seconds", "60x60", ORDERS)),
    AlertCase(
        "JmsqlLongClaim",
        "A client has held a message of prices (audit) for 20m 0s: jmsql doctor names it.",
        one("jmsql_oldest_claim_age_seconds", "0+60x60", AUDIT),
        OF_AUDIT,
    ),
    AlertCase("JmsqlTransactionInDoubt", None, one("jmsql_longest_prepared_transaction_seconds", "60x60")),
    AlertCase(
        "JmsqlTransactionInDoubt",
        "A prepared transaction has waited for 20m 0s: jmsql doctor names it.",
        one("jmsql_longest_prepared_transaction_seconds", "0+60x60"),
        OF_STORE,
    ),
    AlertCase("JmsqlClientsGone", None, one("jmsql_clients", "5x60", f'{STORE},state="connected"')),
    AlertCase("JmsqlClientsGone", None, one("jmsql_clients", "0x18 1x1 0x60", f'{STORE},state="gone"')),
    AlertCase(
        "JmsqlClientsGone",
        "Clients have gone without a word, and no client does the maintenance that forgets them.",
        one("jmsql_clients", "0x5 1x60", f'{STORE},state="gone"'),
        OF_STORE | {"state": "gone"},
    ),
    AlertCase("JmsqlMaintenanceIsLate", None, one("jmsql_overdue_messages", "0x19 3 0x60")),
    AlertCase(
        "JmsqlMaintenanceIsLate",
        "Delayed messages are overdue: no connected client moves them to their queues. jmsql doctor says why.",
        one("jmsql_overdue_messages", "0x5 1x60"),
        OF_STORE,
    ),
    AlertCase("JmsqlNotificationQueue", None, one("jmsql_notification_queue_usage_ratio", "0.2x60")),
    AlertCase(
        "JmsqlNotificationQueue",
        "PostgreSQL's queue of notifications fills up; when it is full, commits fail.",
        one("jmsql_notification_queue_usage_ratio", "0+0.03x60"),
        OF_STORE,
    ),
    AlertCase("JmsqlDeadRows", None, rows("900000x60", "0x60")),
    AlertCase("JmsqlDeadRows", None, rows("2000000x60", "1500000x60")),
    AlertCase(
        "JmsqlDeadRows",
        "Vacuum does not keep up with the table message: jmsql doctor says who holds it back.",
        rows("2000000x60", "900000x60"),
        OF_STORE | {"table": "message", "state": "dead"},
    ),
    AlertCase("JmsqlWorkerFailures", None, calls("0+1x60", "0+100x60")),
    AlertCase("JmsqlWorkerFailures", None, calls("7x60", "9x60")),
    AlertCase(
        "JmsqlWorkerFailures",
        "More than one in twenty calls of app.ship fail.",
        calls("0+10x60", "0+100x60"),
        {"job": "jmsql-worker", "listener": "app.ship"},
    ),
    AlertCase("JmsqlWorkerRestarts", None, one("jmsql_worker_restarts_total", "0x10 2x60", WORKER)),
    AlertCase(
        "JmsqlWorkerRestarts",
        "Processes of the worker w:8080 die again and again.",
        one("jmsql_worker_restarts_total", "0+1x60", WORKER),
        OF_WORKER,
    ),
    AlertCase("JmsqlWorkerNotReady", None, one("jmsql_worker_processes", "4x60", f'{WORKER},state="ready"')),
    AlertCase(
        "JmsqlWorkerNotReady",
        "The worker w:8080 has no process that receives messages.",
        one("jmsql_worker_processes", "4x5 0x60", f'{WORKER},state="ready"')
        | one("jmsql_worker_processes", "4x60", f'{WORKER},state="starting"'),
        OF_WORKER | {"state": "ready"},
    ),
]
