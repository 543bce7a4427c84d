"""The settings of the tests' project, also in processes of their own."""

from __future__ import annotations

import os
from typing import Any

from psycopg.conninfo import conninfo_to_dict


def database_settings(url: str) -> dict[str, Any]:
    """What `DATABASES` says of a URL."""
    parameters = conninfo_to_dict(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parameters.pop("dbname"),
        "USER": parameters.pop("user", ""),
        "PASSWORD": parameters.pop("password", ""),
        "HOST": parameters.pop("host", ""),
        "PORT": parameters.pop("port", ""),
        "OPTIONS": parameters,
    }


DATABASES = {
    "default": database_settings(os.environ["SHOP_DATABASE"]),
    "other": database_settings(os.environ["SHOP_DATABASE"]) | {"TEST": {"MIRROR": "default"}},
}
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "jmsql.django",
    "tests.integration.django.shop",
]
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
