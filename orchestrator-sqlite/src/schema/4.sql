-- Format 4: leases and attempts as tables of their own for whoever looks; docs/SCHEMA.md explains
-- them. They are views: what they show stands in tasks, owners and events alone.

CREATE VIEW leases AS
SELECT tasks.run AS run,
       lease_token AS token,
       tasks.id AS task,
       stage,
       attempt,
       phase,
       why,
       lease_owner AS owner,
       lease_granted_at_ms AS granted_at_ms,
       iif(touched_at_ms < 0 OR ttl_ms < 0, -1, touched_at_ms + ttl_ms) AS renew_by_ms,
       lease_hard_stop_ms AS hard_stop_ms,
       lease_reserved_micros AS reserved_micros
FROM tasks LEFT JOIN owners ON owners.run = tasks.run AND owners.id = lease_owner
WHERE phase IN ('leased', 'stopping')
ORDER BY tasks.run, lease_token;

CREATE VIEW attempts AS
WITH understood AS (
    -- One event that is no JSON must not hide all others.
    SELECT run, seq, iif(json_valid(body), body, '{}') AS body FROM events
), steps AS (
    SELECT run,
           seq,
           body ->> '$.at' AS at_ms,
           body ->> '$.event' AS event,
           body ->> '$.task' AS task,
           coalesce(body ->> '$.reason', body ->> '$.cause') AS why,
           body ->> '$.cost' AS cost_micros,
           -- Only the grant of a lease says these.
           max(body ->> '$.attempt') OVER lease AS attempt,
           max(body ->> '$.stage') OVER lease AS stage,
           max(body ->> '$.owner') OVER lease AS owner,
           body ->> '$.token' AS token
    FROM understood
    WHERE body ->> '$.token' IS NOT NULL AND body ->> '$.event' <> 'merge_intended'
    WINDOW lease AS (PARTITION BY run, body ->> '$.task', body ->> '$.token')
), placed AS (
    SELECT *, min(at_ms) OVER (PARTITION BY run, task, attempt) AS began_at_ms
    FROM steps
    WHERE attempt IS NOT NULL
)
-- The only max() of the query: columns without an aggregate are those of the last event.
SELECT run,
       task,
       attempt,
       began_at_ms,
       at_ms AS last_at_ms,
       event AS last_event,
       why,
       stage,
       token,
       owner,
       count(*) FILTER (WHERE event = 'granted') AS dispatches,
       coalesce(sum(cost_micros), 0) AS spent_micros,
       max(iif(event = 'result_refused', 0, seq)) AS last_seq
FROM placed
GROUP BY run, task, attempt
ORDER BY run, task, attempt;

DROP VIEW v_events;
CREATE VIEW v_events AS
SELECT runs.id AS run,
       events.seq,
       iif(json_valid(body), body, '{}') ->> '$.at' AS at_ms,
       iif(json_valid(body), body, '{}') ->> '$.event' AS event,
       iif(json_valid(body), body, '{}') ->> '$.task' AS task,
       body
FROM events JOIN runs USING (run)
ORDER BY run, events.seq;

-- Answers that grant a stage name the task by its place; those of earlier programs by its id.
UPDATE commands
SET answer = json_set(answer, '$.granted.task', (
    SELECT place FROM tasks
    WHERE tasks.run = commands.run AND tasks.id = commands.answer ->> '$.granted.task'
))
WHERE json_type(answer, '$.granted.task') = 'text'
  AND EXISTS (
    SELECT 1 FROM tasks
    WHERE tasks.run = commands.run AND tasks.id = commands.answer ->> '$.granted.task'
);
