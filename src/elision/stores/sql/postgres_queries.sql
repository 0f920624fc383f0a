-- Every statement of the store; `-- name:` begins one. Names without a schema: the transaction's search_path says which.

-- First in every transaction, and gone with it: behind a pooler the connection is someone else's before and after.

-- name: settings
select
    set_config('search_path', quote_ident(%(schema)s), true),
    set_config('synchronous_commit',
        case when current_setting('synchronous_commit') = 'remote_apply' then 'remote_apply' else 'on' end, true),
    set_config('statement_timeout', %(statement)s, true),
    set_config('lock_timeout', %(lock)s, true),
    set_config('idle_in_transaction_session_timeout', %(idle)s, true),
    set_config('client_min_messages', 'warning', true),
    set_config('jit', 'off', true)

-- name: server
select
    current_setting('server_version_num')::bigint, current_setting('server_encoding'), current_setting('fsync')

-- A server that only reads assigns none; neither does a session in which every transaction does.

-- name: transaction_number
select pg_current_xact_id()::text, current_setting('transaction_read_only')

-- name: schema_lock
select pg_advisory_xact_lock(hashtext('elision'), hashtext(%(schema)s))

-- Read from the catalogs themselves: to_regclass answers from a cache, which is old behind a wait for the lock.

-- name: schema_exists
select exists (select from pg_namespace where nspname = %(schema)s)

-- name: schema_versioned
select exists (
    select from pg_class join pg_namespace on pg_namespace.oid = relnamespace
    where nspname = %(schema)s and relname = 'agent_context_schema'
)

-- name: schema_version
select version from agent_context_schema

-- name: schema_set_version
insert into agent_context_schema (version) values (%(version)s)

-- name: keep_secret
insert into agent_context_secret (secret) values (%(secret)s) on conflict do nothing

-- name: secret
select secret from agent_context_secret

-- name: open_spending
insert into agent_context_spending (key, what, period, leased) values (%(key)s, %(what)s, 0, %(spent)s)
on conflict do nothing

-- The server's clock says which period it is: those of gateways differ.

-- name: spending_locked
select
    case when spending.period = time.period then leased else 0 end,
    time.period,
    case when time.length = 0 then 'infinity'::double precision
        else (time.period + 1) * time.length - extract(epoch from clock_timestamp())::double precision end
from agent_context_spending as spending
cross join lateral (
    select given.length, case when given.length = 0 then 0
        else floor(extract(epoch from clock_timestamp()) / given.length)::bigint end as period
    from (values (%(length)s::integer)) as given (length)
) as time
where key = %(key)s and what = %(what)s
for update of spending

-- name: put_spending
update agent_context_spending set period = %(period)s, leased = %(leased)s where key = %(key)s and what = %(what)s

-- name: session
select id, records from agent_context_sessions where session = %(key)s

-- name: session_locked
select id, records from agent_context_sessions where session = %(key)s for update

-- name: info
select session, family, parent, relation, begun, changed, records, turns, raw_bytes
from agent_context_sessions where session = %(key)s

-- name: parent
select id, records from agent_context_sessions where session = %(session)s and id <> %(id)s for share

-- name: sessions
select session, family, parent, relation, begun, changed, records, turns, raw_bytes
from agent_context_sessions where changed >= %(since)s

-- name: ages
select changed, session, records from agent_context_sessions

-- name: sessions_of_family
select session, family, parent, relation, begun, changed, records, turns, raw_bytes
from agent_context_sessions
where left(family, 64) collate "C" >= left(%(prefix)s, 64)
    and left(family, 64) collate "C" <= left(%(prefix)s, 64) || repeat(chr(1114111), 64)
    and starts_with(family, %(prefix)s)
    and changed >= %(since)s

-- name: create
insert into agent_context_sessions (session, family, parent, relation, begun, changed, token)
values (%(session)s, %(family)s, %(parent)s, %(relation)s, %(at)s, %(at)s, %(token)s)
on conflict do nothing
returning id

-- name: created
select id from agent_context_sessions where session = %(session)s and token = %(token)s

-- name: fork_log
insert into agent_context_log (session_id, position, kind, turn, size, token, texts, body)
select %(id)s, position, kind, turn, size, fork.token, texts, body
from agent_context_log
join agent_context_sessions as fork on fork.id = %(id)s
where session_id = %(parent)s and position <= %(shared)s

