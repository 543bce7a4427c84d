-- What \d+ tells of the views: their columns, with units, and what null means.

comment on column jmsql.destinations.kind is 'queue or topic';
comment on column jmsql.destinations.destination is 'Its name';
comment on column jmsql.destinations.temporary is 'Whether it ends with the connection that has made it';
comment on column jmsql.destinations.settings is 'The settings that differ from the defaults, by their names';
comment on column jmsql.destinations.created_at is 'When it was made';

comment on column jmsql.queues.queue is 'The name of the queue';
comment on column jmsql.queues.ready is 'Messages that a consumer could have now, or that an open transaction holds';
comment on column jmsql.queues.claimed is 'Messages that a session holds and has not acknowledged';
comment on column jmsql.queues.waiting is 'Messages that wait for their next attempt';
comment on column jmsql.queues.expired is 'Messages that have expired and are about to be removed';
comment on column jmsql.queues.redelivered is 'Messages that were delivered before';
comment on column jmsql.queues.oldest_sent_at is
    'When the oldest message was sent; null: no message is there, or none has a time';
comment on column jmsql.queues.expiry_queue is 'Where messages go that expire; null: they are removed';
comment on column jmsql.queues.created_at is 'When the queue was made';
comment on column jmsql.queues.delayed is 'Messages that wait for their delivery time';

comment on column jmsql.subscriptions.topic is 'The name of the topic';
comment on column jmsql.subscriptions.subscription is 'Its name; null: it is neither durable nor shared';
comment on column jmsql.subscriptions.client_id is 'The client identifier that it belongs to; null: none';
comment on column jmsql.subscriptions.durable is 'Whether it outlives its consumers';
comment on column jmsql.subscriptions.shared is 'Whether several consumers may share it';
comment on column jmsql.subscriptions.selector is 'Which messages it gets; null: all';
comment on column jmsql.subscriptions.no_local is 'Whether it leaves out messages of its own connection';
comment on column jmsql.subscriptions.consumers is 'How many consumers receive from it now';
comment on column jmsql.subscriptions.ready is
    'Messages that a consumer could have now, or that an open transaction holds';
comment on column jmsql.subscriptions.claimed is 'Messages that a session holds and has not acknowledged';
comment on column jmsql.subscriptions.waiting is 'Messages that wait for their next attempt';
comment on column jmsql.subscriptions.expired is 'Messages that have expired and are about to be removed';
comment on column jmsql.subscriptions.redelivered is 'Messages that were delivered before';
comment on column jmsql.subscriptions.oldest_sent_at is
    'When the oldest message was sent; null: no message is there, or none has a time';
comment on column jmsql.subscriptions.created_at is 'When it was made';
comment on column jmsql.subscriptions.delayed is 'Messages that wait for their delivery time';

comment on column jmsql.messages.queue is 'The name of the queue; null: it is in a subscription';
comment on column jmsql.messages.priority is 'JMSPriority, 0 to 9; 9 is delivered first';
comment on column jmsql.messages.sequence is 'The number that orders messages of the same priority';
comment on column jmsql.messages.state is 'ready, waiting, delayed, claimed or expired';
comment on column jmsql.messages.type is
    'TextMessage, BytesMessage, MapMessage, StreamMessage, ObjectMessage or Message';
comment on column jmsql.messages.message_id is 'JMSMessageID; null: its producer has disabled it';
comment on column jmsql.messages.sent_at is 'JMSTimestamp; null: its producer has disabled it';
comment on column jmsql.messages.expires_at is 'JMSExpiration; null: never';
comment on column jmsql.messages.delivery_mode is 'PERSISTENT or NON_PERSISTENT';
comment on column jmsql.messages.correlation_id is 'JMSCorrelationID; null: none';
comment on column jmsql.messages.reply_to is 'JMSReplyTo, as queue://NAME or topic://NAME; null: none';
comment on column jmsql.messages.jms_type is 'JMSType; null: none';
comment on column jmsql.messages.properties is 'The properties, by their names';
comment on column jmsql.messages.body is
    'The body: text; maps, streams and objects as JSON; bytes in hexadecimal after \x; null: none';
