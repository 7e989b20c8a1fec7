-- Format 2. Which write-ahead log belongs to the file; docs/SCHEMA.md explains it.

CREATE TABLE file (
    one            INTEGER PRIMARY KEY CHECK (one = 1),
    -- Drawn anew with each log that is begun.
    mark           INTEGER NOT NULL,
    -- The one before: what the file has as long as nothing of the log was folded into it.
    former_mark    INTEGER NOT NULL,
    -- By which SQLite tells the log from others.
    log_salts      INTEGER NOT NULL
) STRICT;

INSERT INTO file (one, mark, former_mark, log_salts) VALUES (1, random() | 1, 0, 0);
