"""The statistics as plots: of the destinations with the most messages, and of the others together."""

from __future__ import annotations

import io
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, HourLocator, date2num
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogFormatter, MaxNLocator

from jmsql.spark.statistics.results import Results, consumed_from

OTHERS = "others"
"""The common name of all but the busiest destinations."""

_MOST_TICKS = 9
_LONGEST_BY_HOUR = timedelta(days=14)


class Series(NamedTuple):
    """Numbers over time.

    Args:
        timestamps: When each step begins, without gaps.
        step: How long a step is: ``hour`` or ``day``.
        values: By destination, a number for each step.
    """

    timestamps: list[datetime]
    step: str
    values: dict[str, list[float]]

    @property
    def total(self) -> float:
        """The sum of all."""
        return sum(map(sum, self.values.values()))

    def peak(self) -> tuple[float, datetime]:
        """The largest sum of a step, and when that was."""
        sums = [sum(numbers) for numbers in zip(*self.values.values(), strict=True)]
        place = max(range(len(sums)), key=sums.__getitem__)
        return sums[place], self.timestamps[place]


def _busiest_destinations(results: Results, top: int) -> list[str]:
    """Return the destinations that the most messages have left, the busiest first."""
    counts = {row["destination"]: row["messages"] for row in results.rows("expiries")}
    return sorted(counts, key=lambda name: (-counts[name], name))[:top]


def series(results: Results, name: str, value: str, chosen: Sequence[str]) -> Series:
    """Add up a column of a statistic by step and destination; those that are not chosen are `OTHERS`.

    Steps are hours, or days where it is more than two weeks.
    """
    zone = ZoneInfo(results.time_zone)
    # All of them, so that plots of different statistics have one and the same time.
    everything = [row["hour"].astimezone(zone) for row in results.hours("expiries")]
    first, last = min(everything), max(everything)
    step = "hour" if last - first <= _LONGEST_BY_HOUR else "day"
    timestamps = list(_steps(first, last, step))
    found: Mapping[str, dict[datetime, float]] = defaultdict(lambda: defaultdict(float))
    for row in results.hours(name):
        destination = row["destination"] if row["destination"] in chosen else OTHERS
        found[destination][_begin(row["hour"].astimezone(zone), step)] += row[value]
    names = [each for each in (*chosen, OTHERS) if each in found]
    return Series(
        timestamps, step, {each: [found[each].get(timestamp, 0.0) for timestamp in timestamps] for each in names}
    )


def _begin(timestamp: datetime, step: str) -> datetime:
    return timestamp.replace(hour=0, minute=0) if step == "day" else timestamp


def _steps(first: datetime, last: datetime, step: str) -> Iterable[datetime]:
    """Return each step from the first to the last; hours go by the clock of UTC, days by the calendar."""
    timestamp = _begin(first, step)
    while timestamp <= last:
        yield timestamp
        if step == "day":
            timestamp += timedelta(days=1)
        else:
            timestamp = (timestamp.astimezone(UTC) + timedelta(hours=1)).astimezone(first.tzinfo)


def shortened(name: Any, most: int = 36) -> str:
    """Return a name that fits into a plot."""
    text = "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in str(name))
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-most // 2 + 1 :]}"


COLORS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#ee8866", "#44bb99", "#99ddff", "#997700")
"""Colours that most people can tell apart, on light ground and on dark."""
_GREY = "#999999"
_WIDTH = 9.0
_MOST_PLOTTED = len(COLORS)
_THEMES = {
    "light": {"background": "#ffffff", "ink": "#1f2328", "grid": "#d8dee4"},
    "dark": {"background": "#161b22", "ink": "#e6edf3", "grid": "#3a424c"},
}


class Plot(NamedTuple):
    """A plot.

    Args:
        name: Its name, for files.
        title: Its title.
        description: A description in words.
        draw: Draws it, in the colours that hold then.
    """

    name: str
    title: str
    description: str
    draw: Callable[[], Figure]


