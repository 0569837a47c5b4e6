-- What made version 4 of version 3.
-- What models made of texts. A text is known by its SHA-256, a vector has four bytes a number.
CREATE TABLE models (number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE) STRICT;
CREATE TABLE vectors (
    id INTEGER PRIMARY KEY, model INTEGER NOT NULL, text BLOB NOT NULL, numbers BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX vectors_text ON vectors (model, text);
UPDATE meta SET value = '4' WHERE name = 'schema_version';
