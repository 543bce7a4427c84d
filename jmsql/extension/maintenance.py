"""Tasks that the client which does the maintenance runs in those schemas that request them."""

from __future__ import annotations

from jmsql.store.maintenance.maintenance_task import MaintenanceTask, register_task, request_tasks

__all__ = [
    "MaintenanceTask",
    "register_task",
    "request_tasks",
]