def draw_plots(results: Results, top: int) -> list[Plot]:
    """Return the plots of the statistics, with the ten largest destinations and groups at most."""
    top = min(top, _MOST_PLOTTED)
    chosen = _busiest_destinations(results, top)
    made = (
        _throughput(results, chosen),
        _time_in_queue(results, chosen),
        _failures(results, chosen),
        _reasons(results, top),
        _balance(results, chosen),
        _groups(results, top),
    )
    return [plot for plot in made if plot is not None]


def render(plot: Plot, theme: str, *kinds: str) -> list[bytes]:
    """Draw a plot in a theme, ``light`` or ``dark``, as ``svg``, ``png`` or both; return the images in this order."""
    colors = _THEMES[theme]
    ink = dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.titlecolor", "xtick.color", "ytick.color"), colors["ink"]
    )
    settings: Any = {
        **ink,
        "text.parse_math": False,  # names may have dollar signs
        "font.size": 10,
        "axes.titlesize": 11,
        "axes.titlelocation": "left",
        "axes.facecolor": colors["background"],
        "figure.facecolor": colors["background"],
        "axes.edgecolor": colors["grid"],
        "grid.color": colors["grid"],
        "grid.linewidth": 0.7,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
        "svg.hashsalt": "jmsql",
    }
    images = [io.BytesIO() for _ in kinds]
    with mpl.rc_context(settings), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of names with letters that the font does not have
        figure = plot.draw()
        for kind, image in zip(kinds, images, strict=True):
            figure.savefig(image, format=kind, dpi=144, metadata={"Date": None} if kind == "svg" else None)
    return [image.getvalue() for image in images]


