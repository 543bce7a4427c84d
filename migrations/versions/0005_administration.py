"""Functions that make, change and delete destinations, for Python, the command, and whoever speaks SQL.

What can be set for a queue are the columns of the table ``queue`` but for those that say what it is: a migration that
adds a column with a default adds a setting. A column ``…_queue_id`` is set by the name of a queue.
"""

from __future__ import annotations

from alembic import op

from jmsql.store.migration import target_schema

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

TABLES = """
alter table {schema}.queue add column topic_id integer unique references {schema}.topic on delete cascade;
comment on column {schema}.queue.topic_id is
    'This is no queue, but what its subscriptions begin with: the settings of the topic.';
"""

SETTINGS = """
create function {schema}.setting_columns() returns setof name
    language sql stable
begin atomic
    select a.attname from pg_catalog.pg_attribute a
    where a.attrelid = '{schema}.queue'::regclass and a.attnum > 0 and not a.attisdropped
      and a.attname not in ('queue_id', 'name', 'topic_id', 'connection_id', 'created_at', 'deleted_at')
    order by a.attnum;
end;
comment on function {schema}.setting_columns() is 'The columns of the table queue that are settings.';

create function {schema}.queue_settings(queue {schema}.queue) returns jsonb
    language sql stable
begin atomic
    select coalesce(
        jsonb_object_agg(
            regexp_replace(s.name, '_queue_id$', '_queue'),
            case when s.name like '%\\_queue\\_id'
                 then (select to_jsonb(q.name) from {schema}.queue q where q.queue_id = s.value::text::integer)
                 else s.value end),
        '{{}}')
    from jsonb_each(to_jsonb(queue)) as s (name, value)
    where s.name in (select {schema}.setting_columns()) and s.value not in ('null', 'false');
end;
comment on function {schema}.queue_settings({schema}.queue) is 'What is set for a queue, but for what is off.';

create function {schema}.settings_row(destination text) returns integer
    language plpgsql volatile strict
    set search_path = pg_catalog, pg_temp
as $$
declare
    found_id integer;
    found_topic integer;
begin
    if destination like 'topic://%' then
        select t.topic_id into found_topic from {schema}.topic t where t.name = substr(destination, 9);
        if found_topic is null then
            raise exception 'There is no topic "%".', substr(destination, 9) using errcode = 'JMS01',
                hint = 'Make it with create_topic; the view destinations lists those there are.';
        end if;
        insert into {schema}.queue (topic_id) values (found_topic) on conflict (topic_id) do nothing;
        select q.queue_id into found_id from {schema}.queue q where q.topic_id = found_topic;
    else
        select q.queue_id into found_id from {schema}.queue q
        where q.name = case when destination like 'queue://%' then substr(destination, 9) else destination end;
        if found_id is null then
            raise exception 'There is no queue "%".', regexp_replace(destination, '^queue://', '')
                using errcode = 'JMS01',
                hint = 'Make it with create_queue; the view destinations lists those there are.';
        end if;
    end if;
    return found_id;
end
$$;
comment on function {schema}.settings_row(text) is 'The row of the table queue with the settings of a queue or topic.';

create function {schema}.alter_destination(destination text, settings jsonb) returns void
    language plpgsql volatile strict
    set search_path = pg_catalog, pg_temp
as $$
declare
    settings_id integer := {schema}.settings_row(destination);
    concerned integer[];
    setting text;
    wanted jsonb;
    in_column text;
begin
    select array_agg(q.queue_id) into concerned from {schema}.queue q
    where q.queue_id = settings_id
       or q.queue_id in (
            select s.queue_id from {schema}.subscription s
            join {schema}.queue t on t.topic_id = s.topic_id where t.queue_id = settings_id);
    for setting, wanted in select * from jsonb_each(settings) loop
        in_column := case when setting like '%\\_queue' then setting || '_id' else setting end;
        if in_column not in (select {schema}.setting_columns()) then
            raise exception 'A destination has no setting "%".', setting using errcode = 'JMS03',
                hint = 'There are: ' || (select string_agg(regexp_replace(c, '_queue_id$', '_queue'), ', ')
                                         from {schema}.setting_columns() c) || '.';
        end if;
        if in_column <> setting and wanted <> 'null' then
            wanted := to_jsonb({schema}.settings_row(wanted #>> '{{}}'));
            if wanted::integer = any(concerned) then
                raise exception 'A queue cannot be its own %.', replace(setting, '_', ' ') using errcode = 'JMS03';
            end if;
        end if;
        begin
            if wanted = 'null' then
                execute format('update {schema}.queue set %I = default where queue_id = any($1)', in_column)
                    using concerned;
            else
                execute format(
                    'update {schema}.queue q set %1$I = s.%1$I from jsonb_populate_record(null::{schema}.queue, $1) s '
                    'where q.queue_id = any($2)', in_column)
                    using jsonb_build_object(in_column, wanted), concerned;
            end if;
        exception when data_exception or check_violation then
            raise exception 'The setting "%" cannot be %: %.', setting, wanted, sqlerrm using errcode = 'JMS03';
        end;
    end loop;
end
$$;
comment on function {schema}.alter_destination(text, jsonb) is
    'Changes settings of a queue or topic: those named, null to what they are by default.';

create function {schema}.inherit_settings() returns trigger
    language plpgsql
    set search_path = pg_catalog, pg_temp
as $$
declare
    settings {schema}.queue;
    columns text;
begin
    select q.* into settings from {schema}.queue q where q.topic_id = new.topic_id;
    if found then
        select string_agg(format('%1$I = ($1).%1$I', c), ', ') into columns from {schema}.setting_columns() c;
        execute 'update {schema}.queue set ' || columns || ' where queue_id = $2' using settings, new.queue_id;
    end if;
    return null;
end
$$;
comment on function {schema}.inherit_settings() is 'Gives a new subscription the settings of its topic.';
create trigger subscriptions_have_their_topics_settings after insert on {schema}.subscription
    for each row execute function {schema}.inherit_settings();
"""

