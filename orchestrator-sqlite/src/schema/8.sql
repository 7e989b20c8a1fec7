-- Format 8: the mark of the file changes with each transaction, whoever writes. A later step draws none.

-- 1 once another program than the orchestrator has changed rows since the orchestrator did last.
ALTER TABLE file RENAME COLUMN log_salts TO by_others;

-- The former mark of a file that had none before: "No Mark!" in ASCII.
UPDATE file SET
    mark = iif(former_mark = 0, mark, (random() & 4611686018427387903) | 4611686018427387904),
    former_mark = iif(former_mark = 0, 5651771574092720929, mark),
    by_others = 0;

-- Shells before 3.45 take json_valid(NULL) for false: they called such rows damaged, and left them out
-- of what they restored.
ALTER TABLE runs ADD COLUMN new_anchor TEXT CHECK (new_anchor IS NULL OR json_valid(new_anchor));
ALTER TABLE runs ADD COLUMN new_passed_over TEXT CHECK (new_passed_over IS NULL OR json_valid(new_passed_over));
ALTER TABLE runs ADD COLUMN new_pilot INTEGER;
UPDATE runs SET new_anchor = anchor, new_passed_over = passed_over, new_pilot = pilot;
ALTER TABLE runs DROP COLUMN anchor;
ALTER TABLE runs DROP COLUMN passed_over;
ALTER TABLE runs DROP COLUMN pilot;
ALTER TABLE runs RENAME COLUMN new_anchor TO anchor;
ALTER TABLE runs RENAME COLUMN new_passed_over TO passed_over;
ALTER TABLE runs RENAME COLUMN new_pilot TO pilot;
ALTER TABLE tasks ADD COLUMN new_unheard TEXT CHECK (new_unheard IS NULL OR json_valid(new_unheard));
UPDATE tasks SET new_unheard = unheard WHERE unheard IS NOT NULL;
ALTER TABLE tasks DROP COLUMN unheard;
ALTER TABLE tasks RENAME COLUMN new_unheard TO unheard;

