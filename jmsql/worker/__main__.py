"""A process of a worker: ``python -m jmsql.worker NAME DESCRIPTOR SETTINGS``, started by the supervisor."""

from __future__ import annotations

import gc

if __name__ == "__main__":
    # What is loaded stays. Looking for garbage in it would take a seventh of the time; `Child` goes back to doing so.
    gc.disable()
    from jmsql.worker.child import main

    main()
