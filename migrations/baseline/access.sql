-- What roles may touch: as little as clients need, so that no privilege leads to more than was given. What policies let
-- through, triggers then do with the owner's rights.
--
-- The policies do nothing until the first grant enables row security. To which destinations a role has access, and
-- whether to all, is asked in scalar subqueries, once a statement; to which comes first, since the other need not be asked
-- then. Where messages are sent and received, administrators have no policy of their own beside the others, which would
-- be asked each time: who may do everything may do what these let through.

-- Messages.

create policy may_delete on jmsql_internal.message for delete
    using ((select jmsql_internal.has_access_to_all('administer', current_user)));
create policy may_select on jmsql_internal.message for select
    using (queue_id = any ((select jmsql_internal.accessible_queues('browse', current_user))::integer[])
           or (select jmsql_internal.has_access_to_all('browse', current_user)));
-- `refuse_to_send` names the role and the destination in its error. It runs for refused messages alone.
create policy may_insert on jmsql_internal.message for insert
    with check (
        (queue_id = any ((select jmsql_internal.accessible_queues('send', current_user))::integer[])
         or (select jmsql_internal.has_access_to_all('send', current_user))
         or jmsql_internal.refuse_to_send(queue_id))
        and (jmsql_internal.may_send_properties(properties)
             or (select jmsql_internal.has_access_to_all('administer', current_user))));
-- A row is locked by who could change some column of it; the policy lets nobody do that.
create policy may_update on jmsql_internal.message for update
    using (queue_id = any ((select jmsql_internal.accessible_queues('receive', current_user))::integer[])
           or (select jmsql_internal.has_access_to_all('receive', current_user)))
    with check ((select jmsql_internal.has_access_to_all('administer', current_user)));

create policy administrators on jmsql_internal.delayed_message
    using ((select jmsql_internal.has_access_to_all('administer', current_user)))
    with check ((select jmsql_internal.has_access_to_all('administer', current_user)));
create policy may_select on jmsql_internal.delayed_message for select
    using (queue_id = any ((select jmsql_internal.accessible_queues('browse', current_user))::integer[])
           or (select jmsql_internal.has_access_to_all('browse', current_user)));
create policy may_insert on jmsql_internal.delayed_message for insert
    with check (
        (queue_id = any ((select jmsql_internal.accessible_queues('send', current_user))::integer[])
         or (select jmsql_internal.has_access_to_all('send', current_user))
         or jmsql_internal.refuse_to_send(queue_id))
        and jmsql_internal.may_send_properties(properties));

-- What refers to a body is subject to its own policy. A consumer's messages do, nearly always; what else may refer to it
-- stands in a function, since a statement prepares all parts of the policies of what it could come to read, each time.
create function jmsql_internal.may_read_body(body bigint) returns boolean
    language plpgsql stable
    set search_path = pg_catalog, pg_temp
as $$
begin
    return jmsql_internal.has_access_to_all('administer', current_user)
        or exists (select from jmsql_internal.delayed_message d where d.body_id = body)
        or exists (select from jmsql_internal.message_history h where h.body_id = body);
end
$$;
comment on function jmsql_internal.may_read_body(bigint) is
    'Whether the current role administers, or may read something beside messages in queues that has this body.';
create policy may_delete on jmsql_internal.body for delete
    using ((select jmsql_internal.has_access_to_all('administer', current_user)));
create policy may_select on jmsql_internal.body for select
    using (transaction_id = (select pg_current_xact_id_if_assigned())
           or exists (select from jmsql_internal.message m where m.body_id = body.body_id)
           or jmsql_internal.may_read_body(body_id));
create policy may_insert on jmsql_internal.body for insert with check (true);

create function jmsql_internal.check_body() returns trigger
    language plpgsql security definer set search_path = pg_catalog, pg_temp
as $$
begin
    if not exists (select from jmsql_internal.body b
                   where b.body_id = new.body_id and b.transaction_id = pg_current_xact_id()) then
        raise insufficient_privilege using message = 'a message can only have a body that was stored with it';
    end if;
    return null;
end
$$;
comment on function jmsql_internal.check_body() is 'Refuses messages with the bodies of others.';
create trigger bodies_are_stored_with_their_messages after insert on jmsql_internal.message
    for each row when (new.body_id is not null and row_security_active('jmsql_internal.message'::regclass)
                       and not jmsql_internal.has_access_to_all('administer', current_user))
    execute function jmsql_internal.check_body();
create trigger bodies_are_stored_with_their_messages after insert on jmsql_internal.delayed_message
    for each row when (new.body_id is not null and row_security_active('jmsql_internal.delayed_message'::regclass)
                       and not jmsql_internal.has_access_to_all('administer', current_user))
    execute function jmsql_internal.check_body();

create policy administrators on jmsql_internal.message_history
    using ((select jmsql_internal.has_access_to_all('administer', current_user)))
    with check ((select jmsql_internal.has_access_to_all('administer', current_user)));
