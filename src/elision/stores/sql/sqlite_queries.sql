-- Every statement of the SQLite store but the search index's and the check's; `-- name:` begins one.

-- name: session
SELECT id, records FROM sessions WHERE key = :key

-- name: session_locked
SELECT id, records FROM sessions WHERE key = :key

-- name: indexed
SELECT indexed FROM sessions WHERE id = ?

-- name: info
SELECT key, family, parent, relation, begun, changed, records, turns, raw_bytes FROM sessions WHERE key = :key

-- name: sessions
SELECT key, family, parent, relation, begun, changed, records, turns, raw_bytes
FROM sessions WHERE changed >= :since ORDER BY changed DESC, key DESC

-- name: ages
SELECT changed, key, records FROM sessions

-- No byte of UTF-8 is as great as the last one.

-- name: sessions_of_family
SELECT key, family, parent, relation, begun, changed, records, turns, raw_bytes
FROM sessions WHERE family >= :prefix AND family < CAST(:prefix || x'ff' AS BLOB) AND changed >= :since
ORDER BY changed DESC, key DESC

-- The next id, as AUTOINCREMENT would choose it, but for ids that no session can have: one is damaged then.

-- name: create
INSERT INTO sessions (id, key, family, parent, relation, begun, changed, records, turns, raw_bytes)
VALUES (
  1 + max(
    coalesce((SELECT max(id) FROM sessions WHERE id < 2147483647), 0),
    coalesce((SELECT max(seq) FROM sqlite_sequence WHERE name = 'sessions' AND seq < 2147483647), 0)),
  ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: claim
UPDATE sessions SET
  records = records + :added, turns = max(turns, :turn), raw_bytes = raw_bytes + :size, changed = :at
WHERE key = :key AND records = :after

-- name: delete_session
DELETE FROM sessions WHERE id = ?

-- name: footprint
SELECT
  count(*), coalesce(sum(records), 0),
  (SELECT count(*) FROM (SELECT DISTINCT session, turn FROM turns)), (SELECT count(*) FROM texts),
  coalesce(sum(raw_bytes), 0)
FROM sessions

-- name: add_row
INSERT INTO records (id, body, texts, raw_bytes, batch)
SELECT (id << 32) + ?, ?, ?, ?, ? FROM sessions WHERE key = ?

-- name: mark
SELECT batch FROM records WHERE id = ?

-- The row that has a record, if the record is there, and those from it on.

-- name: row
SELECT id, body FROM records WHERE id <= ? ORDER BY id DESC LIMIT 1

-- name: rows
SELECT id, body FROM records
WHERE id BETWEEN (SELECT max(id) FROM records WHERE id <= ?) AND ? ORDER BY id

-- name: next_row
SELECT min(id) FROM records WHERE id > ?

-- name: copy_records
INSERT INTO records (id, body, texts, raw_bytes)
SELECT id + ?, body, texts, raw_bytes FROM records WHERE id BETWEEN ? AND ?

-- name: raw_bytes
SELECT coalesce(sum(raw_bytes), 0) FROM records WHERE id BETWEEN ? AND ?

-- name: addresses
SELECT texts FROM records WHERE id BETWEEN ? AND ? AND texts IS NOT NULL

-- name: delete_records
DELETE FROM records WHERE id BETWEEN ? AND ?

-- name: add_turn
INSERT INTO turns (session, turn, number, node) VALUES (?, ?, ?, ?)

-- name: copy_turns
INSERT INTO turns (session, turn, number, node)
SELECT ?, turn, number, node FROM turns WHERE session = ? AND number <= ?

-- name: newest_turn
SELECT coalesce(max(turn), 0) FROM turns WHERE session = ? AND number <= ?

-- name: delete_turns
DELETE FROM turns WHERE session = ?

-- name: turns
SELECT max(number) FROM turns WHERE session = :id AND turn BETWEEN :first AND :last GROUP BY turn ORDER BY turn

-- name: turns_back
SELECT max(number) FROM turns WHERE session = ? GROUP BY turn ORDER BY turn DESC

-- name: locate
SELECT sessions.key, turns.turn FROM turns JOIN sessions ON sessions.id = turns.session
WHERE turns.node = ? AND sessions.family = ? AND NOT EXISTS (
  SELECT 1 FROM turns AS newer
  WHERE newer.session = turns.session AND newer.turn = turns.turn AND newer.number > turns.number)
ORDER BY sessions.changed DESC, sessions.key DESC, turns.turn DESC LIMIT 1

-- name: lost_session
SELECT 1 FROM turns WHERE node = ? AND session NOT IN (SELECT id FROM sessions) LIMIT 1

-- name: use_text
UPDATE texts SET uses = uses + ? WHERE address = ?

-- name: move_text
UPDATE texts SET place = ? WHERE address = ?

-- name: add_body
INSERT INTO bodies (body) VALUES (?)

-- name: add_text
INSERT INTO texts (address, place, uses) VALUES (?, ?, 1)

-- name: text
SELECT body FROM bodies WHERE place = (SELECT place FROM texts WHERE address = ?)

-- name: drop_body
DELETE FROM bodies WHERE place = (SELECT place FROM texts WHERE address = ? AND uses <= 0)

-- name: drop_text
DELETE FROM texts WHERE address = ? AND uses <= 0

-- name: has_tables
SELECT 1 FROM sqlite_master WHERE name = 'agent_context_progress'

-- name: progress
SELECT records FROM agent_context_progress WHERE session_id = ?

-- name: sessions_behind
SELECT key FROM sessions WHERE records > coalesce(
  (SELECT records FROM agent_context_progress WHERE session_id = sessions.id), 0)

-- name: set_progress
INSERT INTO agent_context_progress (session_id, records) VALUES (?, ?)
ON CONFLICT (session_id) DO UPDATE SET records = excluded.records

-- name: put_turn
INSERT OR REPLACE INTO agent_context_turns (
  session_id, session, turn, timestamp, reasoning, said, action, observation, results, model,
  input_tokens, output_tokens)
VALUES (
  :id, :session, :turn, :at, :reasoning, :said, :action, :observation, :results, :model,
  coalesce(:input, (SELECT input_tokens FROM agent_context_turns WHERE session_id = :id AND turn = :turn),
    (SELECT answered_input FROM agent_context_progress WHERE session_id = :id AND answered_call = :turn)),
  coalesce(:output, (SELECT output_tokens FROM agent_context_turns WHERE session_id = :id AND turn = :turn),
    (SELECT answered_output FROM agent_context_progress WHERE session_id = :id AND answered_call = :turn)))

-- name: clear_turn
DELETE FROM agent_context_placeholders WHERE session_id = :id AND turn = :turn

-- name: unfold
DELETE FROM agent_context_placeholders WHERE session_id = :id AND turn = :turn AND position = :position

-- name: put_placeholder
INSERT OR REPLACE INTO agent_context_placeholders (session_id, turn, position, call, placeholder)
SELECT :id, :turn, :position, :call, :text
WHERE EXISTS (
  SELECT 1 FROM agent_context_turns WHERE session_id = :id AND turn = :turn AND results >= :position)

-- name: mask
UPDATE agent_context_turns SET masked_at = coalesce(masked_at, :call)
WHERE session_id = :id AND turn = :turn AND results >= :position

-- name: summarize
UPDATE agent_context_turns SET summarized_at = :call
WHERE session_id = :id AND turn <= :covers AND summarized_at IS NULL

-- name: put_summary
INSERT OR REPLACE INTO agent_context_summaries (session_id, session, call, record, covers, summary, block, route)
VALUES (:id, :session, :call, :record, :covers, :summary, :block, :route)

-- name: answer_turn
UPDATE agent_context_turns SET input_tokens = :input, output_tokens = :output
WHERE session_id = :id AND turn = :call

-- name: answer_session
INSERT INTO agent_context_progress (session_id, records, answered_call, answered_input, answered_output)
VALUES (:id, 0, :call, :input, :output)
ON CONFLICT (session_id) DO UPDATE SET
  answered_call = :call, answered_input = :input, answered_output = :output
