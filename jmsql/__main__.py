"""`python -m jmsql` is the command `jmsql`."""

from __future__ import annotations

from jmsql.cli import main

main()
