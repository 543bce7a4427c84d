"""What is done later, as tasks of Django's. They are messages, too, and run in the same worker."""

from __future__ import annotations

from django.utils import timezone

from examples.django_orders.models import Order

try:
    from django.tasks import task
except ModuleNotFoundError:  # Django 5.2
    from django_tasks import task


@task
def tell_customer(reference: str) -> None:
    """Tell a customer that an order is on its way."""
    Order.objects.filter(pk=reference).update(told_at=timezone.now())