-- Others draw one mark, however many rows they change: the former one must stay that of the file.
CREATE TRIGGER runs_insert_by_others AFTER INSERT ON runs WHEN (SELECT by_others FROM file) = 0
BEGIN UPDATE file SET former_mark = mark, mark = (random() & 4611686018427387903) | 4611686018427387904, by_others = 1; END;
CREATE TRIGGER runs_update_by_others AFTER UPDATE ON runs WHEN (SELECT by_others FROM file) = 0
BEGIN UPDATE file SET former_mark = mark, mark = (random() & 4611686018427387903) | 4611686018427387904, by_others = 1; END;
CREATE TRIGGER runs_delete_by_others AFTER DELETE ON runs WHEN (SELECT by_others FROM file) = 0
BEGIN UPDATE file SET former_mark = mark, mark = (random() & 4611686018427387903) | 4611686018427387904, by_others = 1; END;
CREATE TRIGGER plans_insert_by_others AFTER INSERT ON plans WHEN (SELECT by_others FROM file) = 0
BEGIN UPDATE file SET former_mark = mark, mark = (random() & 4611686018427387903) | 4611686018427387904, by_others = 1; END;
CREATE TRIGGER plans_update_by_others AFTER UPDATE ON plans WHEN (SELECT by_others FROM file) = 0
BEGIN UPDATE file SET former_mark = mark, mark = (random() & 4611686018427387903) | 4611686018427387904, by_others = 1; END;
CREATE TRIGGER plans_delete_by_others AFTER DELETE ON plans WHEN (SELECT by_others FROM file) = 0
BEGIN UPDATE file SET former_mark = mark, mark = (random() & 4611686018427387903) | 4611686018427387904, by_others = 1; END;
CREATE TRIGGER tasks_insert_by_others AFTER INSERT ON tasks WHEN (SELECT by_others FROM file) = 0
BEGIN UPDATE file SET former_mark = mark, mark = (random() & 4611686018427387903) | 4611686018427387904, by_others = 1; END;
CREATE TRIGGER tasks_update_by_others AFTER UPDATE ON tasks WHEN (SELECT by_others FROM file) = 0
BEGIN UPDATE file SET former_mark = mark, mark = (random() & 4611686018427387903) | 4611686018427387904, by_others = 1; END;
CREATE TRIGGER tasks_delete_by_others AFTER DELETE ON tasks WHEN (SELECT by_others FROM file) = 0
BEGIN UPDATE file SET former_mark = mark, mark = (random() & 4611686018427387903) | 4611686018427387904, by_others = 1; END;
CREATE TRIGGER pools_insert_by_others AFTER INSERT ON pools WHEN (SELECT by_others FROM file) = 0
BEGIN UPDATE file SET former_mark = mark, mark = (random() & 4611686018427387903) | 4611686018427387904, by_others = 1; END;
CREATE TRIGGER pools_update_by_others AFTER UPDATE ON pools WHEN (SELECT by_others FROM file) = 0
BEGIN UPDATE file SET former_mark = mark, mark = (random() & 4611686018427387903) | 4611686018427387904, by_others = 1; END;
CREATE TRIGGER pools_delete_by_others AFTER DELETE ON pools WHEN (SELECT by_others FROM file) = 0
BEGIN UPDATE file SET former_mark = mark, mark = (random() & 4611686018427387903) | 4611686018427387904, by_others = 1; END;
CREATE TRIGGER owners_insert_by_others AFTER INSERT ON owners WHEN (SELECT by_others FROM file) = 0
BEGIN UPDATE file SET former_mark = mark, mark = (random() & 4611686018427387903) | 4611686018427387904, by_others = 1; END;
CREATE TRIGGER owners_update_by_others AFTER UPDATE ON owners WHEN (SELECT by_others FROM file) = 0
BEGIN UPDATE file SET former_mark = mark, mark = (random() & 4611686018427387903) | 4611686018427387904, by_others = 1; END;
CREATE TRIGGER owners_delete_by_others AFTER DELETE ON owners WHEN (SELECT by_others FROM file) = 0
BEGIN UPDATE file SET former_mark = mark, mark = (random() & 4611686018427387903) | 4611686018427387904, by_others = 1; END;
CREATE TRIGGER events_insert_by_others AFTER INSERT ON events WHEN (SELECT by_others FROM file) = 0
BEGIN UPDATE file SET former_mark = mark, mark = (random() & 4611686018427387903) | 4611686018427387904, by_others = 1; END;
CREATE TRIGGER events_update_by_others AFTER UPDATE ON events WHEN (SELECT by_others FROM file) = 0
BEGIN UPDATE file SET former_mark = mark, mark = (random() & 4611686018427387903) | 4611686018427387904, by_others = 1; END;
CREATE TRIGGER events_delete_by_others AFTER DELETE ON events WHEN (SELECT by_others FROM file) = 0
BEGIN UPDATE file SET former_mark = mark, mark = (random() & 4611686018427387903) | 4611686018427387904, by_others = 1; END;
CREATE TRIGGER commands_insert_by_others AFTER INSERT ON commands WHEN (SELECT by_others FROM file) = 0
BEGIN UPDATE file SET former_mark = mark, mark = (random() & 4611686018427387903) | 4611686018427387904, by_others = 1; END;
CREATE TRIGGER commands_update_by_others AFTER UPDATE ON commands WHEN (SELECT by_others FROM file) = 0
BEGIN UPDATE file SET former_mark = mark, mark = (random() & 4611686018427387903) | 4611686018427387904, by_others = 1; END;
CREATE TRIGGER commands_delete_by_others AFTER DELETE ON commands WHEN (SELECT by_others FROM file) = 0
BEGIN UPDATE file SET former_mark = mark, mark = (random() & 4611686018427387903) | 4611686018427387904, by_others = 1; END;
CREATE TRIGGER blobs_insert_by_others AFTER INSERT ON blobs WHEN (SELECT by_others FROM file) = 0
BEGIN UPDATE file SET former_mark = mark, mark = (random() & 4611686018427387903) | 4611686018427387904, by_others = 1; END;
CREATE TRIGGER blobs_update_by_others AFTER UPDATE ON blobs WHEN (SELECT by_others FROM file) = 0
BEGIN UPDATE file SET former_mark = mark, mark = (random() & 4611686018427387903) | 4611686018427387904, by_others = 1; END;
CREATE TRIGGER blobs_delete_by_others AFTER DELETE ON blobs WHEN (SELECT by_others FROM file) = 0
BEGIN UPDATE file SET former_mark = mark, mark = (random() & 4611686018427387903) | 4611686018427387904, by_others = 1; END;

-- A mark that does not follow the one before would part the file from its log.
CREATE TRIGGER file_insert_by_hand BEFORE INSERT ON file
BEGIN SELECT raise(ABORT, 'the orchestrator keeps this row to tell its write-ahead log by'); END;
CREATE TRIGGER file_update_by_hand BEFORE UPDATE OF mark ON file WHEN new.mark <> old.mark AND new.former_mark <> old.mark
BEGIN SELECT raise(ABORT, 'the orchestrator keeps this row to tell its write-ahead log by'); END;
CREATE TRIGGER file_delete_by_hand BEFORE DELETE ON file
BEGIN SELECT raise(ABORT, 'the orchestrator keeps this row to tell its write-ahead log by'); END;