create policy may_select on jmsql_internal.message_history for select
    using (queue_id = any ((select jmsql_internal.accessible_queues('browse', current_user))::integer[])
           or (select jmsql_internal.has_access_to_all('browse', current_user)));

-- The state of delivery. There is nothing in it that the maintenance or a view would stumble over; and a dead letter
-- goes to the queue that the destination names, to DLQ, or to where the role may send.

create policy may_delete on jmsql_internal.delivery for delete
    using ((select jmsql_internal.has_access_to_all('administer', current_user)));
create policy may_select on jmsql_internal.delivery for select
    using (queue_id = any ((select jmsql_internal.accessible_queues('browse', current_user))::integer[])
           or (select jmsql_internal.has_access_to_all('browse', current_user)));
create policy may_insert on jmsql_internal.delivery for insert
    with check (
        (queue_id = any ((select jmsql_internal.accessible_queues('receive', current_user))::integer[])
         or (select jmsql_internal.has_access_to_all('receive', current_user)))
        and ((dead_letter_queue_id is null or dead_letter_queue_id = 0
              or dead_letter_queue_id = (
                  select q.dead_letter_queue_id from jmsql_internal.queue q where q.queue_id = delivery.queue_id)
              or dead_letter_queue_id = any ((select jmsql_internal.accessible_queues('send', current_user))::integer[])
              or (select jmsql_internal.has_access_to_all('send', current_user)))
             and delivery_count between 0 and 1000000 and error_count between 0 and 1000000
             and length(last_error) <= 100000 is not false
             and first_failed_at between '0001-01-02 00:00+00' and '9999-12-31 00:00+00' is not false
             and claimed_at between '0001-01-02 00:00+00' and '9999-12-31 00:00+00' is not false
             and claim_expires_at between '0001-01-02 00:00+00' and '9999-12-31 00:00+00' is not false
             and (next_attempt < '9999-01-01 00:00+00' is not false or dead_letter_queue_id is not null)
             or (select jmsql_internal.has_access_to_all('administer', current_user))));
create policy may_update on jmsql_internal.delivery for update
    using (queue_id = any ((select jmsql_internal.accessible_queues('receive', current_user))::integer[])
           or (select jmsql_internal.has_access_to_all('receive', current_user)))
    with check (
        (queue_id = any ((select jmsql_internal.accessible_queues('receive', current_user))::integer[])
         or (select jmsql_internal.has_access_to_all('receive', current_user)))
        and ((dead_letter_queue_id is null or dead_letter_queue_id = 0
              or dead_letter_queue_id = (
                  select q.dead_letter_queue_id from jmsql_internal.queue q where q.queue_id = delivery.queue_id)
              or dead_letter_queue_id = any ((select jmsql_internal.accessible_queues('send', current_user))::integer[])
              or (select jmsql_internal.has_access_to_all('send', current_user)))
             and delivery_count between 0 and 1000000 and error_count between 0 and 1000000
             and length(last_error) <= 100000 is not false
             and first_failed_at between '0001-01-02 00:00+00' and '9999-12-31 00:00+00' is not false
             and claimed_at between '0001-01-02 00:00+00' and '9999-12-31 00:00+00' is not false
             and claim_expires_at between '0001-01-02 00:00+00' and '9999-12-31 00:00+00' is not false
             and (next_attempt < '9999-01-01 00:00+00' is not false or dead_letter_queue_id is not null)
             or (select jmsql_internal.has_access_to_all('administer', current_user))));

create policy may_delete on jmsql_internal.delivery_outcome for delete
    using ((select jmsql_internal.has_access_to_all('administer', current_user)));
create policy may_select on jmsql_internal.delivery_outcome for select
    using (queue_id = any ((select jmsql_internal.accessible_queues('browse', current_user))::integer[])
           or (select jmsql_internal.has_access_to_all('browse', current_user)));
create policy may_insert on jmsql_internal.delivery_outcome for insert
    with check (queue_id = any ((select jmsql_internal.accessible_queues('receive', current_user))::integer[])
                or (select jmsql_internal.has_access_to_all('receive', current_user)));
create policy may_update on jmsql_internal.delivery_outcome for update
    using (queue_id = any ((select jmsql_internal.accessible_queues('receive', current_user))::integer[])
           or (select jmsql_internal.has_access_to_all('receive', current_user)));
alter table jmsql_internal.delivery_outcome enable row level security;

create policy may_select on jmsql_internal.group_lock for select using (true);
create policy may_lock on jmsql_internal.group_lock for update using (true) with check (false);
alter table jmsql_internal.group_lock enable row level security;

-- Destinations. Everybody sees them. Who may use all of them may make one by using it, if that is how it is set.

create policy administrators on jmsql_internal.queue
    using ((select jmsql_internal.has_access_to_all('administer', current_user)))
    with check ((select jmsql_internal.has_access_to_all('administer', current_user)));
