"""Messages and dead letters in Django's admin, with actions for them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from typing import Any

from django.contrib import admin, messages
from django.core.paginator import Paginator
from django.db import connections, transaction
from django.http import HttpRequest
from django.utils.translation import gettext_lazy

from jmsql.django.configuration import database_alias, schema_name
from jmsql.django.models import DeadLetter, Message
from jmsql.store.administration import emptying
from jmsql.store.administration.cancelling import Cancellation, cancel, outcome_of_all
from jmsql.store.administration.dead_letters import retry
from jmsql.store.administration.delivering import deliver
from jmsql.store.administration.places import Place
from jmsql.store.identifier import quote_identifier
from jmsql.store.statement import Items
from jmsql.store.wire._sync.runner import PsycopgRunner
from jmsql.values.counting import counted
from jmsql.values.destinations import Queue

MOST = 1000
"""How many messages one action takes at the most."""
MOST_CANCELLED = 100
"""How many messages one action cancels at the most: each of them is looked for in the whole table."""
_MOST_COUNTED = 10_000
_MOST_QUEUES = 200


class _BoundedPaginator(Paginator):
    """Counts a bounded number of messages: to count all of them would read the whole table for each page."""

    @cached_property
    def count(self) -> int:
        listed: Any = self.object_list
        return int(listed.order_by()[:_MOST_COUNTED].count())


class _QueueFilter(admin.SimpleListFilter):
    """The queues by name, without a look at all messages."""

    title = gettext_lazy("queue")
    parameter_name = "queue"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:  # noqa: ARG002
        view = f"{quote_identifier(schema_name())}.destinations"
        with connections[database_alias()].cursor() as cursor:
            cursor.execute(
                f"select destination from {view} where kind = 'queue' and not temporary order by 1 limit {_MOST_QUEUES}"
            )
            return [(name, name) for (name,) in cursor.fetchall()]

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:  # noqa: ARG002
        return queryset if self.value() is None else queryset.filter(queue=self.value())


class _StateFilter(admin.SimpleListFilter):
    title = gettext_lazy("state")
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> tuple[tuple[str, object], ...]:  # noqa: ARG002
        return (
            ("ready", gettext_lazy("Waiting")),
            ("claimed", gettext_lazy("Running")),
            ("failing", gettext_lazy("Failing")),
            ("delayed", gettext_lazy("Delayed")),
            ("expired", gettext_lazy("Expired")),
        )

    def queryset(self, request: HttpRequest, queryset: Any) -> Any:  # noqa: ARG002
        if self.value() == "failing":
            return queryset.filter(last_error__isnull=False)
        return queryset if self.value() is None else queryset.filter(state=self.value())


class _ViewAdmin(admin.ModelAdmin):
    """Shows the rows of a view of jmsql, which nothing edits."""

    paginator = _BoundedPaginator
    list_per_page = 50
    show_full_result_count = False
    search_fields: tuple[str, ...] = ("message_id", "correlation_id", "jms_type", "properties", "body")

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).using(database_alias())

    def has_add_permission(self, request: HttpRequest) -> bool:  # noqa: ARG002 - the same for all
        return False

    def has_change_permission(self, request: HttpRequest, obj: object = None) -> bool:  # noqa: ARG002
        return False

    def has_delete_permission(self, request: HttpRequest, obj: object = None) -> bool:  # noqa: ARG002
        return False  # Django would delete the view's row

    def _may(self, request: HttpRequest, action: str) -> bool:
        user: Any = request.user
        return bool(user.has_perm(f"jmsql.{action}_{self.opts.model_name}"))

    def has_purge_permission(self, request: HttpRequest) -> bool:
        """Return True if the user may delete messages."""
        return self._may(request, "delete")

    @admin.action(permissions=["purge"], description=gettext_lazy("Delete selected messages"))
    def purge(self, request: HttpRequest, queryset: Any) -> None:
        """Delete the selected messages, `MOST` at the most, but for those that a client holds."""
        self._act(request, queryset, emptying.purge_at, "{} deleted.")

    def _act(
        self, request: HttpRequest, queryset: Any, work: Callable[[Queue, list[Place]], Items[int]], told: str
    ) -> None:
        chosen: defaultdict[str | None, list[Place]] = defaultdict(list)
        total = 0
        for queue, *place in _placed(queryset):
            total += 1
            chosen[queue].extend(_places(*place))
        done = 0
        with _store() as runner:
            for queue, places in chosen.items():
                if queue is not None:
                    done += sum(runner.iterate(work(Queue(queue), places)))
        self.message_user(request, told.format(counted(done, "message")))
        if done < total:
            self.message_user(
                request,
                f"{counted(total - done, 'message')} stay: they are gone, held by a client, belong to a subscription, "
                "or do not wait.",
                messages.WARNING,
            )


@admin.register(Message)
class MessageAdmin(_ViewAdmin):
    """Shows messages that wait, are handled, or failed and are tried again."""

    list_display = (
        *("message_id", "place", "task", "state", "delivery_count", "error", "sent_at", "next_attempt", "claimed_at"),
    )
    list_filter = (_StateFilter, _QueueFilter)
    ordering = ("-sequence",)
    actions = ("deliver", "purge", "cancel")

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).defer("body")

    @admin.display(description=gettext_lazy("queue"))
    def place(self, message: Message) -> str:
        """Return the queue, or the topic with its subscription."""
        return message.queue or f"{message.topic} → {message.subscription or ''}"

    @admin.display(description=gettext_lazy("task"))
    def task(self, message: Message) -> str | None:
        """Return the task's function, or the JMSType of a message that is none."""
        return message.properties.get("task") or message.jms_type

    @admin.display(description=gettext_lazy("error"))
    def error(self, message: Message) -> str | None:
        """Return the last line of the traceback."""
        return message.last_error.rstrip().rpartition("\n")[2] if message.last_error else None

    def has_deliver_permission(self, request: HttpRequest) -> bool:
        """Return True if the user may deliver messages before their time."""
        return self._may(request, "deliver")

    def has_cancel_permission(self, request: HttpRequest) -> bool:
        """Return True if the user may cancel messages."""
        return self._may(request, "cancel")

    @admin.action(permissions=["deliver"], description=gettext_lazy("Deliver selected messages now"))
    def deliver(self, request: HttpRequest, queryset: Any) -> None:
        """Deliver messages now that wait for their next attempt, or are delayed."""
        self._act(request, queryset, deliver, "{} delivered now.")

    @admin.action(permissions=["cancel"], description=gettext_lazy("Cancel selected messages, also running ones"))
    def cancel(self, request: HttpRequest, queryset: Any) -> None:
        """Cancel messages, `MOST_CANCELLED` at the most; their handlers are asked to end."""
        identifiers = list(queryset.values_list("message_id", flat=True)[:MOST_CANCELLED])
        with _store() as runner:
            found = [
                outcome_of_all(runner.run(cancel(identifier))) for identifier in identifiers if identifier is not None
            ]
        cancelled = sum(each in {Cancellation.removed, Cancellation.asked} for each in found)
        self.message_user(request, f"{counted(cancelled, 'message')} cancelled.")
        if cancelled < len(identifiers):
            left = counted(len(identifiers) - cancelled, "message")
            self.message_user(request, f"{left} stay: they are gone, or locked by a transaction.", messages.WARNING)


