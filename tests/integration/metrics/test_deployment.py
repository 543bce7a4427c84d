"""What `deploy/` and docker-compose.yml say fits together, and names metrics that there are."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from jmsql.cli.commands import load_command
from jmsql.metrics import StoreCollector
from jmsql.store.control.counters import Counts
from jmsql.worker.metrics import Totals, WorkerMetrics, exposition
from jmsql.worker.reports import HandlerCounters, Progress
from tests.integration.metrics.alert_cases import CASES, ORDERS
from tests.integration.metrics.dead_letters import insert_letters

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
METRIC = re.compile(r"\bjmsql_(?!internal\b)[a-z_]+")
LABELS = re.compile(r"\b(jmsql_[a-z_]+)\{([^}]*)\}")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return dict(yaml.safe_load((ROOT / "docker-compose.yml").read_text()))


@pytest.fixture
def exported(jmsql_clean_url: str) -> dict[str, set[str]]:
    """The names of all samples that are exported, with the names of their labels."""
    insert_letters(jmsql_clean_url, 1, seconds_ago=0)
    collector = StoreCollector(jmsql_clean_url)
    registry = CollectorRegistry()
    registry.register(collector)
    totals = Totals()
    totals.add(
        Progress(handler_counters={"handle": HandlerCounters()}, destination_counters={"queue://orders": Counts()})
    )
    worker = exposition(lambda: WorkerMetrics(totals, {"ready": 1}, 0, {"messages": 0, "memory": 0}, 0, 0.0))
    try:
        text = generate_latest(registry) + worker
    finally:
        collector.close()
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text.decode()):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def expressions_of_dashboard() -> Iterator[str]:
    dashboard = json.loads((DEPLOY / "grafana" / "dashboards" / "jmsql.json").read_text())
    for panel in dashboard["panels"]:
        assert panel["title"]
        for target in panel["targets"]:
            yield target["expr"]
    for variable in dashboard["templating"]["list"]:
        yield variable.get("definition", "")


def expressions_of_alerts() -> Iterator[str]:
    for group in yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())["groups"]:
        for rule in group["rules"]:
            assert rule["annotations"]["summary"].endswith((".", "}}."))
            assert rule["labels"]["severity"] in {"warning", "critical"}
            yield rule["expr"]


@pytest.mark.parametrize("expressions", [expressions_of_dashboard, expressions_of_alerts])
def test_each_expression_names_metrics_and_labels_that_are_exported(
    exported: dict[str, set[str]], expressions: Any
) -> None:
    found = list(expressions())
    assert len(found) > 10
    for expression in found:
        for name in METRIC.findall(expression):
            assert name in exported, expression
        for name, matchers in LABELS.findall(expression):
            for label in re.findall(r"(\w+)\s*[!=]~?", matchers):
                assert label in exported[name], expression


def promtool(*arguments: str) -> None:
    """Run Prometheus's own checks, which must succeed."""
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not installed (Debian: apt-get install prometheus)")
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_takes_the_configuration_with_its_alerts() -> None:
    promtool("check", "config", str(DEPLOY / "prometheus" / "prometheus.yml"))


def test_prometheus_parses_the_expressions_of_the_dashboard(tmp_path: Path) -> None:
    expressions = [each for each in expressions_of_dashboard() if each and not each.startswith("label_values(")]
    rules = [
        {"record": f"panel_{number}", "expr": each.replace("$__rate_interval", "1m").replace("$destination", "orders")}
        for number, each in enumerate(expressions)
    ]
    file = tmp_path / "rules.yml"
    file.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", str(file))


def test_panels_of_times_show_means_by_destination(tmp_path: Path) -> None:
    series, panels = [], []
    expressions = [each for each in expressions_of_dashboard() if re.search(r"_seconds_sum\{", each)]
    for number, name in enumerate(("jmsql_time_in_queue_seconds", "jmsql_handling_time_seconds")):
        # Two queues of the name in two stores: 60 messages a minute of 1.5 s, and 30 a minute of 3 s.
        for labels, seconds, messages in ((ORDERS, 90, 60), (ORDERS.replace("a:9187", "b:9187"), 90, 30)):
            series.append({"series": f"{name}_sum{{{labels}}}", "values": f"0+{seconds}x60"})
            series.append({"series": f"{name}_count{{{labels}}}", "values": f"0+{messages}x60"})
        [panel] = [each for each in expressions if name in each]
        expr = panel.replace("$__rate_interval", "5m").replace("$destination", "orders")
        panels.append(
            {
                "expr": expr,
                "eval_time": f"{20 + number}m",
                "exp_samples": [{"labels": '{destination="orders"}', "value": 2}],
            }
        )
    file = tmp_path / "tests.yml"
    file.write_text(json.dumps({"tests": [{"interval": "1m", "input_series": series, "promql_expr_test": panels}]}))
    promtool("test", "rules", str(file))


