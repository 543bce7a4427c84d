"""A process of a worker: ``python -m jmsql.worker NAME DESCRIPTOR SETTINGS``, started by the supervisor."""

from __future__ import annotations

import gc

if __name__ == "__main__":
    # Loaded modules stay in memory. Garbage collection during the imports would take a seventh of the time; `Child`
    # enables it again.
    gc.disable()
    from jmsql.worker.child import main

    main()
