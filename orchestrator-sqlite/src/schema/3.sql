-- Format 3: the task that others were granted before, and how often (JSON, or NULL).

ALTER TABLE runs ADD COLUMN passed_over TEXT CHECK (json_valid(passed_over));
