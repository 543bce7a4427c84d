"""The compliance suite: what JMS requires, case by case, and the table of which test proves what."""