def test_each_alert_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    rules = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yml").read_text())["groups"][0]["rules"]
    severities = {rule["alert"]: rule["labels"]["severity"] for rule in rules}
    for fires in (True, False):
        assert severities.keys() == {case.alert for case in CASES if (case.says is not None) is fires}
    tests = [
        {
            "name": f"{case.alert}: {case.says}",
            "interval": "1m",
            "input_series": [{"series": series, "values": values} for series, values in case.series.items()],
            "alert_rule_test": [
                {
                    "alertname": case.alert,
                    "eval_time": f"{case.minutes}m",
                    "exp_alerts": []
                    if case.says is None
                    else [
                        {
                            "exp_labels": (case.labels or {}) | {"severity": severities[case.alert]},
                            "exp_annotations": {"summary": case.says},
                        }
                    ],
                }
            ],
        }
        for case in CASES
    ]
    file = tmp_path / "tests.yml"
    file.write_text(json.dumps({"rule_files": [str(DEPLOY / "prometheus" / "alerts.yml")], "tests": tests}))
    promtool("test", "rules", str(file))


def test_the_series_that_alerts_are_tested_with_are_exported(exported: dict[str, set[str]]) -> None:
    for case in CASES:
        for series in case.series:
            name, _, matchers = series.partition("{")
            if name != "up":
                assert set(re.findall(r"(\w+)=", matchers)) <= exported[name] | {"job", "instance"}, series


def test_each_metric_is_on_the_dashboard(exported: dict[str, set[str]]) -> None:
    shown = {name for expression in expressions_of_dashboard() for name in METRIC.findall(expression)}
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in exported}
    assert families - {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown} == set()


def test_the_page_about_metrics_names_each_metric_and_its_labels(exported: dict[str, set[str]]) -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    families = {re.sub(r"_(bucket|sum|count)$", "", name) for name in exported}
    named = dict(re.findall(r"`(jmsql_\w+[a-z])(?:\{([^}]*)\})?`", page))
    assert named.keys() == families
    for name, labels in named.items():
        assert set(labels.replace(",", " ").split()) <= exported.get(name, exported.get(f"{name}_count", set())), name
    operations = METRIC.findall((ROOT / "docs" / "operations.md").read_text())
    assert set(operations) <= families


def test_prometheus_scrapes_services_that_there_are(compose: dict[str, Any]) -> None:
    prometheus = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    for job in prometheus["scrape_configs"]:
        for static in job["static_configs"]:
            for target in static["targets"]:
                service, port = target.split(":")
                assert port in " ".join(compose["services"][service]["command"])
    for name in prometheus["rule_files"]:
        assert (DEPLOY / "prometheus" / name).is_file()


def test_services_depend_on_existing_services_and_mount_existing_files(compose: dict[str, Any]) -> None:
    services, volumes = compose["services"], compose["volumes"]
    own = {"migrate", "worker", "console", "metrics"}
    assert services.keys() == own | {"postgresql", "pgbouncer", "prometheus", "grafana"}
    assert [name for name, service in services.items() if "profiles" not in service] == ["postgresql"]
    for service in services.values():
        assert set(service.get("depends_on", ())) <= services.keys()
        for mount in service.get("volumes", ()):
            source = mount.split(":")[0]
            assert (ROOT / source).exists() if source.startswith("./") else source in volumes
        if "build" in service:
            assert (ROOT / service["build"]["dockerfile"]).is_file()
        for port in service.get("ports", ()):
            assert port.startswith("127.0.0.1:")


def test_the_commands_of_services_are_those_of_jmsql(compose: dict[str, Any]) -> None:
    for name in ("migrate", "worker", "metrics"):
        arguments = compose["services"][name]["command"]
        load_command(arguments[0]).make_context(name, list(arguments[1:]))


def test_sources_of_the_image_exist_and_are_not_ignored() -> None:
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    assert sum(line.startswith("FROM ") for line in lines) == 2
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for line in lines:
        if line.startswith("COPY ") and "--from" not in line:
            for source in line.split()[1:-1]:
                assert (ROOT / source).exists()
                assert f"!{source}" in ignored