-- name: fork_uses
insert into agent_context_uses (address, session_id)
select distinct address, %(id)s::bigint
from agent_context_log cross join lateral unnest(texts) as address where session_id = %(id)s

-- name: fork_turns
insert into agent_context_turns (
    session_id, session, turn, record, touched, node, reasoning, said, actions, observations, model,
    input_tokens, output_tokens, masked_at, summarized_at, created_at, action, observation
)
select
    %(id)s, %(session)s, turn, record, touched, node, reasoning, said, actions, observations, model,
    input_tokens, output_tokens, masked_at, summarized_at, created_at, action, observation
from agent_context_turns where session_id = %(parent)s and touched <= %(shared)s

-- name: fork_summaries
insert into agent_context_summaries (session_id, session, call, record, covers, summary, block, route)
select %(id)s, %(session)s, call, record, covers, summary, block, route
from agent_context_summaries where session_id = %(parent)s and record <= %(shared)s

-- name: fork_words
insert into agent_context_words (session_id, turn, position, words, texts)
select %(id)s, words.turn, words.position, words.words, words.texts
from agent_context_words as words
join agent_context_turns as turns on turns.session_id = %(id)s and turns.turn = words.turn
where words.session_id = %(parent)s

-- name: fork_stale
select turn, max(position) from agent_context_log as log
where session_id = %(id)s and kind in ('turn', 'amended')
    and not exists (
        select from agent_context_turns as turns where turns.session_id = log.session_id and turns.turn = log.turn
    )
group by turn

-- name: fork_decisions
select position from agent_context_log where session_id = %(id)s and kind in ('decided', 'answered')

-- name: fork_counts
update agent_context_sessions set
    records = %(shared)s,
    turns = coalesce((select max(turn) from agent_context_log where session_id = %(id)s), 0),
    raw_bytes = (select coalesce(sum(size), 0) from agent_context_log where session_id = %(id)s)
where id = %(id)s

-- name: claim
update agent_context_sessions set
    records = records + %(added)s,
    turns = greatest(turns, %(turn)s),
    raw_bytes = raw_bytes + %(size)s,
    changed = %(at)s
where session = %(key)s and records = %(after)s
returning id

-- name: claimed
select session_id, added
from agent_context_log
where session_id = (select id from agent_context_sessions where session = %(session)s)
    and position = %(after)s::bigint + 1 and token = %(token)s and added is not null

-- Damage to a text that is there already must not spread to the records that are written with it.

-- name: add_text
with mended as (
    update agent_context_texts set size = %(size)s, packed = %(packed)s
    where address = %(address)s and packed <> %(packed)s
)
insert into agent_context_texts (address, size, packed, words)
values (%(address)s, %(size)s, %(packed)s, %(words)s) on conflict do nothing

-- name: add_words_of_text
update agent_context_texts set words = %s where address = %s and words = ''

-- name: add_use
insert into agent_context_uses (address, session_id) values (%s, %s) on conflict do nothing

-- name: add_record
insert into agent_context_log (session_id, position, kind, turn, size, token, texts, body, added)
values (%s, %s, %s, %s, %s, %s, %s, %s, %s)

-- name: put_turn
insert into agent_context_turns (
    session_id, session, turn, record, touched, node, reasoning, said, actions, observations, model,
    input_tokens, output_tokens, created_at, action, observation
)
select
    id, session, %(turn)s, %(record)s, %(record)s, %(node)s, %(reasoning)s, %(said)s, %(actions)s::jsonb,
    %(observations)s::jsonb, %(model)s,
    coalesce(%(input)s, case when answered_call = %(turn)s then answered_input end),
    coalesce(%(output)s, case when answered_call = %(turn)s then answered_output end),
    to_timestamp(%(at)s), %(action)s, %(observation)s
from agent_context_sessions where id = %(id)s
on conflict (session_id, turn) do update set
    record = excluded.record, touched = excluded.touched, node = excluded.node, reasoning = excluded.reasoning,
    said = excluded.said, actions = excluded.actions, observations = excluded.observations, model = excluded.model,
    input_tokens = coalesce(excluded.input_tokens, agent_context_turns.input_tokens),
    output_tokens = coalesce(excluded.output_tokens, agent_context_turns.output_tokens),
    masked_at = null, summarized_at = null, created_at = excluded.created_at,
    action = excluded.action, observation = excluded.observation