create policy may_select on jmsql_internal.queue for select using (true);
create policy may_insert on jmsql_internal.queue for insert
    with check (
        topic_id is null and name is not null and user_name = current_user
        and (connection_id is null
             and (((select jmsql_internal.has_access_to_all('send', current_user))
                   or (select jmsql_internal.has_access_to_all('receive', current_user)))
                  and (select c.automatic_creation from jmsql_internal.configuration c))
             or connection_id in (
                 select c.connection_id from jmsql_internal.connection c where c.user_name = current_user)));
create policy may_update on jmsql_internal.queue for update
    using (connection_id is not null and user_name = current_user)
    with check (
        user_name = current_user
        and (connection_id is null
             or connection_id in (
                 select c.connection_id from jmsql_internal.connection c where c.user_name = current_user)));

create policy administrators on jmsql_internal.topic
    using ((select jmsql_internal.has_access_to_all('administer', current_user)))
    with check ((select jmsql_internal.has_access_to_all('administer', current_user)));
create policy may_select on jmsql_internal.topic for select using (true);
create policy may_insert on jmsql_internal.topic for insert
    with check (
        user_name = current_user
        and (connection_id is null
             and (((select jmsql_internal.has_access_to_all('send', current_user))
                   or (select jmsql_internal.has_access_to_all('receive', current_user)))
                  and (select c.automatic_creation from jmsql_internal.configuration c))
             or connection_id in (
                 select c.connection_id from jmsql_internal.connection c where c.user_name = current_user)));
create policy may_update on jmsql_internal.topic for update
    using (connection_id is not null and user_name = current_user
           or (topic_id = any ((select jmsql_internal.accessible_topics('receive', current_user))::integer[])
               or (select jmsql_internal.has_access_to_all('receive', current_user))))
    with check (
        user_name = current_user
        and (connection_id is null
             or connection_id in (
                 select c.connection_id from jmsql_internal.connection c where c.user_name = current_user)));

create policy administrators on jmsql_internal.subscription
    using ((select jmsql_internal.has_access_to_all('administer', current_user)))
    with check ((select jmsql_internal.has_access_to_all('administer', current_user)));
create policy may_select on jmsql_internal.subscription for select using (true);
create policy may_insert on jmsql_internal.subscription for insert
    with check (topic_id = any ((select jmsql_internal.accessible_topics('receive', current_user))::integer[])
                or (select jmsql_internal.has_access_to_all('receive', current_user)));
create policy may_update on jmsql_internal.subscription for update
    using (topic_id = any ((select jmsql_internal.accessible_topics('receive', current_user))::integer[])
           or (select jmsql_internal.has_access_to_all('receive', current_user)))
    with check (topic_id = any ((select jmsql_internal.accessible_topics('receive', current_user))::integer[])
                or (select jmsql_internal.has_access_to_all('receive', current_user)));

-- Clients. Each role says of its own connections alone that they live, and what they receive from.

create policy administrators on jmsql_internal.connection
    using ((select jmsql_internal.has_access_to_all('administer', current_user)))
    with check ((select jmsql_internal.has_access_to_all('administer', current_user)));
create policy may_select on jmsql_internal.connection for select using (true);
create policy may_insert on jmsql_internal.connection for insert
    with check (
        user_name = current_user
        and heartbeat_at <= statement_timestamp() + interval '1 minute' is not false
        and server_process_id = pg_backend_pid() is not false);
create policy may_update on jmsql_internal.connection for update
    using (user_name = current_user)
    with check (
        user_name = current_user
        and heartbeat_at <= statement_timestamp() + interval '1 minute' is not false);

create policy administrators on jmsql_internal.subscriber
    using ((select jmsql_internal.has_access_to_all('administer', current_user)))
    with check ((select jmsql_internal.has_access_to_all('administer', current_user)));
create policy may_select on jmsql_internal.subscriber for select using (true);
create policy may_insert on jmsql_internal.subscriber for insert
    with check (
        (queue_id = any ((select jmsql_internal.accessible_queues('receive', current_user))::integer[])
         or (select jmsql_internal.has_access_to_all('receive', current_user)))
        and connection_id in (
            select c.connection_id from jmsql_internal.connection c where c.user_name = current_user));
create policy may_update on jmsql_internal.subscriber for update
    using (
        (queue_id = any ((select jmsql_internal.accessible_queues('receive', current_user))::integer[])
         or (select jmsql_internal.has_access_to_all('receive', current_user)))
        and connection_id in (
            select c.connection_id from jmsql_internal.connection c where c.user_name = current_user))
    with check (
        (queue_id = any ((select jmsql_internal.accessible_queues('receive', current_user))::integer[])
         or (select jmsql_internal.has_access_to_all('receive', current_user)))
        and connection_id in (
            select c.connection_id from jmsql_internal.connection c where c.user_name = current_user));

create policy administrators on jmsql_internal.consumer
    using ((select jmsql_internal.has_access_to_all('administer', current_user)))
    with check ((select jmsql_internal.has_access_to_all('administer', current_user)));
