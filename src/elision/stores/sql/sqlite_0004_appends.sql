-- A row of `records` has all records of an append, or some of a large one; rows with one record each stay as they are.
-- What an append changes in every session's row is no longer in an index.

DROP INDEX sessions_by_family;
CREATE INDEX sessions_by_family ON sessions (family);
