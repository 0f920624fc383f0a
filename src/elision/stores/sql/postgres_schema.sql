-- What a new schema gets.

create table agent_context_schema (
    version integer not null,
    one boolean primary key default true check (one)
);

-- What gateways hash API keys with: one for all that serve from these tables.
create table agent_context_secret (
    secret bytea not null,
    one boolean primary key default true check (one)
);

-- What API keys have spent, and what gateways have leased to spend. period: number of the period that it counts, 0 for all.
create table agent_context_spending (
    key text not null,
    what text not null,
    period bigint not null,
    leased double precision not null,
    primary key (key, what)
) with (fillfactor = 50);

-- token: of the call that made it, so that a call whose answer was lost knows its own work again.
-- answered_*: the newest call that the provider reported on, for a turn that is added behind its bill.
create table agent_context_sessions (
    id bigint generated always as identity primary key,
    session text not null,
    family text not null,
    parent text not null,
    relation text not null,
    begun double precision not null,
    changed double precision not null,
    records bigint not null default 0,
    turns bigint not null default 0,
    raw_bytes bigint not null default 0,
    token uuid not null,
    answered_call bigint,
    answered_input bigint,
    answered_output bigint,
    -- A hash: names have no length at which an index of another kind would refuse them.
    constraint agent_context_sessions_session exclude using hash (session with =)
) with (fillfactor = 50);

-- All sessions of one API key, without a look at those of others. Their beginning: names have no greatest length.
create index agent_context_sessions_family on agent_context_sessions ((left(family, 64)) collate "C", changed);

-- The truth: every event of a session, packed. texts: addresses of the large texts that stand apart from body.
create table agent_context_log (
    session_id bigint not null references agent_context_sessions on delete cascade,
    position bigint not null,
    kind text not null,
    turn bigint not null,
    size bigint not null,
    token uuid not null,
    texts bytea[] not null,
    body bytea not null,
    added bigint,
    primary key (session_id, position)
);
alter table agent_context_log alter column body set storage external;

-- Large texts, each once, packed. words: its different words, folded, one blank between two.
create table agent_context_texts (
    address bytea primary key check (octet_length(address) = 32),
    size bigint not null,
    packed bytea not null,
    words text not null
);
alter table agent_context_texts alter column packed set storage external;

-- Who needs a text; one that nobody needs is swept.
create table agent_context_uses (
    address bytea not null references agent_context_texts,
    session_id bigint not null references agent_context_sessions on delete cascade,
    primary key (address, session_id)
);
create index agent_context_uses_session on agent_context_uses (session_id);

-- For people: a turn as it is now. record: where it stands in the log. touched: the last record that changed the row.
create table agent_context_turns (
    session_id bigint not null references agent_context_sessions on delete cascade,
    session text not null,
    turn bigint not null,
    record bigint not null,
    touched bigint not null,
    node text not null,
    reasoning text not null,
    said text not null,
    actions jsonb not null,
    observations jsonb not null,
    model text not null,
    input_tokens bigint,
    output_tokens bigint,
    masked_at bigint,
    summarized_at bigint,
    created_at timestamptz,
    action text,
    observation text,
    "timestamp" timestamptz generated always as (created_at) stored,
    primary key (session_id, turn)
) with (fillfactor = 80);
create index agent_context_turns_node on agent_context_turns using hash (node) where node <> '';

-- What can be searched: what was said (position 0) and each result. words: of what does not stand in one of texts.
-- No index: a word may stand inside another, which none of PostgreSQL's own can look up, and reading the words of one
-- session's 600 turns takes 3 ms. A GIN index on tsvectors of them doubled the time of an append.
create table agent_context_words (
    session_id bigint not null references agent_context_sessions on delete cascade,
    turn bigint not null,
    position bigint not null,
    words text not null,
    texts bytea[] not null,
    primary key (session_id, turn, position)
);

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

-- For people: a result a row.

create view agent_context_observations as
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
