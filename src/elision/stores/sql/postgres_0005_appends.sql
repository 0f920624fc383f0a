-- With the first record of an append: how many it has, so that it is recognized when it is repeated, and no other one.

alter table agent_context_log add column added bigint;
