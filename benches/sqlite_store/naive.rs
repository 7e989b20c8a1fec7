//! The queue in one table: tasks with their dependencies as JSON, and a statement that takes one of
//! which all dependencies are done.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension as _, params};

use crate::raw;
use crate::shapes::Graph;

const TABLE: &str = "CREATE TABLE tasks (
    id TEXT PRIMARY KEY, depends_on TEXT NOT NULL, status TEXT NOT NULL, worker_id TEXT,
    retries INTEGER NOT NULL DEFAULT 0, last_error TEXT, updated_at INTEGER
)";

const CLAIM: &str = "UPDATE tasks SET status='running', worker_id=?1, updated_at=?2
WHERE id = (
  SELECT t.id FROM tasks t
  WHERE t.status='pending'
    AND NOT EXISTS (
      SELECT 1 FROM json_each(t.depends_on) d
      JOIN tasks dep ON dep.id = d.value
      WHERE dep.status != 'done'
    )
  LIMIT 1
)
RETURNING *";

/// The queue, half done.
pub(crate) struct Naive(Connection);

impl Naive {
    pub(crate) fn new(path: &Path, graph: &Graph, done: &[u32]) -> Self {
        let conn = raw(path);
        conn.execute_batch(TABLE).unwrap();
        let tx = conn.unchecked_transaction().unwrap();
        for (task, on) in (0_u32..).zip(graph) {
            let on: Vec<String> = on.iter().map(|task| format!("\"{}\"", name(*task))).collect();
            tx.prepare_cached(
                "INSERT INTO tasks (id, depends_on, status) VALUES (?1, ?2, 'pending')",
            )
            .unwrap()
            .execute([name(task), format!("[{}]", on.join(","))])
            .unwrap();
        }
        for task in done {
            tx.prepare_cached("UPDATE tasks SET status = 'done' WHERE id = ?1")
                .unwrap()
                .execute([name(*task)])
                .unwrap();
        }
        tx.commit().unwrap();
        Self(conn)
    }

    /// Takes a task and says that it is done, each a durable transaction as that source has it.
    pub(crate) fn step(&self) {
        const DONE: &str = "UPDATE tasks SET status='done', updated_at=?2 WHERE id=?1";
        let id = self.claim().unwrap();
        self.0.prepare_cached(DONE).unwrap().execute(params![id, 2]).unwrap();
    }

    fn claim(&self) -> Option<String> {
        let mut claim = self.0.prepare_cached(CLAIM).unwrap();
        let mut rows = claim.query(params!["worker", 1]).unwrap();
        let id = rows.next().unwrap().map(|row| row.get(0)).transpose().optional().unwrap()?;
        // To the end, or else nothing is committed.
        assert!(rows.next().unwrap().is_none());
        id
    }
}

fn name(task: u32) -> String {
    format!("task-{task}")
}
