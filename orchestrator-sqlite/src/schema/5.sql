-- Format 5: rejections by each stage (JSON), and gates that were found closed.

ALTER TABLE tasks ADD COLUMN rounds TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(rounds));
ALTER TABLE tasks ADD COLUMN deferrals INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tasks ADD COLUMN extra_deferrals INTEGER NOT NULL DEFAULT 0;
