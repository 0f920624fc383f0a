-- What gateways hash API keys with: one for all that serve from these tables.

create table agent_context_secret (
    secret bytea not null,
    one boolean primary key default true check (one)
);

-- All sessions of one API key, without a look at those of others. Their beginning: names have no greatest length.
create index agent_context_sessions_family on agent_context_sessions ((left(family, 64)) collate "C", changed);