@admin.register(DeadLetter)
class DeadLetterAdmin(_ViewAdmin):
    """Shows dead letters, and moves those that are selected back."""

    list_display = ("message_id", "queue", "original_destination", "reason", "deliveries", "error", "died_at")
    list_filter = ("queue", "reason")
    search_fields = (*_ViewAdmin.search_fields, "error")
    ordering = ("-died_at", "-sequence")
    actions = ("retry", "purge")

    def has_retry_permission(self, request: HttpRequest) -> bool:
        """Return True if the user may move dead letters back."""
        return self._may(request, "retry")

    @admin.action(permissions=["retry"], description=gettext_lazy("Retry selected dead letters"))
    def retry(self, request: HttpRequest, queryset: Any) -> None:
        """Move the selected dead letters back to where they come from, `MOST` at the most."""
        chosen = defaultdict(list)
        for queue, sequence in queryset.values_list("queue", "sequence")[:MOST]:
            chosen[queue].append(sequence)
        returned = left = 0
        with _store() as runner:
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


@contextmanager
def _store() -> Iterator[PsycopgRunner]:
    """Run statements of jmsql in one transaction of Django's connection."""
    with transaction.atomic(using=database_alias()):
        connection = connections[database_alias()]
        connection.ensure_connection()
        yield PsycopgRunner(connection.connection, schema_name())


def _placed(queryset: Any) -> Iterable[tuple[Any, ...]]:
    is_message = queryset.model is Message
    columns = ("queue", "priority", "sequence", *(("state", "delivery_time") if is_message else ()))
    return [*queryset.values_list(*columns)[:MOST]]


def _places(
    priority: int, sequence: int, state: str | None = None, delivery_time: datetime | None = None
) -> Iterator[Place]:
    """Return where a message can be. One that has expired may have been delayed, which its row does not say."""
    if state != "delayed":
        yield Place(9 - priority, sequence)
    if state in {"delayed", "expired"} and delivery_time is not None:
        yield Place(round(delivery_time.timestamp() * 1000), sequence, delayed=True)
