"""Which process runs which tests (pytest-xdist): what takes long first, and what shares much together."""

from __future__ import annotations

import os

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

IN_ONE_PROCESS = {
    "Chromium": (
        "tests/console/test_browser.py",
        "tests/console/test_documentation_site.py",
        "tests/console/test_incident.py",
        "tests/console/test_levels.py",
    ),
    "the session of Spark": (
        "tests/spark/archive/test_archive.py",
        "tests/spark/connecting/test_secrets.py",
        "tests/spark/data_source/",
        "tests/spark/faults/test_faults.py::test_driver_is_killed_at_each_step_of_a_batch",
        "tests/spark/faults/test_faults.py::test_later_of_two_drivers_stops_the_earlier_and_nothing_is_sent_twice",
        "tests/spark/faults/test_faults.py::test_server_crashes",
        "tests/spark/faults/test_faults.py::test_task_that_dies",
        "tests/spark/test_",
    ),
}
"""What each process starts that runs a test which needs it, and the tests that do: one process runs them all, so that
it starts once."""

LONGEST = (
    "tests/spark/faults/test_faults.py::test_executors_are_killed_and_slow_ones_are_overtaken",
    # They need nothing of Spark, for which the first process makes the archive of classes meanwhile.
    *IN_ONE_PROCESS["Chromium"],
    "tests/integration/test_supported_versions.py",
    "tests/integration/benchmarks/test_worker_peers.py::test_a_run",
    "tests/faults/test_failover.py",
    *IN_ONE_PROCESS["the session of Spark"],
    "tests/faults/",
    "tests/examples/test_flights.py",
    "tests/integration/spark/test_statistics_report.py",
    "tests/spark/",
    "tests/integration/testing/test_same_results.py",
    "tests/integration/django/test_storm.py",
    "tests/integration/worker/test_timeouts.py",
    "tests/integration/worker/test_replies.py",
    "tests/integration/test_projects_of_pages.py",
    "tests/integration/access/test_traps.py",
    "tests/integration/administration/test_access.py",
)
"""What begins first, in this order, so that no process works alone at the end."""

SHORTEST = (
    "tests/integration/asynchronous_send/",
    "tests/integration/cli/",
    "tests/integration/groups/",
    "tests/integration/history/",
)
"""The tests that come last, one short test at a time, so that all processes end at the same time.

In between, tests of workers, which mostly wait, are mixed with those that compute.
"""

TOGETHER = (
    "tests/compliance/",
    "tests/faults/test_silence.py",
    "tests/integration/access/test_privileges.py",
    "tests/integration/access/test_traps.py",
    "tests/integration/administration/test_access.py",
    "tests/examples/test_flights.py",
    "tests/integration/cli/test_refusals.py",
    "tests/integration/client/interfaces/test_arguments.py",
    "tests/integration/client/interfaces/test_browser.py",
    "tests/integration/client/connections/test_connection_consumer.py",
    "tests/integration/client/delivery/test_delivery_order.py",
    "tests/integration/client/messages/test_edge_values.py",
    "tests/integration/client/failures/test_errors.py",
    "tests/integration/client/delivery/test_listeners.py",
    "tests/integration/client/delivery/test_prefetch.py",
    "tests/integration/client/interfaces/test_point_to_point.py",
    "tests/integration/client/interfaces/test_producer.py",
    "tests/integration/client/test_walk.py",
    "tests/integration/enlistment/test_transactions.py",
    "tests/integration/groups/test_exclusivity.py",
    "tests/integration/metrics/test_deployment.py",
    "tests/integration/pooler/test_sharing.py",
    "tests/integration/spark/test_replica.py",
    "tests/integration/spark/test_statistics_report.py",
    "tests/integration/store/test_looks.py",
    "tests/integration/store/test_plans.py",
    "tests/integration/testing/test_same_results.py",
    "tests/integration/topics/test_fan_out.py",
    "tests/integration/topics/test_plans.py",
    "tests/integration/topics/test_transactions.py",
    "tests/unit/",
)
"""Files, and directories of files, each of whose tests share what takes long to make; or are so many and so short that
to give them out one by one takes as long as to run them."""


class LongestFirst(LoadScopeScheduling):  # type: ignore[misc] # xdist comes without types
    """Gives tests to the next process that is free, what takes longest first.

    Each by itself, but for those of a file of `TOGETHER`, and for those that `IN_ONE_PROCESS` names.
    """

    def _split_scope(self, nodeid: str) -> str:
        for needed, tests in IN_ONE_PROCESS.items():
            if nodeid.startswith(tests):
                return needed
        return nodeid.partition("::")[0] if nodeid.startswith(TOGETHER) else nodeid

    def _pending_of(self, workload: dict[str, dict[str, bool]]) -> int:
        """Count the tests that a process has yet to run, and forget those that it has.

        It is asked after each message of each process: to go through all that has run each time would take as long as
        some hundred tests.
        """
        for scope in [scope for scope, tests in workload.items() if all(tests.values())]:
            del workload[scope]
        return int(super()._pending_of(workload))


def _turn(item: pytest.Item) -> int:
    if item.nodeid.startswith(SHORTEST):
        return len(LONGEST) + 1
    return next((turn for turn, name in enumerate(LONGEST) if item.nodeid.startswith(name)), len(LONGEST))


def pytest_xdist_auto_num_workers() -> int:
    """Use three more processes than there are processors: tests wait for more than a third of their time."""
    processors = os.cpu_count() or 1
    return min(3 * processors, processors + 3)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items.sort(key=_turn)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LongestFirst:
    config.option.loadscopereorder = False
    return LongestFirst(config, log)