class _PlainLogFormatter(LogFormatter):
    """Labels the ticks that matplotlib chooses on a logarithmic axis as plain numbers; its own labels are TeX."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        return f"{x:g}" if super().__call__(x, pos) else ""


def _figure(rows: int, height: float) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    axes = figure.subplots(rows, 1, sharex=True, squeeze=False)
    return figure, [row[0] for row in axes]


def _colors(names: Sequence[str]) -> dict[str, str]:
    colors = dict(zip([name for name in names if name != OTHERS], COLORS, strict=False))
    return {**colors, OTHERS: _GREY}


def _set_time(axes: Axes, results: Results) -> None:
    axes.xaxis_date()
    zone = _zone(results.time_zone)
    hours = [row["hour"] for row in results.hours("expiries")]
    # Nothing is known of the minutes.
    few = max(hours) - min(hours) < timedelta(hours=_MOST_TICKS)
    locator = HourLocator(tz=zone) if few else AutoDateLocator(tz=zone, maxticks=_MOST_TICKS)  # type: ignore[no-untyped-call]
    days = ["%Y", "%Y-%m", "%Y-%m-%d"]
    times = ["%H:%M", "%H:%M", "%S"]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(
        ConciseDateFormatter(  # type: ignore[no-untyped-call]
            locator, zone, formats=[*days, *times], zero_formats=["", *days, *times[1:]], show_offset=False
        )
    )
    axes.set_xlabel(f"time ({results.time_zone}), from {min(hours).astimezone(zone):%Y-%m-%d %H:%M} on")


def _zone(name: str) -> tzinfo:
    return ZoneInfo(name)


def _set_count(axes: Axes, label: str) -> None:
    axes.set_ylabel(label)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def _legend_below(figure: Figure, axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=3)


def _stack(axes: Axes, shown: Series) -> None:
    """Draw areas in steps on one another, so that none hides another."""
    begins = date2num(shown.timestamps)  # type: ignore[no-untyped-call]
    places = [*begins, begins[-1] + (1 / 24 if shown.step == "hour" else 1.0)]
    bottom = [0.0] * len(places)
    colors = _colors(list(shown.values))
    for name, values in shown.values.items():
        top = [below + value for below, value in zip(bottom, [*values, values[-1]], strict=True)]
        axes.fill_between(places, bottom, top, step="post", color=colors[name], linewidth=0, label=shortened(name))
        bottom = top
    axes.margins(x=0.01)


def _throughput(results: Results, chosen: Sequence[str]) -> Plot | None:
    messages = series(results, "throughput", "messages", chosen)
    if not messages.total:
        return None
    size = series(results, "throughput", "bytes", chosen)
    largest = max(size.peak()[0], 1.0)
    unit, factor = next(
        (u, f) for u, f in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("bytes", 1)) if largest >= f
    )
    size = size._replace(values={name: [value / factor for value in values] for name, values in size.values.items()})
    per = f"per {messages.step}"

    def draw() -> Figure:
        figure, (upper, lower) = _figure(2, 5.6)
        _stack(upper, messages)
        upper.set_title(f"Acknowledged messages {per}")
        _set_count(upper, f"messages {per}")
        _stack(lower, size)
        lower.set_title(f"Size of their bodies {per}")
        lower.set_ylabel(f"{unit} {per}")
        _set_time(lower, results)
        _legend_below(figure, upper)
        return figure

    peak, timestamp = messages.peak()
    return Plot(
        "throughput",
        "Throughput",
        f"Stacked areas of the messages {per}, and of the {unit} {per}, by destination: {_listed(messages.values)}. "
        f"{messages.total:,.0f} messages in all; the most {per}, {peak:,.0f}, from {timestamp:%Y-%m-%d %H:%M} on.",
        draw,
    )


def _time_in_queue(results: Results, chosen: Sequence[str]) -> Plot | None:
    points: dict[str, list[dict[str, Any]]] = {name: [] for name in chosen}
    for row in results.hours("time_in_queue"):
        if row["destination"] in points:
            points[row["destination"]].append(row)
    points = {name: rows for name, rows in points.items() if rows}
    if not points:
        return None
    styles = {"p99": ("-", "^"), "p95": ("--", "s"), "p50": (":", "o")}

    def draw() -> Figure:
        figure, panels = _figure(len(points), 1.2 + 1.5 * len(points))
        for axes, (name, rows) in zip(panels, points.items(), strict=True):
            timestamps = [row["hour"] + timedelta(minutes=30) for row in rows]
            many = len(rows) > 60
            for color, (percentile, (line, marker)) in zip(COLORS, styles.items(), strict=False):
                values = [max(row[percentile], 0.001) for row in rows]
                axes.plot(
                    timestamps,
                    values,
                    line,
                    marker=None if many else marker,
                    markersize=4,
                    linewidth=1.4,
                    color=color,
                    label=percentile,
                    rasterized=many,
                )
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(_PlainLogFormatter())
            axes.yaxis.set_minor_formatter(_PlainLogFormatter())
            axes.set_title(shortened(name, 70))
            axes.set_ylabel("seconds")
        hours = [row["hour"] for row in results.hours("expiries")]
        panels[-1].set_xlim(*date2num([min(hours), max(hours) + timedelta(hours=1)]))  # type: ignore[no-untyped-call]
        _set_time(panels[-1], results)
        _legend_below(figure, panels[0])
        return figure

    slowest = max(results.rows("time_in_queue"), key=lambda row: row["p95"])
    return Plot(
        "time-in-queue",
        "Time in queue",
        "Lines of the median, the 95th and the 99th percentile of the seconds that acknowledged messages had waited, "
        f"by hour, on a logarithmic scale, one panel for each destination: {_listed(points)}. Over all of the time, "
        f"{slowest['destination']} has the longest 95th percentile, {slowest['p95']:,.3g} s.",
        draw,
    )


def _failures(results: Results, chosen: Sequence[str]) -> Plot | None:
    found = {
        "Redeliveries": series(results, "redeliveries", "redeliveries", chosen),
        "Expired messages": series(results, "expiries", "expired", chosen),
        "Dead letters": series(results, "dead_letters", "messages", chosen),
    }
    shown = {title: each for title, each in found.items() if each.total}
    if not shown:
        return None
    names = [name for name in (*chosen, OTHERS) if any(sum(each.values.get(name, ())) for each in shown.values())]
    shown = {
        title: each._replace(values={name: each.values.get(name, [0.0] * len(each.timestamps)) for name in names})
        for title, each in shown.items()
    }

    def draw() -> Figure:
        figure, panels = _figure(len(shown), 1.3 + 1.9 * len(shown))
        for axes, (title, each) in zip(panels, shown.items(), strict=True):
            _stack(axes, each)
            axes.set_title(f"{title} per {each.step}")
            _set_count(axes, title.split()[0].lower() if title != "Dead letters" else "dead letters")
        _set_time(panels[-1], results)
        _legend_below(figure, panels[0])
        return figure

    sums = ", ".join(f"{title.lower()}: {each.total:,.0f}" for title, each in found.items())
    return Plot(
        "failures", "Redeliveries, expiries and dead letters", f"Stacked areas over time. In all, {sums}.", draw
    )


def _reasons(results: Results, top: int) -> Plot | None:
    rows = sorted(results.rows("dead_letters"), key=lambda row: -row["messages"])
    bars = [
        (f"{shortened(row['destination'], 30)}: {shortened(row['error'] or row['reason'], 44)}", row["messages"])
        for row in rows[:top]
    ]
    if len(rows) > top:
        bars.append((OTHERS, sum(row["messages"] for row in rows[top:])))
    return _bars("dead-letter-reasons", "Why messages became dead letters", bars, "messages")


def _groups(results: Results, top: int) -> Plot | None:
    rows = sorted(results.rows("largest_groups"), key=lambda row: -row["messages"])[:top]
    bars = [
        (f"{shortened(row['group_id'], 36)} ({shortened(row['destination'], 30)})", row["messages"]) for row in rows
    ]
    return _bars("largest-groups", "Largest message groups", bars, "acknowledged messages")


def _bars(name: str, title: str, bars: Sequence[tuple[str, int]], unit: str) -> Plot | None:
    if not bars:
        return None

    def draw() -> Figure:
        figure, (axes,) = _figure(1, 1.1 + 0.34 * len(bars))
        places = range(len(bars))
        drawn = axes.barh(places, [count for _, count in bars], color=COLORS[0])
        axes.bar_label(drawn, [f"{count:,}" for _, count in bars], padding=4)
        axes.set_yticks(places, [label for label, _ in bars])
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.margins(x=0.12)
        axes.set_xlabel(unit)
        axes.set_title(title)
        return figure

    described = "; ".join(f"{label}: {count:,}" for label, count in bars)
    return Plot(name, title, f"Bars of the number of {unit}: {described}.", draw)


def _balance(results: Results, chosen: Sequence[str]) -> Plot | None:
    """Show the shares of the consumers, where there are several."""
    imbalances = {consumed_from(row): row["imbalance"] for row in results.rows("consumer_balance")}
    shares: dict[str, list[float]] = {}
    for name in chosen:
        for row in results.rows("consumers"):
            if row["destination"] == name and imbalances[consumed_from(row)] is not None:
                shares.setdefault(consumed_from(row), []).append(row["share"])
    shares = {place: sorted(values, reverse=True) for place, values in list(shares.items())[:_MOST_PLOTTED]}
    if not shares:
        return None

    def draw() -> Figure:
        figure, (axes,) = _figure(1, 1.3 + 0.42 * len(shares))
        for height, (place, values) in enumerate(shares.items()):
            left = 0.0
            for number, share in enumerate(values):
                color = COLORS[number % len(COLORS)]
                axes.barh(height, share, left=left, color=color, edgecolor=axes.get_facecolor(), linewidth=1.5)
                left += share
            if left < 0.999:
                axes.barh(height, 1 - left, left=left, color=_GREY, edgecolor=axes.get_facecolor(), linewidth=1.5)
            axes.annotate(f"imbalance {imbalances[place]:.2f}", (1.01, height), va="center", annotation_clip=False)
        axes.set_yticks(range(len(shares)), [shortened(place, 44) for place in shares])
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set_xlim(0, 1)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
        axes.set_xlabel("share of the acknowledged messages, one colour for each consumer; grey: others")
        axes.set_title("Consumer balance")
        return figure

    described = "; ".join(
        f"{place}: {', '.join(f'{share:.0%}' for share in values)}, imbalance {imbalances[place]:.2f}"
        for place, values in shares.items()
    )
    return Plot("consumer-balance", "Consumer balance", f"Bars of the consumers' shares. {described}.", draw)


def _listed(names: Any) -> str:
    return ", ".join(names)