comment on column jmsql.messages.delivery_count is 'How often it was delivered and not acknowledged';
comment on column jmsql.messages.claimed_by is 'The connection_id of the client that holds it; null: none does';
comment on column jmsql.messages.claimed_at is 'Since when it is held; null: it is not';
comment on column jmsql.messages.next_attempt is 'When it is delivered again at the earliest; null: at once';
comment on column jmsql.messages.last_error is 'Why its last delivery failed; null: none has failed with an error';
comment on column jmsql.messages.topic is 'The topic of its subscription; null: it is in a queue';
comment on column jmsql.messages.subscription is 'The name of its subscription; null: it has none, or is in a queue';
comment on column jmsql.messages.client_id is 'The client identifier of its subscription; null: none';
comment on column jmsql.messages.delivery_time is 'JMSDeliveryTime; null: it was sent without a delay';
comment on column jmsql.messages.group_id is 'JMSXGroupID; null: it is in no group';

comment on column jmsql.message_groups.queue is 'The name of the queue; null: it is in a subscription';
comment on column jmsql.message_groups.topic is 'The topic of the subscription; null: it is in a queue';
comment on column jmsql.message_groups.subscription is
    'The name of the subscription; null: it has none, or is a queue';
comment on column jmsql.message_groups.client_id is 'The client identifier of the subscription; null: none';
comment on column jmsql.message_groups.group_id is 'JMSXGroupID';
comment on column jmsql.message_groups.messages is 'How many messages it has';
comment on column jmsql.message_groups.claimed is 'How many of them a session holds';
comment on column jmsql.message_groups.claimed_by is 'The connection_id of the client that holds them; null: none does';
comment on column jmsql.message_groups.next_attempt is
    'Until when it waits for a message that failed; null: it does not';
comment on column jmsql.message_groups.oldest_sent_at is
    'When the oldest message was sent; null: none has a time';

comment on column jmsql.dead_letters.queue is 'The dead-letter queue where it is';
comment on column jmsql.dead_letters.sequence is 'Its number there';
comment on column jmsql.dead_letters.original_destination is
    'Where it comes from, as queue://NAME or topic://NAME; null: that was gone';
comment on column jmsql.dead_letters.original_subscription is 'The name of the subscription; null: none';
comment on column jmsql.dead_letters.reason is
    'maximum deliveries, maximum retries, rejected or unreadable (see redelivery), or expired';
comment on column jmsql.dead_letters.deliveries is 'How many deliveries failed; null: it has expired without any';
comment on column jmsql.dead_letters.error is 'The last line of the last error; null: there was none';
comment on column jmsql.dead_letters.first_failed_at is 'When a delivery failed for the first time; null: none did';
comment on column jmsql.dead_letters.died_at is 'When it became a dead letter';
comment on column jmsql.dead_letters.message_id is 'JMSMessageID; null: its producer has disabled it';
comment on column jmsql.dead_letters.type is
    'TextMessage, BytesMessage, MapMessage, StreamMessage, ObjectMessage or Message';
comment on column jmsql.dead_letters.priority is 'JMSPriority, 0 to 9';
comment on column jmsql.dead_letters.sent_at is 'JMSTimestamp; null: its producer has disabled it';
comment on column jmsql.dead_letters.expires_at is 'When it expired, or would have; null: never';
comment on column jmsql.dead_letters.correlation_id is 'JMSCorrelationID; null: none';
comment on column jmsql.dead_letters.jms_type is 'JMSType; null: none';
comment on column jmsql.dead_letters.properties is 'The properties as it was sent, by their names';
comment on column jmsql.dead_letters.body is
    'The body: text; maps, streams and objects as JSON; bytes in hexadecimal after \x; null: none';