create policy may_select on jmsql_internal.consumer for select using (true);
create policy may_insert on jmsql_internal.consumer for insert
    with check (
        (queue_id = any ((select jmsql_internal.accessible_queues('receive', current_user))::integer[])
         or (select jmsql_internal.has_access_to_all('receive', current_user)))
        and connection_id in (
            select c.connection_id from jmsql_internal.connection c where c.user_name = current_user));
create policy may_update on jmsql_internal.consumer for update
    using (
        connection_id in (
            select c.connection_id from jmsql_internal.connection c where c.user_name = current_user))
    with check (
        connection_id in (
            select c.connection_id from jmsql_internal.connection c where c.user_name = current_user)
        and last_at between '0001-01-02 00:00+00' and '9999-12-31 00:00+00' is not false);

create policy administrators on jmsql_internal.destination_counters
    using ((select jmsql_internal.has_access_to_all('administer', current_user)))
    with check ((select jmsql_internal.has_access_to_all('administer', current_user)));
create policy may_select on jmsql_internal.destination_counters for select using (true);
create policy may_insert on jmsql_internal.destination_counters for insert
    with check (
        ((select jmsql_internal.has_access_to_all('send', current_user))
         or (select jmsql_internal.has_access_to_all('receive', current_user))
         or destination_id = any ((select jmsql_internal.accessible_queues('send', current_user))::integer[])
         or destination_id = any ((select jmsql_internal.accessible_queues('receive', current_user))::integer[])
         or -destination_id = any ((select jmsql_internal.accessible_topics('send', current_user))::integer[])
         or -destination_id = any ((select jmsql_internal.accessible_topics('receive', current_user))::integer[]))
        and sent between 0 and 1000000000000000 and acknowledged between 0 and 1000000000000000
        and rolled_back between 0 and 1000000000000000 and redelivered between 0 and 1000000000000000
        and calls between 0 and 1000000000000000 and waited between 0 and 1e30 and handled between 0 and 1e30);
create policy may_update on jmsql_internal.destination_counters for update
    using (
        (select jmsql_internal.has_access_to_all('send', current_user))
        or (select jmsql_internal.has_access_to_all('receive', current_user))
        or destination_id = any ((select jmsql_internal.accessible_queues('send', current_user))::integer[])
        or destination_id = any ((select jmsql_internal.accessible_queues('receive', current_user))::integer[])
        or -destination_id = any ((select jmsql_internal.accessible_topics('send', current_user))::integer[])
        or -destination_id = any ((select jmsql_internal.accessible_topics('receive', current_user))::integer[]))
    with check (
        ((select jmsql_internal.has_access_to_all('send', current_user))
         or (select jmsql_internal.has_access_to_all('receive', current_user))
         or destination_id = any ((select jmsql_internal.accessible_queues('send', current_user))::integer[])
         or destination_id = any ((select jmsql_internal.accessible_queues('receive', current_user))::integer[])
         or -destination_id = any ((select jmsql_internal.accessible_topics('send', current_user))::integer[])
         or -destination_id = any ((select jmsql_internal.accessible_topics('receive', current_user))::integer[]))
        and sent between 0 and 1000000000000000 and acknowledged between 0 and 1000000000000000
        and rolled_back between 0 and 1000000000000000 and redelivered between 0 and 1000000000000000
        and calls between 0 and 1000000000000000 and waited between 0 and 1e30 and handled between 0 and 1e30);

create function jmsql_internal.functions_of_administrators() returns text
    language sql immutable
begin atomic
    select ' jmsql_internal.settings_row(text), jmsql_internal.create_destination(text, jsonb),'
        ' jmsql.alter_destination(text, jsonb), jmsql.create_queue(text, jsonb), jmsql.create_topic(text, jsonb),'
        ' jmsql.delete_destination(text, boolean), jmsql.pause(text), jmsql.resume(text),'
        ' jmsql_internal.make_history_partition(date),'
        ' jmsql_internal.keep_history(tid[], integer[], jmsql_internal.outcome, bigint),'
        ' jmsql_internal.return_dead_letters(integer, smallint[], bigint[]), jmsql.retry(text, bigint),'
        ' jmsql_internal.replay_messages(text, xid8[], bigint[], timestamptz, timestamptz, integer, boolean),'
        ' jmsql.replay(text, text, timestamptz, timestamptz, text[], boolean),'
        ' jmsql_internal.lock_free_messages(integer, bigint[], bigint, bigint),'
        ' jmsql_internal.forget_deliveries(tid[]),'
        ' jmsql_internal.move_step(integer, integer, bigint[], bigint, bigint, boolean),'
        ' jmsql.move(text, text, bigint[], bigint), jmsql.purge(text, bigint[], bigint),'
        ' jmsql_internal.cancel_at(integer, smallint, bigint, boolean), jmsql_internal.cancel_copies(text), jmsql.cancel(text),'
        ' jmsql_internal.deliver_waiting(integer, smallint[], bigint[]),'
        ' jmsql_internal.deliver_delayed(integer, bigint[], bigint[]), jmsql.deliver(text, bigint[], bigint),'
        ' jmsql_internal.note_activity(text, integer, bigint, uuid[], text, integer, text, text, integer),'
        ' jmsql_internal.begin_action(), jmsql_internal.forget_activity(integer),'
        ' jmsql_internal.cursors_before(regclass, text[]), jmsql_internal.note_history_loss(regclass, text[]),'
        ' jmsql.forget_spark_source(uuid),'
        ' jmsql_internal.permit(name, text[], integer), jmsql.grant_access(text, name, text[]),'
        ' jmsql.revoke_access(text, name, text[]), jmsql.create_roles(), jmsql_internal.restore_pages(),'
        ' jmsql_internal.note_rates(), jmsql.keep_rates(integer),'
        ' jmsql_internal.last_one_waits(jmsql_internal.schedule),'
        ' jmsql_internal.send_scheduled(jmsql_internal.schedule, timestamptz, integer),'
        ' jmsql_internal.fire_schedule(text, integer, timestamptz, timestamptz, timestamptz, integer, boolean)';
