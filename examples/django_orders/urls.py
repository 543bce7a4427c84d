"""Where the views are."""

from __future__ import annotations

from django.urls import path

from examples.django_orders import views

urlpatterns = [path("orders", views.place), path("orders/<str:reference>", views.show)]
