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
    each.value ->> 'text' as text,
    each.value -> 'texts' as texts,
    (each.value ->> 'masked_at')::bigint as masked_at,
    (each.value ->> 'clipped_at')::bigint as clipped_at,
    each.value ->> 'placeholder' as placeholder,
    turns.summarized_at,
    turns.created_at
from agent_context_turns as turns
cross join lateral jsonb_array_elements(turns.observations) with ordinality as each (value, position);
