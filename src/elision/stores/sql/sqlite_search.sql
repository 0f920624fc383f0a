-- The search index: which runs of three letters stand in a record. Made at the first search of a long session, and never
-- part of the schema's version: it can be dropped and made again at any time. Without content (the texts are packed in
-- `bodies`) and without positions: what it finds is read again.

CREATE VIRTUAL TABLE IF NOT EXISTS trigrams USING fts5 (
  letters, content = '', columnsize = 0, detail = 'none', tokenize = "ascii tokenchars '_'"
);
