"""Processes that handle messages: `jmsql worker` runs what an `Application` lists (the extra ``worker``)."""

from __future__ import annotations

from jmsql.worker.application import Application

__all__ = ["Application"]
