"""A machine that has much else to do is no fault of what is tested."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("units", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("units")
