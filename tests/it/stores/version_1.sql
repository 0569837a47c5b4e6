-- The layout of version 1, as it was.
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;

-- What happened. One row for one append; `json` has `len` events, the first at position `first`.
CREATE TABLE logs (number INTEGER PRIMARY KEY, execution TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE events (
    id INTEGER PRIMARY KEY, log INTEGER NOT NULL, first INTEGER NOT NULL, len INTEGER NOT NULL,
    json TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX events_fence ON events (log, first);
CREATE VIEW history AS
    SELECT execution, first, len, json FROM events JOIN logs ON number = log ORDER BY id;

-- What the logs come to. A cache: the logs are right.
CREATE TABLE heads (
    number INTEGER PRIMARY KEY, execution TEXT NOT NULL, request TEXT NOT NULL, plan TEXT NOT NULL,
    state TEXT NOT NULL, created_at INTEGER NOT NULL, seq INTEGER NOT NULL, epoch INTEGER NOT NULL,
    owner TEXT, due INTEGER, priority INTEGER NOT NULL
) STRICT;
CREATE INDEX heads_time ON heads (created_at, execution);
CREATE INDEX heads_state ON heads (state, created_at, execution);
CREATE INDEX heads_request ON heads (request, state);
CREATE INDEX heads_plan ON heads (plan);
CREATE INDEX heads_due ON heads (priority, due, execution) WHERE owner IS NULL AND due IS NOT NULL;
CREATE INDEX heads_owner ON heads (owner, execution) WHERE owner IS NOT NULL;

-- Who works, until when.
CREATE TABLE workers (worker TEXT PRIMARY KEY, node TEXT NOT NULL, until INTEGER NOT NULL)
    STRICT, WITHOUT ROWID;

-- What outsiders ask, by arrival.
CREATE TABLE inbox (
    arrival INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, execution TEXT NOT NULL,
    json TEXT NOT NULL
) STRICT;
CREATE INDEX inbox_execution ON inbox (execution);

-- What never changes. `folded` is the query as it is searched.
CREATE TABLE requests (
    id TEXT PRIMARY KEY, created_at INTEGER NOT NULL, query TEXT NOT NULL, folded TEXT NOT NULL
) STRICT;
CREATE INDEX requests_time ON requests (created_at, id);
CREATE TABLE plans (
    id TEXT PRIMARY KEY, request TEXT NOT NULL, version INTEGER NOT NULL,
    created_at INTEGER NOT NULL, folded TEXT NOT NULL, json TEXT NOT NULL,
    UNIQUE (request, version)
) STRICT;
CREATE INDEX plans_time ON plans (created_at, id);
CREATE TABLE plan_tools (plan TEXT NOT NULL, tool TEXT NOT NULL, PRIMARY KEY (plan, tool))
    STRICT, WITHOUT ROWID;
CREATE TABLE transcripts (n INTEGER PRIMARY KEY, request TEXT NOT NULL, json TEXT NOT NULL) STRICT;
CREATE INDEX transcripts_request ON transcripts (request);
CREATE TABLE keys (key TEXT PRIMARY KEY, execution TEXT NOT NULL, fingerprint TEXT NOT NULL)
    STRICT, WITHOUT ROWID;
INSERT INTO meta VALUES ('schema_version', '1');