DESTINATIONS = """
create function {schema}.create_queue(name text, settings jsonb default '{{}}') returns boolean
    language plpgsql volatile strict
    set search_path = pg_catalog, pg_temp
as $$
declare
    made boolean;
begin
    insert into {schema}.queue (name) values (create_queue.name) on conflict do nothing;
    made := found;
    perform {schema}.alter_destination('queue://' || name, settings);
    return made;
end
$$;
comment on function {schema}.create_queue(text, jsonb) is
    'Makes a queue, if it is not there, and changes the settings that are named. Returns whether it was made.';

create function {schema}.create_topic(name text, settings jsonb default '{{}}') returns boolean
    language plpgsql volatile strict
    set search_path = pg_catalog, pg_temp
as $$
declare
    made boolean;
begin
    insert into {schema}.topic (name) values (create_topic.name) on conflict do nothing;
    made := found;
    if settings <> '{{}}' then
        perform {schema}.alter_destination('topic://' || name, settings);
    end if;
    return made;
end
$$;
comment on function {schema}.create_topic(text, jsonb) is
    'Makes a topic, if it is not there, and changes the settings that are named. Returns whether it was made.';

create function {schema}.delete_destination(destination text) returns void
    language plpgsql volatile strict
    set search_path = pg_catalog, pg_temp
as $$
declare
    settings_id integer := {schema}.settings_row(destination);
    found_topic integer;
begin
    select q.topic_id into found_topic from {schema}.queue q where q.queue_id = settings_id;
    if found_topic is null then
        delete from {schema}.queue q where q.queue_id = settings_id;
    else
        with gone as (delete from {schema}.subscription s where s.topic_id = found_topic returning s.queue_id)
        delete from {schema}.queue q using gone where q.queue_id = gone.queue_id;
        delete from {schema}.topic t where t.topic_id = found_topic;
    end if;
end
$$;
comment on function {schema}.delete_destination(text) is
    'Deletes a queue with its messages, or a topic with its subscriptions and their messages.';

create view {schema}.destinations as
select 'queue' as kind, q.name as destination, q.connection_id is not null as temporary,
       {schema}.queue_settings(q) as settings, q.created_at
from {schema}.queue q
where q.name is not null
union all
select 'topic', t.name, t.connection_id is not null,
       coalesce((select {schema}.queue_settings(q) from {schema}.queue q where q.topic_id = t.topic_id), '{{}}'),
       t.created_at
from {schema}.topic t;
comment on view {schema}.destinations is 'One row a queue or topic, with what is set for it.';
"""


def upgrade() -> None:
    schema = target_schema()
    for script in (TABLES, SETTINGS, DESTINATIONS):
        op.execute(script.format(schema=schema))


def downgrade() -> None:
    schema = target_schema()
    op.execute(
        f"""
        drop view {schema}.destinations;
        drop trigger subscriptions_have_their_topics_settings on {schema}.subscription;
        drop function {schema}.delete_destination(text), {schema}.create_topic(text, jsonb),
            {schema}.create_queue(text, jsonb), {schema}.inherit_settings(), {schema}.alter_destination(text, jsonb),
            {schema}.settings_row(text), {schema}.queue_settings({schema}.queue), {schema}.setting_columns();
        delete from {schema}.queue where topic_id is not null;
        alter table {schema}.queue drop column topic_id;
        """
    )
