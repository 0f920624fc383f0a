-- All sessions of one API key, without a look at those of others.

CREATE INDEX sessions_by_family ON sessions (family, changed);
