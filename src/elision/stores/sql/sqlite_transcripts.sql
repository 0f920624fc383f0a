-- For people: each turn whole, and what is sent in its place. Made from the log where the store's URL has `?turns=full`.
-- Never part of the schema's version: the tables can be dropped and made again at any time.

CREATE TABLE IF NOT EXISTS agent_context_turns (
  session_id INTEGER NOT NULL,
  session TEXT NOT NULL,
  turn INTEGER NOT NULL,
  timestamp TEXT,                       -- when the call was made, in UTC
  reasoning TEXT NOT NULL,
  said TEXT NOT NULL,
  action TEXT NOT NULL,
  observation TEXT NOT NULL,
  results INTEGER NOT NULL,             -- how many the observation is made of
  model TEXT NOT NULL,
  input_tokens INTEGER,
  output_tokens INTEGER,
  masked_at INTEGER,
  summarized_at INTEGER,
  PRIMARY KEY (session_id, turn)
);

CREATE TABLE IF NOT EXISTS agent_context_placeholders (
  session_id INTEGER NOT NULL,
  turn INTEGER NOT NULL,
  position INTEGER NOT NULL,            -- of the result in its turn, from 1
  call INTEGER NOT NULL,
  placeholder TEXT NOT NULL,
  PRIMARY KEY (session_id, turn, position)
);

CREATE TABLE IF NOT EXISTS agent_context_summaries (
  session_id INTEGER NOT NULL,
  session TEXT NOT NULL,
  call INTEGER NOT NULL,
  record INTEGER NOT NULL,
  covers INTEGER NOT NULL,
  summary TEXT NOT NULL,
  block TEXT NOT NULL,
  route TEXT NOT NULL,
  PRIMARY KEY (session_id, record)
);

-- Leading records of a session that the tables show; and the newest call that the provider reported on, for a turn that
-- is added behind its bill.
CREATE TABLE IF NOT EXISTS agent_context_progress (
  session_id INTEGER PRIMARY KEY,
  records INTEGER NOT NULL,
  answered_call INTEGER,
  answered_input INTEGER,
  answered_output INTEGER
);

CREATE VIEW IF NOT EXISTS agent_context_transcript AS
SELECT
  turns.session, turns.turn, turns.timestamp, turns.reasoning, turns.said, turns.action, turns.observation,
  (
    SELECT group_concat(placeholder, char(10) || char(10)) FROM (
      SELECT placeholder FROM agent_context_placeholders AS places
      WHERE places.session_id = turns.session_id AND places.turn = turns.turn ORDER BY position
    )
  ) AS placeholder,
  turns.masked_at, turns.summarized_at,
  (
    SELECT summary FROM agent_context_summaries AS summaries
    WHERE summaries.session_id = turns.session_id AND summaries.covers >= turns.turn
    ORDER BY record DESC LIMIT 1
  ) AS summary
FROM agent_context_turns AS turns;
