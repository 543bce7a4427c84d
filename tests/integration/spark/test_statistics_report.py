"""The report of the statistics, in a real browser."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By

from jmsql.spark.statistics import Results
from jmsql.spark.statistics.plots import OTHERS, draw_plots, render, series
from jmsql.spark.statistics.report import write_report

pytestmark = pytest.mark.timeout(300)

EVIL = "queue://<img src=x onerror=\"document.title='hacked'\">&$x$\N{SNOWMAN}"
FIRST = datetime(2026, 3, 28, 22, tzinfo=UTC)
ARGUMENTS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)


def make_results(names: list[str], hours: int, time_zone: str = "Europe/Berlin") -> Results:
    """Statistics of some destinations, over hours in which clocks are set forward."""
    each = [(name, FIRST + timedelta(hours=hour)) for name in names for hour in range(hours)]
    times = {"p50": 0.1, "p95": 2.0, "p99": 30.0, "longest": 400.0}
    columns: dict[str, dict[str, Any]] = {
        "throughput": {"messages": 10, "bytes": 4096},
        "time_in_queue": {"messages": 10, **times},
        "redeliveries": {"messages": 12, "redelivered": 1, "redeliveries": 2, "most_deliveries": 3},
        "expiries": {"messages": 12, "expired": 1, "purged": 0},
        "dead_letters": {
            "reason": "maximum deliveries",
            "error": "<script>document.title='hacked'</script>",
            "messages": 1,
        },
        "largest_groups": {"group_id": "</td><b>customer", "messages": 5, "bytes": 100},
    }
    consumed = {"subscription_client_id": None, "subscription": None}
    overall = {name: [{"destination": place, **row} for place in names] for name, row in columns.items()}
    overall["consumers"] = [
        {"destination": place, **consumed, "consumer": consumer, "messages": 5, "share": share}
        for place in names
        for consumer, share in (("<i>one", 0.75), ("two", 0.25))
    ]
    overall["consumer_balance"] = [
        {"destination": place, **consumed, "consumers": 2, "messages": 10, "largest_share": 0.75, "imbalance": 0.5}
        for place in names
    ]
    by_hour = {
        name: [{"destination": place, "hour": hour, **row} for place, hour in each] for name, row in columns.items()
    }
    return Results(_tables(by_hour), _tables(overall), time_zone)


def _tables(rows: dict[str, list[dict[str, Any]]]) -> dict[str, pa.Table]:
    return {name: pa.Table.from_pylist(each) for name, each in rows.items()}


CHROMIUM, DRIVER = "/usr/bin/chromium", "/usr/bin/chromedriver"


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a few destinations, whose names mean something in HTML."""
    names = [EVIL, f"topic://{'long' * 50}", *(f"queue://plain {number}" for number in range(3))]
    return write_report(make_results(names, 30), tmp_path_factory.mktemp("report"), top=4)


@pytest.fixture(scope="module")
def browser() -> Iterator[webdriver.Chrome]:
    """Chromium, as Debian packages it."""
    if not (Path(CHROMIUM).exists() and Path(DRIVER).exists()):
        pytest.skip("Chromium is not installed (Debian: apt-get install chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with tempfile.TemporaryDirectory(prefix="jmsql-chromium-", ignore_cleanup_errors=True) as profile:
        for argument in (*ARGUMENTS, f"--user-data-dir={profile}"):
            options.add_argument(argument)
        driver = webdriver.Chrome(options=options, service=Service(DRIVER))
        yield driver
        driver.quit()


def show(browser: webdriver.Chrome, report: Path, width: int, scheme: str = "light") -> None:
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500},
    )
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    )
    browser.get(report.as_uri())


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1200])
def test_page_loads_with_all_its_pictures_and_without_scrolling_sideways(
    browser: webdriver.Chrome, report: Path, width: int, scheme: str
) -> None:
    show(browser, report, width, scheme)

    assert browser.get_log("browser") == []  # type: ignore[no-untyped-call]
    sizes = browser.execute_async_script(
        "const done = arguments[0], images = [...document.images];"
        "Promise.all(images.map(image => image.decode())).then("
        "  () => done(images.map(image => [image.naturalWidth, image.clientWidth, image.currentSrc.slice(0, 26)])))"
    )
    assert len(sizes) == 6
    assert all(
        natural > 100 and shown <= width and source == "data:image/svg+xml;base64," for natural, shown, source in sizes
    )
    assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
    background = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(22, 27, 34)")


def test_dark_pages_show_dark_plots(browser: webdriver.Chrome, report: Path) -> None:
    sources = {}
    for scheme in ("light", "dark"):
        show(browser, report, 1200, scheme)
        sources[scheme] = browser.execute_script("return [...document.images].map(image => image.currentSrc)")
    assert all(light != dark for light, dark in zip(sources["light"], sources["dark"], strict=True))


def test_tables_and_pictures_say_what_they_are(browser: webdriver.Chrome, report: Path) -> None:
    show(browser, report, 1200)

    assert browser.find_element(By.TAG_NAME, "html").get_attribute("lang") == "en"
    tables = browser.find_elements(By.TAG_NAME, "table")
    assert len(tables) == 4
    for table in tables:
        heads = table.find_elements(By.CSS_SELECTOR, "thead th[scope=col]")
        rows = table.find_elements(By.CSS_SELECTOR, "tbody tr")
        assert rows
        for row in rows:
            assert len(row.find_elements(By.CSS_SELECTOR, "th[scope=row]")) == 1
            assert len(row.find_elements(By.CSS_SELECTOR, "th, td")) == len(heads)
    for image in browser.find_elements(By.TAG_NAME, "img"):
        assert len(image.get_attribute("alt") or "") > 40
    levels = browser.execute_script("return [...document.querySelectorAll('h1, h2, h3')].map(each => each.tagName)")
    assert levels == ["H1"] + ["H2"] * 10