end;
comment on function jmsql_internal.functions_of_administrators() is
    'The functions that are an administrator''s alone, as GRANT and REVOKE name them. They know by the right to execute '
    'them, which PostgreSQL checks for the role that calls them, that they may do what they are asked for.';

-- Privileges are code: no text of a table is executed. No role gets TRUNCATE, REFERENCES or TRIGGER, and but for
-- administrators none gets UPDATE or DELETE on a whole table: who has one of them can lock it.
create function jmsql_internal.set_privileges(role name) returns void
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
declare
    browsing constant text[] := array[
        'usage on schema jmsql',
        'usage on schema jmsql_internal',
        'select on'
            ' jmsql.schema_version, jmsql_internal.configuration, jmsql_internal.binding, jmsql_internal.queue,'
            ' jmsql_internal.topic, jmsql_internal.subscription, jmsql_internal.subscriber,'
            ' jmsql_internal.connection, jmsql_internal.consumer, jmsql_internal.grouped_queue,'
            ' jmsql_internal.leadership, jmsql_internal.destination_counters, jmsql_internal.message,'
            ' jmsql_internal.delayed_message, jmsql_internal.delivery, jmsql_internal.body,'
            ' jmsql_internal.message_history, jmsql_internal.result, jmsql_internal.result_keeping,'
            ' jmsql_internal.reported_progress, jmsql_internal.administrative_action,'
            ' jmsql_internal.batch, jmsql_internal.batch_member, jmsql_internal.batch_callback,'
            ' jmsql_internal.listener_limit,'
            ' jmsql_internal.limit_usage, jmsql_internal.limit_holder, jmsql_internal.rate',
        'select on'
            ' jmsql.messages, jmsql.queues, jmsql.subscriptions, jmsql.clients, jmsql.destinations, jmsql.counters,'
            ' jmsql.dead_letters, jmsql.history, jmsql.history_days, jmsql.consumers, jmsql.message_groups, jmsql.results,'
            ' jmsql.progress, jmsql.activity, jmsql.batches, jmsql.limits, jmsql.rates',
        'select (transaction_id) on jmsql_internal.pending_transaction',
        'execute on function jmsql_internal.batch_counts(bigint, uuid)',
        'insert (host, process_id, heartbeat_at, heartbeat_timeout, lock_key, server_process_id), '
            'update (client_id, heartbeat_at, closing) on jmsql_internal.connection'];
    messaging constant text[] := browsing || array[
        'insert (queue_id, body_id, inverse_priority, jms_message_id, jms_timestamp, jms_expiration, '
            'jms_delivery_mode, message_type, jms_correlation_id, jms_reply_to, jms_type, properties, property_types, '
            'text_body, json_body, body_types, bytes_body, jms_delivery_time) '
            'on jmsql_internal.message, jmsql_internal.delayed_message',
        -- A row is locked by who could change some column of it; the policy lets nobody do that.
        'update (transaction_id) on jmsql_internal.message',
        'select, update (slot) on jmsql_internal.group_lock',
        'insert (position, text_body, json_body, body_types, bytes_body) on jmsql_internal.body',
        'usage on sequence jmsql_internal.message_sequence, jmsql_internal.claim_sequence',
        'insert (queue_id, inverse_priority, sequence, group_hash, claim_id, connection_id, claimed_at, next_attempt, '
            'delivery_count, error_count, last_error, claim_expires_at, first_failed_at, dead_letter_queue_id), '
            'update (claim_id, connection_id, claimed_at, next_attempt, delivery_count, error_count, last_error, '
            'claim_expires_at, first_failed_at, dead_letter_queue_id) on jmsql_internal.delivery',
        'select, insert (queue_id, inverse_priority, sequence, retry_count, interruption_count, dead_letter_reason), '
            'update (retry_count, interruption_count, dead_letter_reason) on jmsql_internal.delivery_outcome',
        'insert (messages, deliveries, connection_id, is_exact) on jmsql_internal.removal',
        'select, insert (queue_id, lowest, connection_id) on jmsql_internal.dequeue',
        'select, insert (topic, queues, message_ids, deduplication_ids, coalesce_keys, replacing, expiring, delivery_times, '
            'inverse_priorities, first_sequence) on jmsql_internal.admission',
        'insert (name, connection_id), update (connection_id) on jmsql_internal.queue, jmsql_internal.topic',
        'insert (topic_id, client_id, name, selector, durable, shared, no_local), update (ended, selector, no_local) '
            'on jmsql_internal.subscription',
        'insert (queue_id, connection_id, consumers), update (connection_id, consumers) on jmsql_internal.subscriber',
        'insert (connection_id, queue_id, selector, consumers, listeners), '
            'update (consumers, acknowledged, rolled_back, last_at, listeners) '
            'on jmsql_internal.consumer',
        'insert (destination_id, sent, acknowledged, rolled_back, redelivered, waited, calls, handled), '
            'update (sent, acknowledged, rolled_back, redelivered, waited, calls, handled) on jmsql_internal.destination_counters',
        'insert (queue_id, seconds, keeps_message), update (seconds, keeps_message) on jmsql_internal.result_keeping',
        'insert (message_id, queue_id, deliveries, sent_at, started_at, finished_at, kept_until, state, value, error, '
            'jms_type, properties, text_body), '
            'update (deliveries, sent_at, started_at, finished_at, kept_until, state, value, error, jms_type, properties, '
            'text_body) on jmsql_internal.result',
        'insert (queue_id, inverse_priority, sequence, claim_id, fraction, note, reported_at), '
            'update (claim_id, fraction, note, reported_at) on jmsql_internal.reported_progress',
        'insert (queue_id, selector, rate, per, rate_by, at_most, at_most_by), '
            'update (rate, per, rate_by, at_most, at_most_by, declared_at) on jmsql_internal.listener_limit',
        'insert (limit_id, queue_id, is_rate, value, started, numbers, holder_ids, connection_ids, claim_ids, '
            'inverse_priorities, sequences, used_at), '
            'update (started, numbers, holder_ids, connection_ids, claim_ids, inverse_priorities, sequences, used_at) '
            'on jmsql_internal.limit_usage',
        'insert (holder_id, connection_id, running, expires_at), '
            'update (connection_id, running, expires_at) on jmsql_internal.limit_holder',
        'insert (name, keep), update (closed) on jmsql_internal.batch',
        'select, insert (batch_id, event, queue_id, message_type, jms_type, properties, property_types, text_body, '
            'json_body, body_types, bytes_body) on jmsql_internal.batch_callback',
        'execute on function jmsql_internal.bury_dead_letters(integer), jmsql_internal.hold_batch(bigint),'
            ' jmsql_internal.may_add_to_batch(text, name)'];
    administration constant text[] := messaging || array[
        'delete on'
            ' jmsql_internal.message, jmsql_internal.delayed_message, jmsql_internal.delivery,'
            ' jmsql_internal.delivery_outcome, jmsql_internal.body,'
            ' jmsql_internal.queue, jmsql_internal.topic, jmsql_internal.connection,'
            ' jmsql_internal.destination_counters, jmsql_internal.result, jmsql_internal.result_keeping,'
            ' jmsql_internal.reported_progress, jmsql_internal.listener_limit, jmsql_internal.limit_usage,'
            ' jmsql_internal.limit_holder',
        'update (transaction_id) on jmsql_internal.delayed_message',
        'insert (queue_id, deleted_at) on jmsql_internal.queue',
        'select on jmsql_internal.permission, jmsql.grants, jmsql.spark_sources, jmsql.schedules',
        'select, insert, update, delete on jmsql_internal.schedule',
        'insert, update, delete on jmsql_internal.binding',
        'update (automatic_creation, rates_days) on jmsql_internal.configuration',
        'select, insert, update, delete on'
            ' jmsql_internal.pending_transaction, jmsql_internal.spark_staging, jmsql_internal.spark_write,'
            ' jmsql_internal.spark_source, jmsql_internal.spark_batch, jmsql_internal.spark_cursor',
        'insert, update, delete on jmsql_internal.leadership',
        'select, insert, delete on jmsql_internal.maintenance_task',
        'select, update, delete on jmsql_internal.deduplication',
        'select, update, delete on jmsql_internal.coalescing',
        'select on sequence jmsql_internal.message_sequence',
        'delete on jmsql_internal.batch, jmsql_internal.batch_member',
        'select on jmsql_internal.batch_check',
        'execute on function jmsql_internal.check_batches(integer), jmsql_internal.remove_batches(integer)',
        'execute on function' || jmsql_internal.functions_of_administrators()];
    actions text[] := array(
        select p.action from jmsql_internal.permission p where p.grantee = quote_ident(role)::regrole);
    granted text;
    place regnamespace;
