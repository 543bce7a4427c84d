"""The models of Django's admin: views of jmsql, of which Django makes no tables."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.utils.translation import gettext_lazy

from jmsql.django.configuration import schema_name
from jmsql.store.identifier import quote_identifier

DEAD_LETTERS = f"{quote_identifier(schema_name())}.{quote_identifier('dead_letters')}"
MESSAGES = f"{quote_identifier(schema_name())}.{quote_identifier('messages')}"


class _NotDumped(models.Manager):
    """A manager without rows for `dumpdata`, since a view's rows cannot be loaded again."""

    def using(self, alias: str | None) -> Any:
        return super().using(alias).none()


class DeadLetter(models.Model):
    """A message that was delivered too often without success, was rejected, or has expired: `jmsql.dead_letters`."""

    sequence: int = models.BigIntegerField(primary_key=True, editable=False)
    queue: str = models.TextField()
    original_destination: str | None = models.TextField(null=True)
    original_subscription: str | None = models.TextField(null=True)
    reason: str = models.TextField()
    deliveries: int | None = models.IntegerField(null=True)
    error: str | None = models.TextField(null=True)
    last_error: str | None = models.TextField(null=True)
    first_failed_at = models.DateTimeField(null=True)
    died_at = models.DateTimeField()
    message_id: str | None = models.TextField(null=True)
    type: str = models.TextField()
    priority: int = models.SmallIntegerField()
    sent_at = models.DateTimeField(null=True)
    expires_at = models.DateTimeField(null=True)
    correlation_id: str | None = models.TextField(null=True)
    jms_type: str | None = models.TextField(null=True)
    properties = models.JSONField()
    body: str | None = models.TextField(null=True)

    objects = models.Manager()
    dumped = _NotDumped()

    class Meta:
        """A view: nothing of it is Django's to make or change."""

        default_manager_name = base_manager_name = "dumped"
        managed = False
        db_table = DEAD_LETTERS
        default_permissions = ("view",)
        permissions = (
            ("retry_deadletter", gettext_lazy("Can retry dead letters")),
            ("delete_deadletter", gettext_lazy("Can delete dead letters")),
        )
        verbose_name = gettext_lazy("dead letter")
        verbose_name_plural = gettext_lazy("dead letters")

    def __str__(self) -> str:
        return self.message_id or f"{self.queue} {self.sequence}"


class Message(models.Model):
    """A message that waits, is handled, or failed and is tried again: `jmsql.messages`. Tasks are messages, too."""

    sequence: int = models.BigIntegerField(primary_key=True, editable=False)
    queue: str | None = models.TextField(null=True)
    topic: str | None = models.TextField(null=True)
    subscription: str | None = models.TextField(null=True)
    message_id: str | None = models.TextField(null=True)
    state: str = models.TextField()
    delivery_count: int = models.IntegerField()
    last_error: str | None = models.TextField(null=True)
    next_attempt = models.DateTimeField(null=True)
    claimed_at = models.DateTimeField(null=True)
    claimed_by: int | None = models.BigIntegerField(null=True)
    priority: int = models.SmallIntegerField()
    sent_at = models.DateTimeField(null=True)
    delivery_time = models.DateTimeField(null=True)
    expires_at = models.DateTimeField(null=True)
    correlation_id: str | None = models.TextField(null=True)
    jms_type: str | None = models.TextField(null=True)
    group_id: str | None = models.TextField(null=True)
    properties = models.JSONField()
    type: str = models.TextField()
    body: str | None = models.TextField(null=True)

    objects = models.Manager()
    dumped = _NotDumped()

    class Meta:
        """A view: nothing of it is Django's to make or change."""

        default_manager_name = base_manager_name = "dumped"
        managed = False
        db_table = MESSAGES
        default_permissions = ("view",)
        permissions = (
            ("deliver_message", gettext_lazy("Can deliver waiting messages now")),
            ("delete_message", gettext_lazy("Can delete messages")),
            ("cancel_message", gettext_lazy("Can cancel messages that are handled")),
            ("operate_console", gettext_lazy("Can use the actions of the console")),
        )
        verbose_name = gettext_lazy("message")
        verbose_name_plural = gettext_lazy("messages")

    def __str__(self) -> str:
        return self.message_id or f"{self.queue or self.topic} {self.sequence}"
