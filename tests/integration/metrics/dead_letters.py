"""Dead letters, as maintenance leaves them."""

from __future__ import annotations

import psycopg
import sqlalchemy


def insert_letters(url: str, number: int, *, seconds_ago: float) -> None:
    """Insert dead letters that came some time ago, behind a message that is none."""
    bare = sqlalchemy.make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    with psycopg.connect(bare) as database:
        database.execute("insert into jmsql_internal.queue (name) values ('DLQ') on conflict (name) do nothing")
        database.execute(
            "insert into jmsql_internal.message (queue_id, inverse_priority, jms_delivery_mode, message_type, "
            "properties) select queue_id, n %% 10, 2, 'Message', case when n > 0 then jsonb_build_object("
            "'JMS_jmsql_DeadLetterReason', 'maximum deliveries', 'JMS_jmsql_DeadLetterTime', "
            "jmsql_internal.current_milliseconds() - %s) end "
            "from jmsql_internal.queue, generate_series(0, %s) n where name = 'DLQ' order by n",
            [int(seconds_ago * 1000), number],
        )
