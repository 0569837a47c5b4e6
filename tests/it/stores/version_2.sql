-- What made version 2 of version 1, as it was.
ALTER TABLE heads ADD COLUMN finished_at INTEGER;
ALTER TABLE heads ADD COLUMN parent TEXT;
UPDATE heads SET finished_at = (SELECT json ->> '$[#-1].at' FROM events WHERE log = number
    AND json_valid(json) ORDER BY first DESC LIMIT 1)
    WHERE state IN ('COMPLETED', 'FAILED', 'CANCELLED');
DROP INDEX heads_due;
CREATE INDEX heads_due ON heads (priority, due, execution)
    WHERE owner IS NULL AND due IS NOT NULL AND state NOT IN ('COMPLETED', 'FAILED', 'CANCELLED');
CREATE INDEX heads_queue ON heads (due, execution)
    WHERE owner IS NULL AND due IS NOT NULL AND state NOT IN ('COMPLETED', 'FAILED', 'CANCELLED');
CREATE INDEX heads_finished ON heads (finished_at, execution) WHERE finished_at IS NOT NULL;
CREATE INDEX keys_execution ON keys (execution);

-- Who holds which limit, and when the next call would come if all came evenly.
CREATE TABLE permits (
    key TEXT NOT NULL, holder TEXT NOT NULL, worker TEXT NOT NULL, PRIMARY KEY (key, holder)
) STRICT, WITHOUT ROWID;
CREATE INDEX permits_worker ON permits (worker);
CREATE TABLE rates (key TEXT PRIMARY KEY, next INTEGER NOT NULL, last TEXT NOT NULL)
    STRICT, WITHOUT ROWID;
CREATE INDEX rates_next ON rates (next);

-- What calls returned, for those that ask the same.
CREATE TABLE outputs (key TEXT PRIMARY KEY, until INTEGER NOT NULL, json TEXT NOT NULL) STRICT;
CREATE INDEX outputs_until ON outputs (until);

-- Plans with names, and plans that are steps of plans.
CREATE TABLE saved (
    name TEXT PRIMARY KEY, plan TEXT NOT NULL, inputs TEXT, at INTEGER NOT NULL
) STRICT;
CREATE INDEX saved_plan ON saved (plan);
CREATE TABLE plan_parts (plan TEXT NOT NULL, part TEXT NOT NULL, PRIMARY KEY (plan, part))
    STRICT, WITHOUT ROWID;
CREATE INDEX plan_parts_part ON plan_parts (part);
UPDATE meta SET value = '2' WHERE name = 'schema_version';
