"""The settings of the project: as few as it needs."""

from __future__ import annotations

import os

import django
from psycopg.conninfo import conninfo_to_dict

_connection = conninfo_to_dict(os.environ["JMSQL_URL"])

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _connection.pop("dbname"),
        "OPTIONS": _connection,
    }
}
INSTALLED_APPS = ["jmsql.django", "examples.django_orders"]
if django.VERSION < (6,):  # whose tasks are in a package of their own
    INSTALLED_APPS.append("django_tasks")
TASKS = {"default": {"BACKEND": "jmsql.django.TaskBackend"}}
ROOT_URLCONF = "examples.django_orders.urls"
ALLOWED_HOSTS = ["localhost", "127.0.0.1"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
