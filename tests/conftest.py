"""What all tests share: the compliance table, and the fixtures of `jmsql.testing`, which are installed with jmsql."""

from __future__ import annotations

pytest_plugins = ["pytester", "tests.compliance.table"]
