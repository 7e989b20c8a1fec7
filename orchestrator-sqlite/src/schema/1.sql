-- Format 1. docs/SCHEMA.md explains each table; keep both in step.
-- Times are milliseconds of the run, money is millionths of a US dollar.

CREATE TABLE runs (
    run            INTEGER PRIMARY KEY,
    id             TEXT    NOT NULL UNIQUE,
    seq            INTEGER NOT NULL,
    state          TEXT    NOT NULL,
    state_reason   TEXT,
    budget_micros  INTEGER,
    spent_micros   INTEGER NOT NULL,
    reserved_micros INTEGER NOT NULL,
    last_at_ms     INTEGER NOT NULL,
    last_token     INTEGER NOT NULL,
    driver         TEXT,
    open           INTEGER NOT NULL,
    deferred       INTEGER NOT NULL,
    leased         INTEGER NOT NULL,
    stopping       INTEGER NOT NULL,
    done           INTEGER NOT NULL,
    escalated      INTEGER NOT NULL,
    cancelled      INTEGER NOT NULL,
    first_stage_failures INTEGER NOT NULL,
    rules          TEXT    NOT NULL CHECK (json_valid(rules)),
    anchor         TEXT    CHECK (json_valid(anchor))
) STRICT;

CREATE TABLE plans (
    run            INTEGER NOT NULL REFERENCES runs (run),
    position       INTEGER NOT NULL,
    hash           TEXT    NOT NULL,
    tasks          INTEGER NOT NULL,
    PRIMARY KEY (run, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE tasks (
    run            INTEGER NOT NULL REFERENCES runs (run),
    place          INTEGER NOT NULL,
    id             TEXT    NOT NULL,
    phase          TEXT    NOT NULL,
    stage          INTEGER NOT NULL,
    attempt        INTEGER NOT NULL,
    under_way      INTEGER NOT NULL CHECK (under_way IN (0, 1)),
    rejections     INTEGER NOT NULL,
    interruptions  INTEGER NOT NULL,
    dispatches     INTEGER NOT NULL,
    extra_retries  INTEGER NOT NULL,
    extra_dispatches INTEGER NOT NULL,
    feedback       TEXT    NOT NULL CHECK (json_valid(feedback)),
    signature      INTEGER,
    restart        TEXT    NOT NULL,
    holds_scope    INTEGER NOT NULL CHECK (holds_scope IN (0, 1)),
    workspace_token INTEGER,
    session        TEXT,
    candidate_change TEXT,
    candidate_base TEXT,
    intent_onto    TEXT,
    intent_merged  TEXT,
    last_token     INTEGER NOT NULL,
    settled_micros INTEGER NOT NULL,
    refused_token  INTEGER,
    spent_micros   INTEGER NOT NULL,
    since_ms       INTEGER NOT NULL,
    -- phase 'deferred'
    deferred_until_ms INTEGER,
    -- phases 'deferred' and 'stopping'
    why            TEXT,
    -- phases 'leased' and 'stopping'
    lease_token    INTEGER,
    lease_owner    TEXT,
    lease_granted_at_ms INTEGER,
    lease_hard_stop_ms INTEGER,
    lease_reserved_micros INTEGER,
    -- phase 'done'
    completion     TEXT,
    merged_change  TEXT,
    -- phase 'escalated'
    cause          TEXT,
    cause_text     TEXT,
    kept           TEXT,
    PRIMARY KEY (run, place),
    UNIQUE (run, id),
    CHECK ((candidate_change IS NULL) = (candidate_base IS NULL)),
    CHECK ((intent_onto IS NULL) = (intent_merged IS NULL)),
    CHECK ((phase = 'deferred') = (deferred_until_ms IS NOT NULL)),
    CHECK ((phase IN ('deferred', 'stopping')) = (why IS NOT NULL)),
    CHECK ((phase IN ('leased', 'stopping')) = (lease_token IS NOT NULL)),
    CHECK ((phase = 'done') = (completion IS NOT NULL)),
    CHECK ((phase = 'escalated') = (cause IS NOT NULL))
) STRICT, WITHOUT ROWID;

CREATE TABLE pools (
    run            INTEGER NOT NULL REFERENCES runs (run),
    name           TEXT    NOT NULL,
    permits        INTEGER NOT NULL,
    closed_until_ms INTEGER,
    PRIMARY KEY (run, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE owners (
    run            INTEGER NOT NULL REFERENCES runs (run),
    id             TEXT    NOT NULL,
    host           TEXT    NOT NULL,
    boot_id        TEXT    NOT NULL,
    pid            INTEGER NOT NULL,
    start_time     INTEGER NOT NULL,
    touched_at_ms  INTEGER NOT NULL,
    ttl_ms         INTEGER NOT NULL,
    ended          INTEGER NOT NULL CHECK (ended IN (0, 1)),
    PRIMARY KEY (run, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE events (
    run            INTEGER NOT NULL REFERENCES runs (run),
    seq            INTEGER NOT NULL,
    body           TEXT    NOT NULL CHECK (json_valid(body)),
    at_ms          ANY     AS (body ->> '$.at'),
    event          TEXT    AS (body ->> '$.event'),
    task           TEXT    AS (body ->> '$.task'),
    PRIMARY KEY (run, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE commands (
    run            INTEGER NOT NULL REFERENCES runs (run),
    id             TEXT    NOT NULL,
    seq            INTEGER NOT NULL,
    answer         TEXT    NOT NULL CHECK (json_valid(answer)),
    PRIMARY KEY (run, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE blobs (
    run            INTEGER NOT NULL REFERENCES runs (run),
    hash           TEXT    NOT NULL,
    bytes          BLOB    NOT NULL,
    PRIMARY KEY (run, hash)
) STRICT;

CREATE VIEW v_progress AS
SELECT id AS run,
       state,
       state_reason,
       done,
       open + deferred + leased + stopping + done + escalated + cancelled AS total,
       leased + stopping AS running,
       open,
       deferred,
       escalated,
       cancelled,
       round(spent_micros / 1e6, 4) AS spent_usd,
       round(reserved_micros / 1e6, 4) AS reserved_usd,
       round(budget_micros / 1e6, 4) AS budget_usd,
       last_at_ms / 60000 AS minutes,
       seq AS events
FROM runs;

CREATE VIEW v_tasks AS
SELECT runs.id AS run,
       tasks.id AS task,
       phase,
       coalesce(why, cause, completion) AS detail,
       stage,
       attempt,
       rejections,
       interruptions,
       dispatches,
       round(tasks.spent_micros / 1e6, 4) AS spent_usd,
       lease_token AS token,
       lease_owner AS owner,
       coalesce(merged_change, candidate_change) AS change,
       (last_at_ms - since_ms) / 1000 AS seconds_in_phase
FROM tasks JOIN runs USING (run)
ORDER BY run, place;

CREATE VIEW v_events AS
SELECT runs.id AS run, events.seq, at_ms, event, task, body
FROM events JOIN runs USING (run)
ORDER BY run, events.seq;
