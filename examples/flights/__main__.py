"""``python -m examples.flights``, or ``make demo``."""

from examples.flights.command import main

main()