def test_names_are_text_and_nothing_else(browser: webdriver.Chrome, report: Path) -> None:
    show(browser, report, 1200)

    assert browser.title == "Statistics of messages"
    cells = [cell.text for cell in browser.find_elements(By.CSS_SELECTOR, "tbody th")]
    assert EVIL in cells
    assert "</td><b>customer" in browser.find_element(By.TAG_NAME, "main").text
    assert browser.find_elements(By.CSS_SELECTOR, "b, i, script, img:not(figure img)") == []


def test_report_needs_nothing_from_elsewhere(report: Path) -> None:
    text = report.read_text()
    assert set(re.findall(r'(?:src|srcset|href)="([^"#:]*:?)', text)) <= {"", "data:"} | {
        f"plots/{path.name}" for path in (report.parent / "plots").iterdir()
    }
    assert "@import" not in text
    assert "url(" not in text


def test_plots_are_files_too_and_those_of_before_are_gone(tmp_path: Path) -> None:
    (tmp_path / "plots").mkdir()
    (tmp_path / "plots" / "former.svg").write_text("former")
    write_report(make_results(["queue://orders"], 2), tmp_path)

    names = ("throughput", "time-in-queue", "failures", "dead-letter-reasons", "consumer-balance", "largest-groups")
    plots = {path.name: path.read_bytes() for path in (tmp_path / "plots").iterdir()}
    assert plots.keys() == {f"{name}.{kind}" for name in names for kind in ("png", "svg")}
    for name, image in plots.items():
        assert image.startswith(b"\x89PNG" if name.endswith("png") else b"<?xml"), name


@pytest.mark.parametrize("slowest", [1.0, 4.0, 500.0])
def test_labels_of_logarithmic_axes_are_plain_numbers(slowest: float) -> None:
    results = make_results(["queue://$x$"], 3)
    rows = results.by_hour["time_in_queue"].to_pylist()
    times = {"p50": slowest / 3, "p95": slowest / 2, "p99": slowest}
    by_hour = {**results.by_hour, "time_in_queue": pa.Table.from_pylist([{**row, **times} for row in rows])}
    plots = {plot.name: plot for plot in draw_plots(Results(by_hour, results.overall, "UTC"), 10)}
    drawn = plots["time-in-queue"].draw()
    drawn.draw_without_rendering()
    labels = {label.get_text() for label in drawn.axes[0].yaxis.get_ticklabels(which="both")}
    assert all(re.fullmatch(r"[0-9.]*", label) for label in labels)
    assert labels != {""}


def test_destinations_beyond_the_busiest_are_one_series() -> None:
    results = make_results([f"queue://{number}" for number in range(5)], 4)
    shown = series(results, "throughput", "messages", ["queue://3"])
    assert shown.values == {"queue://3": [10.0] * 4, OTHERS: [40.0] * 4}
    assert shown.peak() == (50.0, shown.timestamps[0])


def test_hours_without_messages_and_clocks_that_are_set_leave_no_gap() -> None:
    shown = series(make_results(["queue://orders"], 6), "throughput", "messages", ["queue://orders"])
    assert [timestamp.hour for timestamp in shown.timestamps] == [23, 0, 1, 3, 4, 5]
    assert shown.values == {"queue://orders": [10.0] * 6}


def test_long_times_are_shown_by_day() -> None:
    shown = series(make_results(["queue://orders"], 24 * 15), "throughput", "messages", ["queue://orders"])
    assert shown.step == "day"
    assert sum(shown.values["queue://orders"]) == 24 * 15 * 10
    assert all((timestamp.hour, timestamp.minute) == (0, 0) for timestamp in shown.timestamps)
    assert len({timestamp.date() for timestamp in shown.timestamps}) == len(shown.timestamps) == 16


def test_one_hour_is_drawn_as_one_hour() -> None:
    for plot in draw_plots(make_results(["queue://orders"], 1), 10):
        if plot.name not in {"throughput", "time-in-queue", "failures"}:
            continue
        axes = plot.draw().axes[-1]
        first, last = axes.get_xlim()
        assert (last - first) * 24 == pytest.approx(1, abs=0.05)
        assert [label.get_text() for label in axes.get_xticklabels()] == ["23:00", "2026-03-29"]


def test_empty_tables_have_no_plot() -> None:
    results = make_results(["queue://orders"], 1)
    quiet = {name: table.slice(0, 0) for name, table in results.overall.items()}
    quiet |= {name: results.overall[name] for name in ("throughput", "time_in_queue", "expiries", "redeliveries")}
    hours = {name: table.slice(0, 0) for name, table in results.by_hour.items()}
    hours |= {name: results.by_hour[name] for name in ("throughput", "expiries")}
    plots = draw_plots(Results(hours, quiet, "UTC"), 10)
    assert [plot.name for plot in plots] == ["throughput", "failures"]
    assert render(plots[0], "dark", "png")[0].startswith(b"\x89PNG")