-- name: clear_turn
delete from agent_context_words where session_id = %(id)s and turn = %(turn)s

-- name: add_words
insert into agent_context_words (session_id, turn, position, words, texts)
values (%(id)s, %(turn)s, %(position)s, %(words)s, %(texts)s)

-- name: mask
update agent_context_turns set
    observations = jsonb_set(
        observations, array[(%(position)s::integer - 1)::text],
        (observations -> (%(position)s::integer - 1)) || jsonb_build_object('masked_at', %(call)s::bigint, 'placeholder', %(text)s::text)
    ),
    masked_at = coalesce(masked_at, %(call)s),
    touched = %(record)s
where session_id = %(id)s and turn = %(turn)s and jsonb_array_length(observations) >= %(position)s

-- name: clip
update agent_context_turns set
    observations = jsonb_set(
        observations, array[(%(position)s::integer - 1)::text],
        (observations -> (%(position)s::integer - 1)) || jsonb_build_object('clipped_at', %(call)s::bigint, 'placeholder', %(text)s::text)
    ),
    touched = %(record)s
where session_id = %(id)s and turn = %(turn)s and jsonb_array_length(observations) >= %(position)s

-- name: fold
update agent_context_turns set
    observations = jsonb_set(
        observations, array[(%(position)s::integer - 1)::text],
        (observations -> (%(position)s::integer - 1)) || jsonb_build_object('folded_at', %(call)s::bigint, 'placeholder', %(text)s::text)
    ),
    touched = %(record)s
where session_id = %(id)s and turn = %(turn)s and jsonb_array_length(observations) >= %(position)s

-- name: unfold
update agent_context_turns set
    observations = jsonb_set(
        observations, array[(%(position)s::integer - 1)::text],
        (observations -> (%(position)s::integer - 1)) - 'folded_at' - 'placeholder'
    ),
    touched = %(record)s
where session_id = %(id)s and turn = %(turn)s and jsonb_array_length(observations) >= %(position)s

-- name: summarize
update agent_context_turns set summarized_at = %(call)s, touched = %(record)s
where session_id = %(id)s and turn <= %(covers)s and summarized_at is null

-- name: put_summary
insert into agent_context_summaries (session_id, session, call, record, covers, summary, block, route)
select id, session, %(call)s, %(record)s, %(covers)s, %(summary)s, %(block)s, %(route)s
from agent_context_sessions where id = %(id)s
on conflict (session_id, record) do nothing

-- name: cut_sessions
select distinct session from agent_context_turns where observation is null

-- name: show_whole
update agent_context_turns set
    reasoning = %(reasoning)s, said = %(said)s, action = %(action)s, observation = %(observation)s
where session_id = %(id)s and turn = %(turn)s and record = %(record)s

-- name: answer_turn
update agent_context_turns set input_tokens = %(input)s, output_tokens = %(output)s, touched = %(record)s
where session_id = %(id)s and turn = %(call)s

-- name: answer_session
update agent_context_sessions set
    answered_call = %(call)s, answered_input = %(input)s, answered_output = %(output)s
where id = %(id)s

-- name: log
select position, texts, body from (
    select position, texts, body, sum(size) over (order by position) - size as before
    from (
        select position, texts, body, size from agent_context_log
        where session_id = %(id)s and position > %(after)s and position <= %(last)s
        order by position limit %(records)s
    ) as next
) as sized
where before < %(bytes)s
order by position

-- name: records
select position, texts, body from agent_context_log
where session_id = %(id)s and position = any(%(positions)s)
order by position

-- name: texts
select address, packed from agent_context_texts where address = any(%(addresses)s)

-- name: turns
select record from agent_context_turns
where session_id = %(id)s and turn >= %(first)s and turn <= %(last)s
order by turn

