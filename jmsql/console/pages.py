"""The pages: their queries and contents."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from difflib import get_close_matches
from typing import Any, NamedTuple
from urllib.parse import urlencode

from starlette.exceptions import HTTPException

from jmsql import InvalidDestinationException, InvalidSelectorException, JMSException, MessageFormatException, Topic
from jmsql.admin import BoundedCount, Cancellation, DestinationOverview, Place, ScheduleSummary
from jmsql.console.access import Level
from jmsql.console.actions import MESSAGE_ACTIONS, Actions, Done
from jmsql.console.batches import BatchPages
from jmsql.console.charts import RatePages
from jmsql.console.database import Database
from jmsql.console.listing import ListingPages
from jmsql.console.now import NowPages
from jmsql.console.past_actions import ActivityPages
from jmsql.console.poller import SHOWN, Poller
from jmsql.console.presentation import Body, typed_properties, visible
from jmsql.console.rates import MINUTE, Rate, filled
from jmsql.console.results import ResultPages
from jmsql.console.searching import SearchPages
from jmsql.console.submissions import Submissions, new_submission
from jmsql.console.views import NUMBER, Form, Notice, Reply, RouteRow, View, message_address
from jmsql.messages.properties import BATCH
from jmsql.store.administration import diagnosis, lists, looks, overview
from jmsql.store.administration.activity import LAST, Activity, activity
from jmsql.store.administration.limits import LimitNow, limits_now
from jmsql.store.administration.lists import Origin
from jmsql.store.administration.looks import Choice, DestinationLook, ListedMessage, MessageState, Page, Rights
from jmsql.store.administration.now import usual_times
from jmsql.store.administration.past_rates import past_rates
from jmsql.store.administration.places import BEGINNING
from jmsql.store.administration.results import has_result, keeps_results
from jmsql.store.administration.running import RunningMessage, running
from jmsql.store.schedules.changing import schedules
from jmsql.store.statement import Steps
from jmsql.values.destinations import Destination
from jmsql.values.postgresql_text import from_postgresql

_PAGE = 50
_CLIENTS = 25
_RUNNING = 20
_LIMITS = 20
_SCHEDULES = 500
_NAMED = 5
"""How many of the chosen messages a question names."""
_ORIGINS = 5
_RETRIES = 20
_STORED_MINUTES = 15
_SUGGESTED = 500
"""How many names of queues are suggested where messages are moved to."""
_LIVE = frozenset({"clients.html", "dead_letters.html", "destination.html", "overview.html", "schedules.html"})
"""The pages of which a part stays current."""
_TIMES = ("JMS_jmsql_DeadLetterTime", "JMS_jmsql_FirstFailure", "JMS_jmsql_OriginalExpiration")
"""Properties of dead letters that are times, in milliseconds since the epoch."""
_NUMBER_OF_TIME = re.compile(r"[1-9][0-9]{0,13}")
_TRANSACTION = re.compile(r"[0-9]{1,20}")
_CAUSE = re.compile(r"[0-9a-f]{64}")


class Pages:
    """Makes pages."""

    def __init__(self, database: Database, poller: Poller, actions: Actions, *, hidden: bool) -> None:
        self._database = database
        self._poller = poller
        self._actions = actions
        self.hidden = hidden
        self._submissions = Submissions()

    def routes(self) -> Iterator[RouteRow]:
        """Return the pages: address, function, the right that a visitor needs, and whether it is for forms."""
        look, operate = Level.LOOK, Level.OPERATE
        place = "/destinations/{queue}/messages/{table}/{first}/{sequence}"
        yield "/", self.overview, look, False
        yield from ListingPages(self._database, self._poller).routes()
        yield from RatePages(self._database, self._poller).routes()
        yield from SearchPages(self._database, hidden=self.hidden).routes()
        yield from NowPages(self._database, self._poller, hidden=self.hidden).routes()
        yield from BatchPages(self._database, self._poller, hidden=self.hidden).routes()
        yield from ResultPages(self._database, hidden=self.hidden).routes()
        yield from ActivityPages(self._database, hidden=self.hidden).routes()
        yield "/search", self.search, look, False
        yield "/dead-letters", self.dead_letters, look, False
        yield "/clients", self.clients, look, False
        yield "/schedules", self.schedules, look, False
        yield "/schedules/{action}", self.confirm_schedule, operate, False
        yield "/schedules/{action}", self._once(self.act_schedule), operate, True
        yield "/destinations/{queue}", self.destination, look, False
        yield "/destinations/{queue}/history", self.history, look, False
        yield "/topics/{topic}", self.topic, look, False
        yield "/topics/{topic}/history", self.topic_history, look, False
        yield place, self.message, look, False
        yield "/destinations/{queue}/{action}", self.confirm, operate, False
        yield "/destinations/{queue}/{action}", self._once(self.act), operate, True
        yield "/topics/{topic}/{action}", self.confirm_topic, operate, False
        yield "/topics/{topic}/{action}", self._once(self.act_topic), operate, True

    # Looking

    def overview(self, view: View) -> Reply:
        """Show the problems, and the destinations that wait for longest."""
        snapshot = self._poller.snapshot()
        waiting = [each.messages for each in snapshot.attention if each.messages is not None]
        values = {
            "snapshot": snapshot,
            "waiting": _sum(waiting, has_more=len(waiting) >= SHOWN),
            "letters": _sum(snapshot.origins.values(), has_more=bool(snapshot.further.queues)),
            "counted": looks.COUNTED,
            "title": "Overview",
        }
        return self._reply(view, "overview.html", values)

    def search(self, view: View) -> Reply:
        """Show the destinations whose names have a text."""
        text = view.query.get("q")
        cursor = view.query.get("after")
        is_among_topics = cursor.startswith("-")
        after = -_number_after(cursor[1:]) if is_among_topics else _number_after(cursor)
        found, following = self._database.read(looks.find(text, after, _PAGE))
        if len(found) == 1 and after == 0 and following is None and text and text.lower() == found[0].name.lower():
            return Reply(redirect=_address(found[0]))
        more = None if following is None else urlencode({"q": text, "after": following})
        values = {"text": text, "found": found, "more": more, "address": _address, "title": "Destinations"}
        return self._reply(view, "search.html", values)

    def destination(self, view: View) -> Reply:
        """Show a queue or subscription: how it is, and its messages."""
        look = self._found(view)
        cause = _cause(view.query.get("cause"))
        now = self._database.now()
        figures = self._poller.shared(("destination", look.queue_id), lambda: self._figures(look.queue_id))
        rate, past = self._poller.rates(look.queue_id)
        values: dict[str, Any] = {
            "look": look,
            "figures": figures,
            "rate": rate,
            "past": self._with_stored(look, past, now),
            "running": self._running(look),
            "limits": self._limits(look),
            "letters": self._poller.snapshot().origins.get(
                Origin(look.destination.uri, look.subscription, look.client_id)
            ),
            "now": now,
            "title": _title(look),
        }
        if view.is_fragment:
            return self._reply(view, "destination.html", values)
        selector, state = view.query.get("selector"), _state(view.query.get("state"))
        problem, choice = None, None
        try:
            choice = Choice(looks.parse_selector(selector), state, cause=cause)
        except InvalidSelectorException as error:
            problem = str(error)
        after = _place_after(view.query.get("after"))
        found = self._database.read(self._contents(look, choice, after))
        given = {"selector": selector, "state": state or "", "cause": cause or ""}
        chosen = {name: value for name, value in given.items() if value}
        values |= {
            **found._asdict(),
            "selector": selector,
            "state": state,
            "cause": cause,
            "problem": problem,
            "more": None if found.page.next is None else urlencode(chosen | {"after": str(found.page.next)}),
            "filtered": chosen,
            "written": str,
            "has_letters_here": any(each.origin is not None for _, each in found.page.messages),
            "address": message_address,
            "rights": self.rights(),
            "has_groups": any(each.group is not None for _, each in found.page.messages),
            "has_waiting": _has_waiting(figures, found.page),
            "matching": _matching(found.page, figures, is_first=after == BEGINNING, is_filtered=bool(chosen)),
            "states_of_messages": list(MessageState),
        }
        return self._reply(view, "destination.html", values)

    def _with_stored(self, look: DestinationLook, past: list[Rate], now: float) -> list[Rate]:
        """Add the stored rates, which began before the console's first poll."""
        start = (now // MINUTE - _STORED_MINUTES) * MINUTE
        stored = self._poller.shared(
            ("minutes", look.queue_id, start),
            lambda: self._database.read(past_rates(look.queue_id, start, MINUTE, _STORED_MINUTES + 1)),
        )
        return filled(past, stored.slots, start, now)

    def _running(self, look: DestinationLook) -> list[RunningMessage]:
        """Return the messages of a destination that are being handled, with their progress."""
        if not look.browsable:
            return []
        return self._poller.shared(
            ("running", look.queue_id), lambda: self._database.read(running(_RUNNING, queue_id=look.queue_id))
        )

    def _limits(self, look: DestinationLook) -> list[LimitNow]:
        """Return the limits of a destination's listeners."""
        return self._poller.shared(
            ("limits", look.queue_id), lambda: self._database.read(limits_now(_LIMITS, queue_id=look.queue_id))
        )

    def _contents(self, look: DestinationLook, choice: Choice | None, after: Place) -> Steps[_Contents]:
        page, has_letters, group = Page[ListedMessage]([], None), False, None
        if look.browsable:
            if choice is not None and choice.cause is not None:
                group = yield from looks.dead_letter_group(look.queue_id, choice.cause, hidden=self.hidden)
            if choice is not None:
                page = yield from looks.messages(look.queue_id, choice, after, _PAGE, hidden=self.hidden)
            has_letters = yield from looks.has_dead_letters(look.queue_id)
        settings, created_at = (yield from looks.settings(look.queue_id)) or ({}, None)
        subscription = (yield from looks.subscription(look.queue_id)) if look.is_subscription else None
        consumers = yield from looks.consumers(look.queue_id, _PAGE + 1)
        with_results = yield from keeps_results(look.queue_id)
        return _Contents(page, has_letters, group, settings, created_at, subscription, consumers, with_results)

    def _figures(self, number: int) -> DestinationOverview | None:
        return next(iter(self._figures_of([number])), None)

    def _figures_of(self, numbers: list[int]) -> list[DestinationOverview]:
        return self._database.read(overview.of(numbers, overview.Memory()))

    def topic(self, view: View) -> Reply:
        """Show a topic and its subscriptions."""
        topic = self._database.read(looks.topic(view.small_number("topic")))
        if topic is None:
            raise HTTPException(404)
        after = _number_after(view.query.get("after"))
        subscriptions = self._database.read(looks.topic_subscriptions(topic.topic_id, after, _PAGE + 1))
        more = subscriptions[_PAGE - 1].queue_id if len(subscriptions) > _PAGE else None
        values = {
            "topic": topic,
            "subscriptions": subscriptions[:_PAGE],
            "figures": {each.number: each for each in self._figures_of([each.queue_id for each in subscriptions])},
            "more": None if more is None else urlencode({"after": more}),
            "rights": self.rights(),
            "title": f"topic://{topic.name}",
        }
        return self._reply(view, "topic.html", values)

    def message(self, view: View) -> Reply:
        """Show a message whole."""
        look = self._found(view)
        table = view.part("table")
        if table not in {"present", "delayed"}:
            raise HTTPException(404)
        place = Place(view.number("first"), view.number("sequence"), table == "delayed")
        if not place.delayed and place.first > 9:
            raise HTTPException(404)
        found = self._database.read(looks.message(look.queue_id, place, look.destination, hidden=self.hidden))
        if found is None:
            gone = {"look": look, "title": "Message", "address": _address_of(look)}
            return Reply("gone.html", gone, status=404)
        properties: list[tuple[str, str, str]] = []
        problem = None
        if found.message is not None:
            try:
                properties = typed_properties(found.message)
            except MessageFormatException as error:
                problem = str(error)
        letter = {name: value for name, _, value in properties if name.startswith("JMS_jmsql_")}
        times = {name: int(letter[name]) for name in _TIMES if _NUMBER_OF_TIME.fullmatch(letter.get(name, ""))}
        values: dict[str, Any] = {
            "look": look,
            "place": place,
            "written": str(place),
            "found": found,
            "header": found.header,
            "properties": properties,
            "stored": from_postgresql(found.properties or ""),
            "problem": problem,
            "body": Body(found.content, found.message),
            "group": next((value for name, _, value in properties if name == "JMSXGroupID"), None),
            "batch": NUMBER.fullmatch(letter.get(BATCH, "")) and letter[BATCH],
            "letter": letter,
            "origin": _origin_of(letter),
            "times": times,
            "died_at": times.get("JMS_jmsql_DeadLetterTime"),
            "first_failure": times.get("JMS_jmsql_FirstFailure"),
            "is_letter": "JMS_jmsql_DeadLetterReason" in letter,
            "rights": self.rights(),
            "retried": self._retries(found.header.message_id) if "JMS_jmsql_DeadLetterReason" in letter else [],
            "has_result": found.header.message_id and self._database.read(has_result(found.header.message_id)),
            "title": f"Message {found.header.sequence}",
        }
        return self._reply(view, "message.html", values)

    def _retries(self, message_id: str | None) -> list[Activity]:
        """Return the retries of a message among the newest actions, the last first."""
        if message_id is None:
            return []
        found, _ = self._database.read(activity(f"ID:{message_id}", LAST, _RETRIES))
        return [each for each in found if each.action == "retry"]

    def dead_letters(self, view: View) -> Reply:
        """Show dead letters by where they come from and why they died."""
        snapshot = self._poller.snapshot()
        origin = view.query.get("origin")
        values = {
            "snapshot": snapshot,
            "letters": [each for each in snapshot.dead_letters if origin in {"", each.group.origin}],
            "origin": origin,
            "cursor": urlencode({"origin": origin}) if origin else "",
            "title": "Dead letters",
            "rights": self.rights(),
        }
        return self._reply(view, "dead_letters.html", values)

    def clients(self, view: View) -> Reply:
        """Show the clients, the holders of messages, and open transactions."""
        after = _number_after(view.query.get("after"), 2**63)
        values = self._poller.shared(("clients", after), lambda: self._clients(after))
        cursor = urlencode({"after": after}) if after else ""
        shown = {"title": "Clients", "cursor": cursor}
        return self._reply(view, "clients.html", values | shown)

    def _clients(self, after: int) -> dict[str, Any]:
        clients, holders, named, usual, transactions, prepared = self._database.read(self._connected(after))
        if self.hidden:
            transactions = [each._replace(query=None) for each in transactions]
        more = clients[_CLIENTS - 1].connection_id if len(clients) > _CLIENTS else None
        return {
            "clients": clients[:_CLIENTS],
            "more": None if more is None else urlencode({"after": more}),
            "holders": holders[:_PAGE],
            "named": named,
            "usual": usual,
            "transactions": transactions[:_PAGE],
            "prepared": prepared[:_PAGE],
            "has_more_holders": len(holders) > _PAGE,
            "further": len(transactions[_PAGE:]) + len(prepared[_PAGE:]),
        }

    def _connected(self, after: int) -> Steps[_Connected]:
        clients = yield from looks.clients(after, _CLIENTS + 1)
        holders = yield from looks.holders(_PAGE + 1)
        found = yield from looks.destinations([each.queue_id for each in holders])
        named = {each.queue_id: each for each in found if each.exists}
        usual = yield from usual_times([each.queue_id for each in holders])
        transactions = yield from diagnosis.transactions
        prepared = yield from diagnosis.prepared_transactions
        return _Connected(clients, holders, named, usual, transactions, prepared)

    def schedules(self, view: View) -> Reply:
        """Show the schedules, with their next and last ticks."""
        rights = self.rights()
        found: list[ScheduleSummary] = []
        if rights.administers and view.is_fragment:
            found = self._poller.shared("schedules", lambda: self._database.read(schedules()))
        elif rights.administers:
            found = self._database.read(schedules())
        if self.hidden:
            found = [each._replace(last_error=each.last_error and "hidden") for each in found]
        values = {
            "schedules": found[:_SCHEDULES],
            "further": len(found[_SCHEDULES:]),
            "rights": rights,
            "title": "Schedules",
            "cursor": "",
        }
        return self._reply(view, "schedules.html", values)

    def history(self, view: View) -> Reply:
        """Show the messages that have left a queue or subscription."""
        look = self._found(view)
        return self._history(view, look.destination, _address_of(look))

    def topic_history(self, view: View) -> Reply:
        """Show the messages that have left the subscriptions of a topic."""
        topic = self._database.read(looks.topic(view.small_number("topic")))
        if topic is None:
            raise HTTPException(404)
        return self._history(view, Topic(topic.name), f"/topics/{topic.topic_id}")

    def _history(self, view: View, origin: Destination, address: str) -> Reply:
        before = _before(view.query.get("before"))
        message_id = view.query.get("message").strip() or None
        past, following = self._database.read(
            looks.history(origin, before, _PAGE, message_id=message_id, hidden=self.hidden)
        )
        more = None
        if following is not None:
            more = urlencode({"before": "{}.{}".format(*following), "message": message_id or ""})
        values = {
            "origin": origin,
            "past": past,
            "more": more,
            "message_id": message_id or "",
            "address": address,
            "title": f"History of {visible(origin.uri)}",
        }
        return self._reply(view, "history.html", values)

    # Acting

    def confirm(self, view: View) -> Reply:
        """Say what an action would do, to how many, and ask."""
        look, action = self._found(view), view.part("action")
        self._require(action, look)
        if view.query.get("chosen") and not view.query.all("key"):
            notice = Notice("No message is chosen. Tick the boxes of messages first.", is_problem=True)
            return Reply(redirect=_back(_address_of(look), view.query), notice=notice)
        try:
            return self._confirmation(view, action, look, view.query)
        except InvalidSelectorException:
            # The queue's page shows the error beside the selector, which can be mended there.
            return Reply(redirect=_back(_address_of(look), view.query))

    def _confirmation(self, view: View, action: str, look: DestinationLook, fields: Form, problem: str = "") -> Reply:
        """Ask before an action on a queue or subscription, with the reason if an attempt has just failed."""
        places = _places(fields)
        selector, state = fields.get("selector"), _state(fields.get("state"))
        cause = _cause(fields.get("cause"))
        group = None
        if cause is not None:
            group = self._database.read(looks.dead_letter_group(look.queue_id, cause, hidden=self.hidden))
        values: dict[str, Any] = {"look": look, "selector": selector, "state": state, "cause": cause, "group": group}
        if action == "move":
            origin = None if group is None else group.origin
            named = self._poller.shared("queue names", lambda: self._database.read(lists.queue_names(_SUGGESTED)))
            first = [origin.removeprefix("queue://")] if origin and origin.startswith("queue://") else []
            values["queues"] = [*first, *(name for name in named if name not in {*first, look.name})]
            values["to"] = fields.get("to")
            values["problem"] = problem
            values["alike"] = get_close_matches(fields.get("to"), values["queues"]) if problem else []
        if action in MESSAGE_ACTIONS:
            if places is not None:
                values |= {"keys": [str(place) for place in places], "count": BoundedCount(len(places))}
                values["named"] = self._database.read(self._named(look.queue_id, places[:_NAMED]))
            else:
                newest = self._actions.newest()
                choice = Choice(looks.parse_selector(selector), state, newest, cause)
                values |= {"newest": newest, "count": self._actions.count(action, look.queue_id, choice)}
        return self._ask(view, action, look.destination, _address_of(look), values, fields)

    def _named(self, queue_id: int, places: list[Place]) -> Steps[list[tuple[Place, ListedMessage]]]:
        """Return the messages that are at places, as a list shows them."""
        found = []
        for place in places:
            before = place._replace(sequence=place.sequence - 1)
            page = yield from looks.messages(queue_id, Choice(), before, 1, hidden=self.hidden)
            found += [each for each in page.messages if each[0] == place]
        return found

    def _ask(
        self,
        view: View,
        action: str,
        destination: Destination,
        address: str,
        values: dict[str, Any],
        fields: Form,
    ) -> Reply:
        """Ask before an action on a destination; without a count, it is not about a number of messages."""
        common: dict[str, Any] = {
            "action": action,
            "verb": _VERBS[action],
            "title": f"{_VERBS[action]}?",
            "address_of_message": message_address,
            "destination": destination,
            "message_id": fields.get("message_id"),
            "submission": new_submission(),
            "count": None,
            "keys": [],
            "named": [],
            "target": f"{view.base}{address}/{action}",
            "back": _back(address, fields),
            "origin_page": [(name, fields.get(name)) for name in ("from", "origin") if fields.get(name)],
        }
        return self._reply(view, "confirm.html", {**common, **values})

    def act(self, view: View) -> Reply:
        """Do it, and go back with the number of messages that it was."""
        look, action, form = self._found(view), view.part("action"), view.form
        self._require(action, look)
        address = _back(_address_of(look), form)
        if action in MESSAGE_ACTIONS:
            try:
                notice = self._change_messages(view, action, look)
            except InvalidDestinationException as error:
                if action != "move":
                    raise
                return replace(self._confirmation(view, action, look, form, str(error)), status=409)
        elif action in _DESTINATION_ACTIONS:
            notice = self._change_destination(view, action, look.destination)
        elif action == "cancel":
            outcome = self._actions.cancel(view.actor, look, form.get("message_id"))
            notice = Notice(_CANCELLED[outcome], is_problem=outcome in {Cancellation.locked, Cancellation.gone})
        else:
            self._actions.unsubscribe(view.actor, look, form.get("name"))
            address = f"/topics/{look.topic_id}"
            notice = Notice(f"The subscription {visible(look.subscription)} was deleted.")
        return self._redirect(address, notice)

    def _change_messages(self, view: View, action: str, look: DestinationLook) -> Notice:
        form = view.form
        places = _places(form)
        newest = form.get("newest")
        if places is None and not NUMBER.fullmatch(newest):
            raise HTTPException(400, "The form does not say which messages are meant.")
        choice = Choice(
            looks.parse_selector(form.get("selector")),
            _state(form.get("state")),
            min(int(newest), 2**63 - 1) if places is None else 0,
            _cause(form.get("cause")),
        )
        target = form.get("to").strip() if action == "move" else None
        done = self._actions.apply(view.actor, action, look, places=places, choice=choice, target=target)
        said = _said(action, done, None if places is None else len(places), target)
        return Notice(said, done.unfinished, *_next_step(action, done, target))

    def _change_destination(self, view: View, action: str, destination: Destination) -> Notice:
        if action == "send":
            return self._send(view, destination)
        self._actions.set_paused(view.actor, destination, paused=action == "pause")
        return Notice(f"{visible(destination)} is paused." if action == "pause" else "Delivery goes on.")

    def _send(self, view: View, destination: Destination) -> Notice:
        form = view.form
        priority = form.get("priority")
        if priority not in set("0123456789"):
            raise JMSException("The priority is a number from 0 to 9.")
        text = form.get("text").replace("\r\n", "\n")
        identifier = self._actions.send(
            view.actor, destination, text, priority=int(priority), jms_type=form.get("jms_type") or None
        )
        return Notice(f"1 message was sent: {identifier}.")

    def confirm_topic(self, view: View) -> Reply:
        """Say what an action would do to a topic, and ask."""
        topic, action = self._topic(view)
        return self._ask(view, action, Topic(topic.name), f"/topics/{topic.topic_id}", {}, view.query)

    def act_topic(self, view: View) -> Reply:
        """Do it."""
        topic, action = self._topic(view)
        return self._redirect(f"/topics/{topic.topic_id}", self._change_destination(view, action, Topic(topic.name)))

    def confirm_schedule(self, view: View) -> Reply:
        """Say what an action would do to a schedule, and ask."""
        action, found = self._scheduled(view, view.query.get("name"))
        values = {
            "schedule": found,
            "action": action,
            "target": f"{view.base}/schedules/{action}",
            "submission": new_submission(),
            "title": f"{_SCHEDULE_VERBS[action]}?",
            "verb": _SCHEDULE_VERBS[action],
        }
        return self._reply(view, "confirm_schedule.html", values)

    def act_schedule(self, view: View) -> Reply:
        """Do it."""
        action, found = self._scheduled(view, view.form.get("name"))
        name = visible(found.name)
        if action == "send":
            identifier = self._actions.send_scheduled(view.actor, found)
            notice = Notice(f"1 message was sent: {identifier}.")
        else:
            self._actions.pause_schedule(view.actor, found, paused=action == "pause")
            notice = Notice(f"The schedule {name} is paused." if action == "pause" else f"The schedule {name} goes on.")
        return self._redirect("/schedules", notice)

    def _scheduled(self, view: View, name: str) -> tuple[str, ScheduleSummary]:
        action = view.part("action")
        found = self._database.read(schedules(name)) if action in _SCHEDULE_VERBS and name else []
        if not found:
            raise HTTPException(404)
        return action, found[0]

    def _topic(self, view: View) -> tuple[looks.TopicLook, str]:
        topic = self._database.read(looks.topic(view.small_number("topic")))
        action = view.part("action")
        if topic is None or action not in _DESTINATION_ACTIONS:
            raise HTTPException(404)
        return topic, action

    def _require(self, action: str, look: DestinationLook) -> None:
        is_known = action in _VERBS and (action != "delete" or look.is_subscription)
        is_known = is_known and not (look.is_subscription and action in {"send", "pause", "resume", "move"})
        if not is_known:
            raise HTTPException(404)

    # Shared parts of pages

    def _found(self, view: View) -> DestinationLook:
        number = view.small_number("queue")

        def found() -> DestinationLook | None:
            return self._database.read(looks.destination(number))

        # A whole page shows the effect of an action at once. Its live part may be a moment old, and is one for all.
        look = self._poller.shared(("look", number), found) if view.is_fragment else found()
        if look is None:
            raise HTTPException(404)
        return look

    def rights(self) -> Rights:
        """Return the rights of the console's role."""
        return self._poller.shared("rights", lambda: self._database.read(looks.rights))

    def _reply(self, view: View, template: str, values: dict[str, Any]) -> Reply:
        if view.is_fragment and template in _LIVE:
            self._poller.touch()
            return Reply(template, values, is_fragment=True)
        return Reply(template, values)

    def _redirect(self, address: str, notice: Notice) -> Reply:
        self._poller.forget()
        return Reply(redirect=address, notice=notice)

    def _once(self, act: Callable[[View], Reply]) -> Callable[[View], Reply]:
        """Let a form that a browser submits again, as at a double click, act once."""

        def answer(view: View) -> Reply:
            reply, is_repeated = self._submissions.run(view, act)
            if reply.notice is None or not is_repeated:
                return reply
            return replace(reply, notice=reply.notice._replace(text=f"{reply.notice.text} {_REPEATED}"))

        return answer


class _Connected(NamedTuple):
    clients: list[looks.ClientLook]
    holders: list[looks.Holding]
    named: dict[int, DestinationLook]
    usual: dict[int, float]
    transactions: list[diagnosis.TransactionHolder]
    prepared: list[diagnosis.PreparedTransaction]


class _Contents(NamedTuple):
    page: Page[ListedMessage]
    has_letters: bool
    group: looks.DeadLetterGroup | None
    settings: dict[str, Any]
    created_at: datetime | None
    subscription: looks.SubscriptionLook | None
    consumers: list[looks.ConsumerLook]
    keeps_results: bool


_PAGES_WITH_ACTIONS = {"dead-letters": "/dead-letters", "overview": "/"}
"""The pages that offer actions on several destinations, by the field that leads back to them."""
_DESTINATION_ACTIONS = {"pause", "resume", "send"}
_VERBS = {
    "retry": "Retry dead letters",
    "deliver": "Deliver messages now",
    "move": "Move messages",
    "cancel": "Cancel the message",
    "purge": "Delete messages",
    "pause": "Pause delivery",
    "resume": "Resume delivery",
    "delete": "Delete the subscription",
    "send": "Send a text",
}


_REPEATED = "The form was submitted again, and carried out once."
_CANCELLED = {
    Cancellation.removed: "The message is cancelled: it waited, and is not delivered any more.",
    Cancellation.asked: "The message is cancelled: its client is told, and cannot commit its work any more.",
    Cancellation.locked: "An open transaction has locked the message: it stays. Cancel it again later.",
    Cancellation.gone: "There is nothing to cancel: the message was handled, has expired or is a dead letter.",
}
_SCHEDULE_VERBS = {"pause": "Pause the schedule", "resume": "Resume the schedule", "send": "Send its message now"}


def _said(action: str, done: Done, chosen: int | None, target: str | None) -> str:
    verb = {
        "retry": "went back to where they come from",
        "deliver": "can be received now",
        "move": f"moved to {visible(target)}",
        "purge": "deleted",
    }[action]
    noun = "message" if done.number == 1 else "messages"
    text = f"{done.number:,} {noun} {verb}." if action != "purge" else f"{done.number:,} {noun} deleted."
    gone = sum(done.gone.values())
    if gone:
        shown = sorted(done.gone.items())[:_ORIGINS]
        origins = " and ".join(f"{visible(origin)} ({number:,})" for origin, number in shown)
        more = f" and {len(done.gone) - _ORIGINS:,} more" if len(done.gone) > _ORIGINS else ""
        text += f" {gone:,} stayed: {origins}{more} {'is' if len(done.gone) == 1 else 'are'} gone. Move them elsewhere."
    if chosen is not None and done.number + gone < chosen:
        held = {
            "retry": "no dead letters, a client holds them",
            "deliver": "they do not wait, a client holds them",
        }.get(action, "a client holds them")
        text += f" {chosen - done.number - gone:,} stayed: {held}, or they are gone."
    if done.unfinished:
        text += " It took long, and stopped before the end: repeat it to go on."
    return text


def _next_step(action: str, done: Done, target: str | None) -> tuple[str, str, str]:
    """Return a sentence, and the text and address of the link behind it; empty texts: there is none."""
    if action == "retry" and done.number:
        return "If the cause lasts, they fail again, and come back as new", "dead letters", "/dead-letters"
    if action == "move" and done.number and target:
        name = target.removeprefix("queue://")
        return "See the queue", visible(name), f"/origin?{urlencode({'destination': f'queue://{name}'})}"
    return "", "", ""


def _matching(
    page: Page[ListedMessage], figures: DestinationOverview | None, *, is_first: bool, is_filtered: bool
) -> BoundedCount | None:
    """Return how many messages match the filter, as far as the page knows without counting them."""
    if is_first and page.next is None:
        return BoundedCount(len(page.messages))
    if is_filtered or figures is None:
        return BoundedCount(len(page.messages), has_more=True) if is_first else None
    return figures.messages


def _has_waiting(figures: DestinationOverview | None, page: Page[ListedMessage]) -> bool:
    """Tell whether messages wait for a retry or a delivery time, as far as is known."""
    if any(each.state in {MessageState.WAITING, MessageState.DELAYED} for _, each in page.messages):
        return True
    counts = () if figures is None else (figures.waiting, figures.delayed)
    return any(count is not None and count.number > 0 for count in counts)


def _title(look: DestinationLook) -> str:
    if look.is_subscription:
        return f"{look.subscription or 'subscription'} of {look.name}"
    return look.name or ""


def _address_of(look: DestinationLook) -> str:
    return f"/destinations/{look.queue_id}"


def _back(address: str, fields: Form) -> str:
    """Return the address of the page from which an action began, with its filter."""
    page = _PAGES_WITH_ACTIONS.get(fields.get("from"))
    names = ("selector", "state", "cause") if page is None else ("origin",)
    given = {name: fields.get(name) for name in names if fields.get(name)}
    return (page or address) + (f"?{urlencode(given)}" if given else "")


def _address(found: looks.Found) -> str:
    return f"/topics/{found.topic_id}" if found.queue_id is None else f"/destinations/{found.queue_id}"


def _sum(counts: Iterable[BoundedCount], *, has_more: bool) -> BoundedCount:
    known = list(counts)
    return BoundedCount(sum(each.number for each in known), has_more or any(each.has_more for each in known))


def _origin_of(letter: dict[str, str]) -> dict[str, str] | None:
    """Return the address of a dead letter's origin, as the fields of a query."""
    if "JMS_jmsql_OriginalDestination" not in letter:
        return None
    fields = {"destination": "Destination", "subscription": "Subscription", "client_id": "ClientID"}
    named = {field: letter.get(f"JMS_jmsql_Original{name}", "") for field, name in fields.items()}
    return {field: value for field, value in named.items() if value or field == "destination"}


def _number_after(text: str, end: int = 2**31) -> int:
    """Return the number after which a list goes on; 0 begins it."""
    if not text:
        return 0
    if not NUMBER.fullmatch(text) or int(text) >= end:
        raise HTTPException(400, "The address does not say after which number the list goes on.")
    return int(text)


def _place_after(text: str) -> Place:
    """Return the place after which a list goes on."""
    if not text:
        return BEGINNING
    try:
        return Place.parse(text)
    except ValueError as error:
        raise HTTPException(400, "The address does not say after which message the list goes on.") from error


def _before(text: str) -> tuple[str, int] | None:
    """Return the transaction and the sequence before which the history goes on; None begins it."""
    if not text:
        return None
    transaction, _, sequence = text.partition(".")
    for part, end in ((transaction, 2**64), (sequence, 2**63)):
        if not _TRANSACTION.fullmatch(part) or int(part) >= end:
            raise HTTPException(400, "The address does not say before which message the history goes on.")
    return transaction, int(sequence)


def _places(fields: Form) -> list[Place] | None:
    """Return the places of the chosen messages; None: the messages are not named one by one.

    Raises:
        HTTPException: One is named wrongly, or none is chosen though some were to be.
    """
    keys = fields.all("key")
    if not keys:
        if fields.get("chosen"):
            raise HTTPException(400, "No message is chosen. Go back, and choose some.")
        return None
    try:
        return list(dict.fromkeys(map(Place.parse, keys)))
    except ValueError as error:
        raise HTTPException(400, "A message is named in a way that cannot be read.") from error


def _state(text: str) -> MessageState | None:
    if not text:
        return None
    try:
        return MessageState(text)
    except ValueError as error:
        raise HTTPException(400, f"There is no such state. There are {', '.join(MessageState)}.") from error


def _cause(text: str) -> str | None:
    if text and not _CAUSE.fullmatch(text):
        raise HTTPException(400, "The address does not say which dead letters are meant.")
    return text or None