comment on column jmsql.dead_letters.original_client_id is 'The client identifier of the subscription; null: none';
comment on column jmsql.dead_letters.last_error is 'All of the last error; null: there was none';

comment on column jmsql.clients.connection_id is 'The number of the connection';
comment on column jmsql.clients.client_id is 'Its client identifier; null: it has set none';
comment on column jmsql.clients.user_name is 'Its role in PostgreSQL';
comment on column jmsql.clients.host is 'The machine on which it runs';
comment on column jmsql.clients.process_id is 'Its process on that machine';
comment on column jmsql.clients.started_at is 'When it connected';
comment on column jmsql.clients.connected is 'Whether it lives, by its lock or its heartbeats';
comment on column jmsql.clients.claimed is 'How many messages it holds';
comment on column jmsql.clients.heartbeat_at is 'Its last heartbeat; null: it is not behind a pooler, and sends none';

comment on column jmsql.consumers.queue is 'The name of the queue; null: it receives from a subscription';
comment on column jmsql.consumers.topic is 'The topic of the subscription; null: it receives from a queue';
comment on column jmsql.consumers.subscription is 'The name of the subscription; null: it has none, or is a queue';
comment on column jmsql.consumers.client_id is 'The client identifier of the subscription; null: none';
comment on column jmsql.consumers.selector is 'Which messages it receives; null: all';
comment on column jmsql.consumers.consumers is 'How many consumers the connection has there';
comment on column jmsql.consumers.connection_id is 'The number of the connection, as in clients';
comment on column jmsql.consumers.host is 'The machine on which the client runs';
comment on column jmsql.consumers.process_id is 'Its process on that machine';
comment on column jmsql.consumers.user_name is 'Its role in PostgreSQL';
comment on column jmsql.consumers.acknowledged is
    'How many deliveries of the queue the connection has ended with the message gone, whatever the selector';
comment on column jmsql.consumers.rolled_back is 'How many it has released';
comment on column jmsql.consumers.listeners is 'The names of the worker''s listeners; null: it is no worker';
comment on column jmsql.consumers.last_at is 'When it has ended the last one, to a second; null: none yet';

comment on column jmsql.counters.kind is 'queue, topic or subscription';
comment on column jmsql.counters.destination is 'The name of the queue or topic';
comment on column jmsql.counters.subscription is
    'The name of the subscription; null: it has none, or is no subscription';
comment on column jmsql.counters.client_id is 'The client identifier of the subscription; null: none';
comment on column jmsql.counters.sent is 'Messages that clients have sent to the queue, or published on the topic';
comment on column jmsql.counters.acknowledged is 'Deliveries that ended with the message gone';
comment on column jmsql.counters.rolled_back is 'Deliveries that were released';
comment on column jmsql.counters.redelivered is 'How many of these deliveries were not the first of their message';
comment on column jmsql.counters.time_in_queue_seconds is
    'The time of the acknowledged messages from their sending, or their delivery time, to their acknowledgement, in all';
comment on column jmsql.counters.calls is 'Calls of workers'' handlers that ended';
comment on column jmsql.counters.handling_seconds is 'The duration of these calls, with their commits, in all';

comment on column jmsql.history.destination is 'The name of the queue or topic, which may be gone';
comment on column jmsql.history.destination_type is 'queue or topic';
comment on column jmsql.history.subscription is
    'The name of the subscription that had it; null: it has none, or is a queue';
comment on column jmsql.history.acknowledged_at is 'When it left';
comment on column jmsql.history.outcome is 'acknowledged, expired, dead-lettered, purged or cancelled';
comment on column jmsql.history.delivery_count is 'How often it was delivered, the last time included';
comment on column jmsql.history.time_in_queue is
    'Since it was sent, or since its delivery time; null: its producer has disabled times';
comment on column jmsql.history.priority is 'JMSPriority, 0 to 9';
comment on column jmsql.history.type is
    'TextMessage, BytesMessage, MapMessage, StreamMessage, ObjectMessage or Message';