begin
    if role = (select r.rolname from pg_class c join pg_roles r on r.oid = c.relowner
               where c.oid = 'jmsql_internal.permission'::regclass) then
        return;
    end if;
    -- Who makes a partition of the history, or drops one, writes the same rows of the catalog, which PostgreSQL refuses to
    -- one of two at once. This lock is theirs, too; it holds up nobody who reads or writes messages.
    lock table jmsql_internal.message_history in share update exclusive mode;
    foreach place in array array['jmsql'::regnamespace, 'jmsql_internal'::regnamespace] loop
        execute format('revoke all on all tables in schema %s from %I', place, role);
        execute format('revoke all on all sequences in schema %s from %I', place, role);
        execute format('revoke all on all functions in schema %s from %I', place, role);
        execute format('revoke all on schema %s from %I', place, role);
    end loop;
    foreach granted in array case
        when 'administer' = any(actions) then administration
        when actions && array['send', 'receive'] then messaging
        when 'browse' = any(actions) then browsing
        else array[]::text[] end
    loop
        execute format('grant %s to %I', granted, role);
    end loop;
end
$$;
comment on function jmsql_internal.set_privileges(name) is
    'Gives a role the privileges that it takes to do what it may, and no other. They stand here, and in no table.';

create function jmsql_internal.has_lost_privileges() returns boolean
    language sql stable
    set search_path = pg_catalog, pg_temp
