"""The backend: an order is stored, and the worker is told of it, in one transaction."""

from __future__ import annotations

import json

from django.db import IntegrityError, connection, transaction
from django.http import HttpRequest, JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.http import require_GET, require_POST

import jmsql
from examples.django_orders.messages import ORDERS
from examples.django_orders.models import Order


@require_POST
def place(request: HttpRequest) -> JsonResponse:
    """Store an order and send its message. A reference that was used before is refused, and nothing is sent."""
    wanted = json.loads(request.body)
    try:
        with transaction.atomic():
            jmsql.send(connection, ORDERS, {"reference": wanted["reference"]})
            order = Order.objects.create(reference=wanted["reference"], goods=wanted["goods"])
    except IntegrityError:
        return JsonResponse({"error": f"There is an order {wanted['reference']!r} already."}, status=409)
    return JsonResponse({"reference": order.reference, "state": order.state}, status=201)


@require_GET
def show(_request: HttpRequest, reference: str) -> JsonResponse:
    """Tell how far an order is."""
    order = get_object_or_404(Order, pk=reference)
    return JsonResponse({"reference": order.reference, "state": order.state})
