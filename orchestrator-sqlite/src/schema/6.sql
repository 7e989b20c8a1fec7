-- Format 6: what was handed out under a task's last lease, where its holder said so.

ALTER TABLE tasks ADD COLUMN content TEXT;