begin atomic
    select exists (
        select from pg_catalog.pg_proc p
        where p.pronamespace in ('jmsql'::regnamespace, 'jmsql_internal'::regnamespace)
          and (p.prosecdef or p.prorettype = 'trigger'::regtype)
          and has_function_privilege('public'::name, p.oid, 'execute'::text)
              <> (p.proname in ('has_access_to_all', 'accessible_queues', 'accessible_topics')));
end;
comment on function jmsql_internal.has_lost_privileges() is
    'Whether functions have PostgreSQL''s default privileges, or the database''s, as after a dump was restored without '
    'privileges (pg_restore --no-privileges): renew_privileges gives them theirs again.';

-- Of a role that was dropped, a dump has the number alone, which is another role's on another server.
create function jmsql_internal.forget_dropped_roles() returns void
    language sql volatile
    set search_path = pg_catalog, pg_temp
begin atomic
    delete from jmsql_internal.permission p where not exists (select from pg_catalog.pg_roles r where r.oid = p.grantee);
end;
comment on function jmsql_internal.forget_dropped_roles() is
    'Removes the permissions of roles that were dropped, as each grant and each revision of the schema does.';

create function jmsql_internal.renew_privileges() returns void
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
declare
    routine regprocedure;
begin
    -- Where the owner's new functions are not for all (alter default privileges), roles could not evaluate a policy.
    for routine in
        select p.oid from pg_proc p
        where p.pronamespace in ('jmsql'::regnamespace, 'jmsql_internal'::regnamespace)
          and not has_function_privilege('public'::name, p.oid, 'execute'::text)
    loop
        execute format('grant execute on function %s to public', routine);
    end loop;
    -- Nobody executes a function with its owner's rights because everybody may: also not one of a trigger, for a table
    -- of his own, with rows that no policy has seen.
    for routine in
        select p.oid from pg_proc p
        where p.pronamespace in ('jmsql'::regnamespace, 'jmsql_internal'::regnamespace)
          and (p.prosecdef or p.prorettype = 'trigger'::regtype)
          and p.proname not in ('has_access_to_all', 'accessible_queues', 'accessible_topics')
    loop
        execute format('revoke all on function %s from public', routine);
    end loop;
    execute 'revoke all on function jmsql_internal.set_privileges(name), jmsql_internal.renew_privileges(),'
        ' jmsql_internal.enable_row_security(interval),'
        || jmsql_internal.functions_of_administrators() || ' from public';
    perform jmsql_internal.forget_dropped_roles();
    perform jmsql_internal.set_privileges(r.rolname)
    from pg_roles r where r.oid in (select p.grantee from jmsql_internal.permission p);
end
$$;
comment on function jmsql_internal.renew_privileges() is
    'Leaves the functions of administrators to them and the others to all, and gives the roles that have access what it '
    'takes now; every revision of the schema ends with it.';

-- With a lock on one of these tables, an open transaction keeps it from others, and all clients wait behind who waits for
-- it. So it waits for moments, lets go of what it has, and tries again, in the order in which most clients use the tables.
create function jmsql_internal.enable_row_security(patience interval default '1 minute') returns void
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
    set lock_timeout = '200ms'
as $$
declare
    deadline constant timestamptz := clock_timestamp() + patience;
    unprotected regclass;
begin
    loop
        begin
            for unprotected in
                select c.oid
                from unnest(array['connection', 'topic', 'queue', 'subscription', 'subscriber', 'consumer', 'message',
                                  'delayed_message', 'delivery', 'body', 'message_history', 'destination_counters'])
                     with ordinality as t (name, place)
                join pg_class c on c.relname = t.name and c.relnamespace = 'jmsql_internal'::regnamespace
                where not c.relrowsecurity
                order by t.place
            loop
                execute format('alter table %s enable row level security', unprotected);
            end loop;
            return;
        exception when lock_not_available or deadlock_detected then
            if clock_timestamp() >= deadline then
                raise exception 'The first grant locks the table %, which other transactions have kept from it for % '
                    'seconds; nothing was granted.', unprotected, round(extract(epoch from patience))
                    using errcode = 'JMS03',
                          hint = '`jmsql doctor` names transactions that stay open; let them end, and grant it again.';
            end if;
        end;
        perform pg_sleep(0.1 + random() * 0.4);
    end loop;
