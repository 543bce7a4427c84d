"""Processes that handle messages: `jmsql worker` runs what an `Application` lists (the extra ``worker``)."""

from __future__ import annotations

from jmsql.public_names import claim_public_names
from jmsql.worker.application import Application

__all__ = ["Application"]

claim_public_names(__name__)