-- name: search
select record from agent_context_turns as turns
where session_id = %(id)s and (%(before)s::bigint is null or turn < %(before)s) and exists (
    select from agent_context_words as words
    where words.session_id = turns.session_id and words.turn = turns.turn and not exists (
        select from unnest(%(words)s::text[]) as word
        where strpos(words.words, word) = 0 and not exists (
            select from agent_context_texts as kept
            where kept.address = any(words.texts) and strpos(kept.words, word) > 0
        )
    )
)
order by turn desc limit %(limit)s

-- name: locate
select found.session, found.turn
from (
    select node, place from unnest(%(nodes)s::text[]) with ordinality as given (node, place)
    where node <> '' order by place desc
) as wanted
cross join lateral (
    select sessions.session, turns.turn
    from agent_context_turns as turns
    join agent_context_sessions as sessions on sessions.id = turns.session_id
    where turns.node = wanted.node and turns.node <> '' and sessions.family = %(family)s
    order by sessions.changed desc, sessions.session collate "C" desc, turns.turn desc
    limit 1
) as found
order by wanted.place desc
limit 1

-- name: lost_session
select 1
from agent_context_turns as turns
where turns.node = any(%(nodes)s::text[])
    and turns.node <> ''
    and not exists (select 1 from agent_context_sessions as sessions where sessions.id = turns.session_id)
limit 1

-- name: session_bytes
select
    (select coalesce(sum(octet_length(body) + pg_column_size(texts) + 64), 0)
        from agent_context_log where session_id = %(id)s)
    + (select coalesce(sum(pg_column_size(turns)), 0) from agent_context_turns as turns where session_id = %(id)s)
    + (select coalesce(sum(pg_column_size(words)), 0) from agent_context_words as words where session_id = %(id)s)

-- name: used_by
select address from agent_context_uses where session_id = %(id)s

-- name: delete
delete from agent_context_sessions where id = %(id)s

-- name: sweep
with swept as (
    delete from agent_context_texts where address in (
        select address from agent_context_texts as texts
        where address = any(%(addresses)s)
            and not exists (select from agent_context_uses as uses where uses.address = texts.address)
        order by address for update skip locked
    )
    returning octet_length(packed) + octet_length(words) + 64 as bytes
)
select coalesce(sum(bytes), 0) from swept

-- name: sweep_all
delete from agent_context_texts where address in (
    select address from agent_context_texts as texts
    where not exists (select from agent_context_uses as uses where uses.address = texts.address)
    order by address for update skip locked
)

-- name: footprint
select
    (select count(*) from agent_context_sessions),
    (select coalesce(sum(records), 0) from agent_context_sessions),
    (select count(*) from agent_context_turns),
    (select count(*) from agent_context_texts),
    (select coalesce(sum(raw_bytes), 0) from agent_context_sessions)

-- name: stored
select
    (select coalesce(sum(octet_length(body) + pg_column_size(texts) + 64), 0) from agent_context_log)
    + (select coalesce(sum(octet_length(packed) + octet_length(words) + 64), 0) from agent_context_texts)
    + (select coalesce(sum(pg_column_size(turns)), 0) from agent_context_turns as turns)
    + (select coalesce(sum(pg_column_size(words)), 0) from agent_context_words as words)
    + (select coalesce(sum(pg_column_size(summaries)), 0) from agent_context_summaries as summaries)

-- name: disk
select coalesce(sum(pg_total_relation_size(pg_class.oid)), 0)
from pg_class join pg_namespace on pg_namespace.oid = relnamespace
where relkind = 'r' and starts_with(relname, 'agent_context_') and nspname = current_schema()

-- name: check_counts
select
    sessions.records,
    (select count(*) from agent_context_log where session_id = sessions.id),
    (select count(distinct turn) from agent_context_log where session_id = sessions.id and turn > 0),
    (select count(*) from agent_context_turns where session_id = sessions.id)
from agent_context_sessions as sessions where sessions.id = %(id)s

-- name: check_strays
select stray.session_id, sum(stray.records)::bigint, sum(stray.turns)::bigint
from (
    select session_id, count(*) as records, 0 as turns from agent_context_log group by session_id
    union all
    select session_id, 0, count(*) from agent_context_turns group by session_id
) as stray
where not exists (select 1 from agent_context_sessions as sessions where sessions.id = stray.session_id)
group by stray.session_id order by stray.session_id

-- name: check_texts
select address, packed from agent_context_texts
where address > %(after)s order by address limit %(records)s
