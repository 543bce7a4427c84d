"""The settings of the tests' project, also in processes of their own."""

from __future__ import annotations

import os
from importlib.util import find_spec

from tests.integration.django.databases import database_settings

_database = database_settings(os.environ["SHOP_DATABASE"])
DATABASES = {"default": _database, "other": _database | {"TEST": {"MIRROR": "default"}}}
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "jmsql.django",
    "tests.integration.django.shop",
]
if find_spec("django.tasks") is None:
    INSTALLED_APPS.append("django_tasks")
TASKS = {
    "default": {"BACKEND": "jmsql.django.TaskBackend", "QUEUES": ["default", "mail"]},
    "apart": {"BACKEND": "jmsql.django.TaskBackend", "OPTIONS": {"prefix": "apart.", "transacted": False}},
}
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
ROOT_URLCONF = "tests.integration.django.urls"
ALLOWED_HOSTS = ["testserver"]
STATIC_URL = "static/"
USE_TZ = True
TIME_ZONE = "Europe/Berlin"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
SECRET_KEY = "tests"
