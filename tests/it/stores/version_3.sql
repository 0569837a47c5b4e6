-- What made version 3 of version 2, and a record of that time.
-- Small documents by kind and name; how often those changed on which all processes must agree.
CREATE TABLE records (
    kind TEXT NOT NULL, name TEXT NOT NULL, at INTEGER NOT NULL, json TEXT NOT NULL,
    PRIMARY KEY (kind, name)
) STRICT;
CREATE INDEX records_calls ON records (at, name) WHERE kind = 'call';
INSERT INTO meta VALUES ('records_revision', '0');

-- How often tools were called, and how many calls took how long.
CREATE TABLE usage (
    tool TEXT PRIMARY KEY, calls INTEGER NOT NULL, failures INTEGER NOT NULL, last INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE usage_times (
    tool TEXT NOT NULL, bucket INTEGER NOT NULL, calls INTEGER NOT NULL, PRIMARY KEY (tool, bucket)
) STRICT, WITHOUT ROWID;
INSERT INTO records VALUES ('tool', 'a', 1704123456000000, '1');
UPDATE meta SET value = '3' WHERE name = 'schema_version';
