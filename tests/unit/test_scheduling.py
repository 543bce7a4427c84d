"""Names in the scheduling of pytest-xdist: a test that is renamed needs its new name there."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import pytest

from tests.plugins.scheduling import IN_ONE_PROCESS, LONGEST, SHORTEST, TOGETHER

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", sorted({*LONGEST, *SHORTEST, *TOGETHER, *chain(*IN_ONE_PROCESS.values())}))
def test_each_name_is_the_beginning_of_a_test(name: str) -> None:
    file, _, test = name.partition("::")
    found = list(ROOT.glob(f"{file}**/test_*.py" if file.endswith("/") else f"{file}*"))
    assert found
    assert not test or f"def {test}" in found[0].read_text()
