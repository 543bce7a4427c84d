"""Dead letters in Django's admin: what they are, and the way back to where they come from."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from django.contrib import admin, messages
from django.db import connections, transaction
from django.http import HttpRequest
from django.utils.translation import gettext_lazy

from jmsql.django.configuration import database_alias, schema_name
from jmsql.django.models import DeadLetter
from jmsql.store.administration.dead_letters import retry
from jmsql.store.wire._sync.runner import PsycopgRunner
from jmsql.values.counting import counted

MOST = 1000
"""How many dead letters one action moves at the most."""


@admin.register(DeadLetter)
class DeadLetterAdmin(admin.ModelAdmin):
    """Shows dead letters, and moves those that are selected back."""

    list_display = ("message_id", "queue", "original_destination", "reason", "deliveries", "error", "died_at")
    list_filter = ("queue", "reason")
    ordering = ("-died_at", "-sequence")
    list_per_page = 50
    show_full_result_count = False
    actions = ("retry",)

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).using(database_alias())

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002 - the same for all
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:  # noqa: ARG002
        return False

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:  # noqa: ARG002
        return False

    def has_retry_permission(self, request: HttpRequest) -> bool:
        """Return whether the user may move dead letters back."""
        user: Any = request.user
        return bool(user.has_perm("jmsql.retry_deadletter"))

    @admin.action(permissions=["retry"], description=gettext_lazy("Retry selected dead letters"))
    def retry(self, request: HttpRequest, queryset: Any) -> None:
        """Move the selected dead letters back to where they come from, `MOST` at the most."""
        chosen = defaultdict(list)
        for queue, sequence in queryset.values_list("queue", "sequence")[:MOST]:
            chosen[queue].append(sequence)
        returned = left = 0
        with transaction.atomic(using=database_alias()):
            connection = connections[database_alias()]
            connection.ensure_connection()
            runner = PsycopgRunner(connection.connection, schema_name())
            for queue, sequences in chosen.items():
                done = runner.run(retry(queue, None, None, sequences))
                returned += sum(done.returned.values())
                left += done.left
        self.message_user(request, f"{counted(returned, 'message')} went back to where they come from.")
        if left:
            self.message_user(
                request,
                f"{counted(left, 'message')} stay: a client holds them, or where they come from is gone.",
                messages.WARNING,
            )
