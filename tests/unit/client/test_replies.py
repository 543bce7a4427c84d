"""Replies that come while their requests are being sent."""

from __future__ import annotations

import threading
from typing import Any, cast

from jmsql import Message, TextMessage
from jmsql.client._sync.connection.requestor import Replies, _Pending

OWN_ID = "the requestor's own"


def test_a_reply_that_comes_as_the_send_returns_is_kept() -> None:
    has_come, send_has_returned = threading.Event(), threading.Event()

    class Pending(_Pending):
        """A request whose listener pauses just before it gives it the reply, while the send returns, if it can."""

        _reply: Message | None = None

        @property
        def reply(self) -> Message | None:
            return self._reply

        @reply.setter
        def reply(self, reply: Message | None) -> None:
            if threading.current_thread() is listener:
                has_come.set()
                send_has_returned.wait(0.2)
            self._reply = reply

    class Early(dict[str, Message]):
        def get(self, key: str, default: Any = None) -> Any:
            send_has_returned.set()
            listener.join(60)
            return super().get(key, default)

    reply = TextMessage("reply")
    reply.jms_correlation_id = OWN_ID
    unused = cast(Any, None)
    replies = Replies(unused, unused, unused, unused)
    replies._early = Early()
    listener = threading.Thread(target=replies._replied, args=[reply], daemon=True)
    replies._pending[OWN_ID] = pending = Pending()
    listener.start()
    assert has_come.wait(60)
    replies._sent("ID:of the request", pending)
    listener.join(60)
    assert pending.reply is reply
