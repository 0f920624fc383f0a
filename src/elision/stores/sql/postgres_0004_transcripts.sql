-- Whole texts, under the names that people look for; null in rows that an older version wrote, until `store gc`.

alter table agent_context_turns
    add column action text,
    add column observation text,
    add column "timestamp" timestamptz generated always as (created_at) stored;

-- Every summary that was sent. record: where it stands in the log.
create table agent_context_summaries (
    session_id bigint not null references agent_context_sessions on delete cascade,
    session text not null,
    call bigint not null,
    record bigint not null,
    covers bigint not null,
    summary text not null,
    block text not null,
    route text not null,
    primary key (session_id, record)
);

create or replace view agent_context_observations as
select
    turns.session,
    turns.turn,
    each.position,
    format('t%s.%s', turns.turn, each.position) as handle,
    each.value ->> 'tool' as tool,
    (each.value ->> 'error')::boolean as error,
    (each.value ->> 'chars')::bigint as chars,
    coalesce(
        substr(turns.observation, each.place::integer, (each.value ->> 'chars')::integer), each.value ->> 'text'
    ) as text,
    each.value -> 'texts' as texts,
    (each.value ->> 'masked_at')::bigint as masked_at,
    (each.value ->> 'clipped_at')::bigint as clipped_at,
    each.value ->> 'placeholder' as placeholder,
    turns.summarized_at,
    turns.created_at
from agent_context_turns as turns
cross join lateral (
    select
        value,
        position,
        -- Two line ends stand between two results.
        1 + coalesce(sum((value ->> 'chars')::bigint + 2) over (
            order by position rows between unbounded preceding and 1 preceding
        ), 0) as place
    from jsonb_array_elements(turns.observations) with ordinality as every (value, position)
) as each;

-- For people: a turn a row, whole, with what is sent in its place.
create view agent_context_transcript as
select
    turns.session,
    turns.turn,
    turns."timestamp",
    turns.reasoning,
    turns.said,
    turns.action,
    turns.observation,
    (
        select string_agg(value ->> 'placeholder', E'\n\n' order by position)
        from jsonb_array_elements(turns.observations) with ordinality as every (value, position)
    ) as placeholder,
    turns.masked_at,
    turns.summarized_at,
    (
        select summaries.summary from agent_context_summaries as summaries
        where summaries.session_id = turns.session_id and summaries.covers >= turns.turn
        order by summaries.record desc limit 1
    ) as summary
from agent_context_turns as turns;
