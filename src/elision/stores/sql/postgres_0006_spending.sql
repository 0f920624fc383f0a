-- What API keys have spent, and what gateways have leased to spend. period: number of the period that it counts, 0 for all.
create table agent_context_spending (
    key text not null,
    what text not null,
    period bigint not null,
    leased double precision not null,
    primary key (key, what)
) with (fillfactor = 50);