end
$$;
comment on function jmsql_internal.enable_row_security(interval) is
    'Switches row security on, for a first grant, and holds up no client for more than moments.';

create function jmsql_internal.permit(role name, actions text[], destination integer) returns void
    language plpgsql volatile security definer
    set search_path = pg_catalog, pg_temp
as $$
begin
    if not exists (select from pg_roles r where r.rolname = role) then
        raise exception 'There is no role "%".', role using errcode = 'JMS03', hint = 'CREATE ROLE makes one.';
    end if;
    -- Before anything is changed: others that give or take privileges wait here, and so does a migration.
    lock table jmsql_internal.permission in share row exclusive mode;
    perform jmsql_internal.enable_row_security();
    perform jmsql_internal.forget_dropped_roles();
    insert into jmsql_internal.permission (grantee, action, queue_id)
    select quote_ident(role)::regrole, a, destination from unnest(actions) a
    on conflict do nothing;
    if jmsql_internal.has_lost_privileges() then
        -- The role can call the functions from now on: those of administrators are closed to all others, and the rest is not.
        perform jmsql_internal.renew_privileges();
    end if;
    perform jmsql_internal.set_privileges(role);
end
$$;
comment on function jmsql_internal.permit(name, text[], integer) is
    'Gives a role access to a destination, or with null to all; switches row security on with the first.';

create function jmsql_internal.check_actions(actions text[]) returns void
    language plpgsql immutable
    set search_path = pg_catalog, pg_temp
as $$
begin
    if (actions <@ array['send', 'receive', 'browse'] and cardinality(actions) > 0) is not true then
        raise exception 'Expected one or several of send, receive and browse, got %.',
            coalesce(nullif(array_to_string(actions, ', ', 'null'), ''), 'nothing') using errcode = 'JMS03';
    end if;
end
$$;
comment on function jmsql_internal.check_actions(text[]) is 'Refuses what nobody can have access for.';

create function jmsql.grant_access(destination text, role name, variadic actions text[]) returns void
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
begin
    perform jmsql_internal.check_actions(actions);
    perform jmsql_internal.permit(role, actions, jmsql_internal.settings_row(destination));
end
$$;
comment on function jmsql.grant_access(text, name, text[]) is
    'Lets a role send to a queue or topic, receive from it, or browse it.';

create function jmsql.revoke_access(destination text, role name, variadic actions text[]) returns void
    language plpgsql volatile security definer
    set search_path = pg_catalog, pg_temp
as $$
declare
    settings_id integer := jmsql_internal.settings_row(destination);
begin
    perform jmsql_internal.check_actions(actions);
    if not exists (select from pg_roles r where r.rolname = role) then
        raise exception 'There is no role "%".', role using errcode = 'JMS03';
    end if;
    lock table jmsql_internal.permission in share row exclusive mode;
    delete from jmsql_internal.permission p
    where p.grantee = quote_ident(role)::regrole and p.queue_id = settings_id and p.action = any(actions);
    perform jmsql_internal.set_privileges(role);
end
$$;
comment on function jmsql.revoke_access(text, name, text[]) is 'Takes back what grant_access has given.';

create function jmsql.create_roles() returns setof text
    language plpgsql volatile
    set search_path = pg_catalog, pg_temp
as $$
declare
    wanted record;
begin
    for wanted in
        select * from (values ('jmsql_producer'::name, array['send']), ('jmsql_consumer', array['receive']),
                              ('jmsql_browser', array['browse']), ('jmsql_admin', array['administer']))
            as r (role, actions)
    loop
        if not exists (select from pg_roles r where r.rolname = wanted.role) then
            begin
                execute format('create role %I nologin', wanted.role);
                return next wanted.role;
            exception
                when duplicate_object or unique_violation then
                    null;
                when insufficient_privilege then
                    raise exception 'The role "%" may not create the role "%".', current_user, wanted.role
                        using errcode = 'JMS04',
                            hint = 'Have a role with CREATEROLE run: create role jmsql_producer; '
                                'create role jmsql_consumer; create role jmsql_browser; create role jmsql_admin. '
                                'Then do it again.';
            end;
        end if;
        perform jmsql_internal.permit(wanted.role, wanted.actions, null);
    end loop;
end
$$;
comment on function jmsql.create_roles() is
    'Makes the roles jmsql_producer, jmsql_consumer, jmsql_browser and jmsql_admin, if they are not there, lets their '
    'members do with all destinations what they are called after, and returns those that it has made.';

select jmsql_internal.renew_privileges();
