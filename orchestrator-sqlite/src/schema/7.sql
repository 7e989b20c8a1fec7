-- Format 7: what holds a pool back beside its limit, how many tasks a pilot has, and what was booked
-- for older leases that ended without their result (JSON, or NULL).

ALTER TABLE pools ADD COLUMN budget_micros INTEGER;
ALTER TABLE pools ADD COLUMN spent_micros INTEGER NOT NULL DEFAULT 0;
ALTER TABLE pools ADD COLUMN in_flight_max INTEGER;
ALTER TABLE runs ADD COLUMN pilot INTEGER;
ALTER TABLE tasks ADD COLUMN unheard TEXT CHECK (json_valid(unheard));