comment on column jmsql.history.message_id is 'JMSMessageID; null: its producer has disabled it';
comment on column jmsql.history.sent_at is 'JMSTimestamp; null: its producer has disabled it';
comment on column jmsql.history.expires_at is 'JMSExpiration; null: never';
comment on column jmsql.history.delivery_time is 'JMSDeliveryTime; null: it was sent without a delay';
comment on column jmsql.history.delivery_mode is 'PERSISTENT or NON_PERSISTENT';
comment on column jmsql.history.correlation_id is 'JMSCorrelationID; null: none';
comment on column jmsql.history.reply_to is 'JMSReplyTo, as queue://NAME or topic://NAME; null: none';
comment on column jmsql.history.jms_type is 'JMSType; null: none';
comment on column jmsql.history.properties is 'The properties, by their names';
comment on column jmsql.history.body is
    'The body: text; maps, streams and objects as JSON; bytes in hexadecimal after \x; null: none';
comment on column jmsql.history.consumed_by is 'The connection_id of the client that acknowledged it; null: none did';
comment on column jmsql.history.client_id is 'The client identifier of that client; null: none';
comment on column jmsql.history.user_name is 'The role in PostgreSQL that ended it';
comment on column jmsql.history.subscription_client_id is 'The client identifier of the subscription; null: none';
comment on column jmsql.history.transaction_id is 'The transaction that ended it';
comment on column jmsql.history.sequence is 'Its number; with transaction_id, a cursor';
comment on column jmsql.history.property_types is 'The types of properties that JSON does not tell; null: none';
comment on column jmsql.history.text_body is 'The body as it is stored, if it is text; else null';
comment on column jmsql.history.json_body is
    'The body as it is stored, if it is a map, a stream or an object; else null';
comment on column jmsql.history.body_types is 'The types of values in json_body that JSON does not tell; null: none';
comment on column jmsql.history.bytes_body is 'The body as it is stored, if it is bytes; else null';

comment on column jmsql.history_days.day is 'The day, in UTC';
comment on column jmsql.history_days.partition is 'The table that holds it';
comment on column jmsql.history_days.estimated_messages is
    'How many messages it had when PostgreSQL last vacuumed or analyzed it';
comment on column jmsql.history_days.bytes is 'How much room it takes on disk, with its indexes';
comment on column jmsql.history_days.settled is 'Whether nothing will be added to it any more';

comment on column jmsql.grants.kind is 'queue or topic; null: all destinations';
comment on column jmsql.grants.destination is 'The name of the queue or topic; null: all destinations';
comment on column jmsql.grants.role is 'The role that has access';
comment on column jmsql.grants.send is 'Whether it may send';
comment on column jmsql.grants.receive is 'Whether it may receive';
comment on column jmsql.grants.browse is 'Whether it may browse';
comment on column jmsql.grants.administer is 'Whether it may administer';

comment on column jmsql.spark_sources.source_id is 'The number of the read, which stands in its checkpoint';
comment on column jmsql.spark_sources.queue is 'The queue that it reads; null: a topic, or the history of all';
comment on column jmsql.spark_sources.topic is 'The topic that it reads; null: a queue, or the history of all';
comment on column jmsql.spark_sources.subscription is 'The name of the subscription; null: none';
comment on column jmsql.spark_sources.epoch is 'How many drivers have read with it';
comment on column jmsql.spark_sources.last_batch is 'The last batch that was acknowledged; null: it reads the history';
comment on column jmsql.spark_sources.claimed is 'How many messages it holds';
comment on column jmsql.spark_sources.created_at is 'When it began';
comment on column jmsql.spark_sources.used_at is 'When it was last used';
comment on column jmsql.spark_sources.history is 'Whether it reads the history';
comment on column jmsql.spark_sources.position is
    'TRANSACTION/SEQUENCE, before which it has read all of the history; null: it reads a queue or subscription';
comment on column jmsql.spark_sources.lag is
    'The time since it had read all of the history; null: it reads a queue or subscription';
