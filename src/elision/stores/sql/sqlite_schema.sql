-- What a new file gets.

CREATE TABLE sessions (
  id INTEGER PRIMARY KEY AUTOINCREMENT, -- never given out twice: the search index may still hold words of a deleted one
  key BLOB NOT NULL UNIQUE,             -- any text, as UTF-8
  family BLOB NOT NULL,
  parent BLOB NOT NULL,
  relation TEXT NOT NULL,
  begun REAL NOT NULL,
  changed REAL NOT NULL,
  records INTEGER NOT NULL,             -- length of the log
  turns INTEGER NOT NULL,               -- newest index
  raw_bytes INTEGER NOT NULL,           -- of the log before packing
  indexed INTEGER NOT NULL DEFAULT 0    -- leading records that the search index covers
);

CREATE INDEX sessions_by_family ON sessions (family);

-- A row has one or more records of one append, those up to the next row.
CREATE TABLE records (
  id INTEGER PRIMARY KEY,               -- of the first: session * 2^32 + number (1, 2, ...)
  body BLOB NOT NULL,
  texts BLOB,                           -- addresses of their large texts, 32 bytes each
  raw_bytes INTEGER NOT NULL,
  batch BLOB                            -- of the first row of an append with an id: the id, and how many records
);

-- Every form that a turn ever had; the one with the greatest number is the turn.
CREATE TABLE turns (
  session INTEGER NOT NULL,
  turn INTEGER NOT NULL,
  number INTEGER NOT NULL,              -- of the record
  node BLOB,                            -- half the SHA-256 of its name, NULL for none
  PRIMARY KEY (session, turn, number)
) WITHOUT ROWID;

CREATE INDEX turns_by_node ON turns (node) WHERE node IS NOT NULL;

CREATE TABLE texts (
  address BLOB NOT NULL PRIMARY KEY,    -- SHA-256
  place INTEGER NOT NULL,               -- in `bodies`
  uses INTEGER NOT NULL                 -- references from records
) WITHOUT ROWID;

CREATE TABLE bodies (
  place INTEGER PRIMARY KEY,
  body BLOB NOT NULL
);
