"""Measuring by turns: contenders alternate in short rounds, and what counts is the ratio within each round.

Machines are noisy, and their noise lasts longer than a round. A ratio of two figures that were taken within the same
second is steady where the figures themselves are not.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass

Work = Callable[[int], None]
"""Handles so many messages."""

Samples = Mapping[str, Sequence[float]]
"""The figures of each contender, one a round."""


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to handle messages.

    Args:
        name: What tables call it.
        open: Opens whatever the work needs, for as long as the measurement lasts.
        prepare: Makes ready for the work, outside of the time measured.
        messages: How many messages a round has, if not as many as for the others: a slow contender needs fewer.
    """

    name: str
    open: Callable[[], AbstractContextManager[Work]]
    prepare: Work | None = None
    messages: int | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """What a ratio is to be."""

    bound: float
    is_lower_bound: bool = True

    def is_met(self, ratio: float) -> bool:
        """Tell whether the ratio is on the right side of the bound."""
        return ratio >= self.bound if self.is_lower_bound else ratio <= self.bound

    def __str__(self) -> str:
        return f"{'≥' if self.is_lower_bound else '≤'} {self.bound:g}"


def at_least(bound: float) -> Target:
    """Make a target for what is better when it is larger."""
    return Target(bound)


def at_most(bound: float) -> Target:
    """Make a target for what is better when it is smaller."""
    return Target(bound, is_lower_bound=False)


@dataclass(frozen=True, slots=True)
class BenchmarkResult:
    """One line of the result: a figure beside the one that it is measured by.

    Args:
        benchmark: What was measured.
        subject: Whose figure it is.
        reference: Whose figure it is compared with.
        unit: Of both figures.
        figures: The subject's, one a round.
        reference_figures: The reference's, one a round.
        target: What the ratio is to be; None: it is told for information.
    """

    benchmark: str
    subject: str
    reference: str
    unit: str
    figures: Sequence[float]
    reference_figures: Sequence[float]
    target: Target | None = None

    @property
    def figure(self) -> float:
        """The median of the subject's figures."""
        return statistics.median(self.figures)

    @property
    def reference_figure(self) -> float:
        """The median of the reference's figures."""
        return statistics.median(self.reference_figures)

    @property
    def ratios(self) -> list[float]:
        """The ratio of each round."""
        return [figure / reference for figure, reference in zip(self.figures, self.reference_figures, strict=True)]

    @property
    def ratio(self) -> float:
        """The median of the ratios."""
        return statistics.median(self.ratios)

    @property
    def spread(self) -> tuple[float, float]:
        """The quartiles of the ratios: half of the rounds lie between them."""
        ratios = self.ratios
        if len(ratios) < 2:
            return ratios[0], ratios[0]
        lower, _, upper = statistics.quantiles(ratios, n=4, method="inclusive")
        return lower, upper

    @property
    def is_met(self) -> bool | None:
        """Whether the target is met; None if there is none."""
        return None if self.target is None else self.target.is_met(self.ratio)


def measure(
    contenders: Sequence[Contender],
    messages: int,
    rounds: int,
    *,
    seconds: float = 0.0,
    after_round: Callable[[], None] = lambda: None,
    clock: Callable[[], float] = time.perf_counter,
) -> Samples:
    """Let contenders take turns, each in another place every round.

    Args:
        contenders: Who takes part.
        messages: How many messages each handles in a round.
        rounds: How many rounds count, at the least; one more, to warm up, comes first.
        seconds: For how long to go on, at the least.
        after_round: Called after each round.
        clock: What times a round, in seconds: `time.process_time` counts the processor time of the clients alone.

    Returns:
        Messages a second.
    """
    samples: dict[str, list[float]] = {contender.name: [] for contender in contenders}
    with ExitStack() as stack:
        works = [(contender, stack.enter_context(contender.open())) for contender in contenders]
        end = time.monotonic() + seconds
        number = 0
        while number <= rounds or time.monotonic() < end:
            place = number % len(works)
            for contender, work in [*works[place:], *works[:place]]:
                count = contender.messages or messages
                if contender.prepare is not None:
                    contender.prepare(count)
                started = clock()
                work(count)
                duration = clock() - started
                if number:
                    samples[contender.name].append(count / duration)
            after_round()
            number += 1
    return samples


def compare(
    benchmark: str, samples: Samples, subject: str, targets: Mapping[str, Target | None], unit: str = "messages/s"
) -> list[BenchmarkResult]:
    """Compare one contender's samples with those of others.

    Args:
        benchmark: What was measured.
        samples: The figures of all.
        subject: Whose figures are compared.
        targets: With whom, and what the ratio is to be.
        unit: Of the figures.
    """
    return [
        BenchmarkResult(benchmark, subject, reference, unit, samples[subject], samples[reference], target)
        for reference, target in targets.items()
        if reference in samples
    ]


def percentiles(figures: Sequence[float], percent: int, blocks: int) -> list[float]:
    """Return the percentile of each of so many blocks of figures, which are told one after the other."""
    length = len(figures) // blocks
    return [
        statistics.quantiles(figures[start : start + length], n=100, method="inclusive")[percent - 1]
        for start in range(0, blocks * length, length)
    ]
