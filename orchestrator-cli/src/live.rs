//! The live view: one line for the run, one for each stage that runs.

use std::collections::BTreeMap;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use orchestrator_core::FencingToken;
use orchestrator_core::port::{Progress, Running};

use crate::board::{Board, standing};
use crate::text::harmless;

/// Stages that are shown at once; the oldest.
const ROWS_MAX: usize = 16;
/// How often what moves is drawn anew.
const TICK: Duration = Duration::from_millis(120);

/// A live view on a terminal.
pub(crate) struct Live {
    multi: MultiProgress,
    head: ProgressBar,
    rows: BTreeMap<FencingToken, ProgressBar>,
    color: bool,
}

impl Live {
    pub(crate) fn new(target: ProgressDrawTarget, color: bool) -> Self {
        let multi = MultiProgress::with_draw_target(target);
        let head = multi.add(ProgressBar::new(0));
        head.set_style(style(if color {
            "{spinner:.cyan} {wide_msg} {elapsed_precise:.dim}"
        } else {
            "{spinner} {wide_msg} {elapsed_precise}"
        }));
        Self { multi, head, rows: BTreeMap::new(), color }
    }

    /// Shows how the run stands.
    pub(crate) fn update(&mut self, progress: &Progress) {
        if !self.head.is_finished() && self.head.length() == Some(0) {
            self.head.set_length(1);
            self.head.set_elapsed(Duration::from_millis(progress.now.0));
            self.head.enable_steady_tick(TICK);
        }
        let hidden = progress.running.len().saturating_sub(ROWS_MAX);
        let more = if hidden > 0 { format!(" (+{hidden} not shown)") } else { String::new() };
        self.head.set_message(format!("{}{more}", standing(progress)));
        let shown: Vec<&Running> = progress.running.iter().take(ROWS_MAX).collect();
        self.rows.retain(|token, row| {
            let stays = shown.iter().any(|one| one.token == *token);
            if !stays {
                row.finish_and_clear();
            }
            stays
        });
        for one in shown {
            if !self.rows.contains_key(&one.token) {
                let row = self.row(one, progress);
                self.rows.insert(one.token, row);
            }
        }
    }

    fn row(&self, one: &Running, progress: &Progress) -> ProgressBar {
        let row = self.multi.add(ProgressBar::new_spinner());
        row.set_style(style(if self.color {
            "  {prefix:.bold} {elapsed:>4.dim}  {wide_msg:.dim}"
        } else {
            "  {prefix} {elapsed:>4}  {wide_msg}"
        }));
        let (task, stage) = (harmless(one.task.as_str(), 28), harmless(one.stage.as_str(), 12));
        row.set_prefix(format!("{task:<28} {stage:<10} attempt {}", one.attempt));
        row.set_elapsed(progress.now.since(one.since));
        row.enable_steady_tick(TICK);
        row
    }

    /// Shows what stages did last.
    pub(crate) fn said(&self, board: &Board) {
        for (token, row) in &self.rows {
            let said = board.said(*token);
            if row.message() != said {
                row.set_message(said.to_owned());
            }
        }
    }

    /// Puts a line above the view.
    pub(crate) fn print(&self, line: &str) {
        // A terminal that is gone shows nothing, and the run goes on.
        drop(self.multi.println(line));
    }

    /// Takes the view away; the lines above it stay.
    pub(crate) fn close(&self) {
        for row in self.rows.values() {
            row.finish_and_clear();
        }
        self.head.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    // The templates above are tried by the tests.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use indicatif::InMemoryTerm;
    use orchestrator_core::port::{Activity, ActivityKind};
    use orchestrator_core::{Counts, RunState, StageName, TaskId, Timestamp, Usd};

    use super::*;

    fn progress(running: &[(&str, u64)]) -> Progress {
        let count = u32::try_from(running.len()).unwrap();
        let running = running.iter().map(|(task, token)| Running {
            task: TaskId::parse(task).unwrap(),
            stage: StageName::parse("run").unwrap(),
            attempt: 2,
            token: FencingToken(*token),
            since: Timestamp(0),
        });
        Progress {
            state: RunState::Active,
            now: Timestamp(420_000),
            counts: Counts { open: 5, leased: count, done: 3, ..Counts::default() },
            blocked: 1,
            running: running.collect(),
            spent: Usd(1_500_000),
            reserved: Usd::ZERO,
            budget: Some(Usd::dollars(20)),
        }
    }

    /// The view is drawn only so often, and so shows what is new a moment later.
    fn assert_comes(live: &Live, term: &InMemoryTerm, part: &str) {
        let until = Instant::now() + Duration::from_secs(300);
        while !term.contents().contains(part) {
            assert!(Instant::now() < until, "{part} is not in:\n{}", term.contents());
            live.head.tick();
            live.rows.values().for_each(ProgressBar::tick);
        }
    }

    #[test]
    fn the_view_shows_what_runs_what_waits_and_what_it_costs() {
        let term = InMemoryTerm::new(10, 100);
        let target = ProgressDrawTarget::term_like(Box::new(term.clone()));
        let mut live = Live::new(target, false);
        let mut board = Board::default();
        live.update(&progress(&[("lexer", 1), ("parser", 2)]));
        let (task, token) = (TaskId::parse("lexer").unwrap(), FencingToken(1));
        let kind = ActivityKind::Said("Edit src/\u{1b}[2Jlex.sh".to_owned());
        board.activity(&Activity { task, token, kind });
        live.said(&board);
        live.print("merged something");
        for part in [
            "merged something",
            "3/10 done, 2 running, 4 waiting, 1 blocked · $1.5000 of $20.0000",
            "lexer",
            "parser",
            "run        attempt 2",
            " 7m ",
            "Edit src/\\u{1b}[2Jlex.sh",
        ] {
            assert_comes(&live, &term, part);
        }
        live.update(&progress(&[("parser", 2)]));
        assert_eq!(live.rows.len(), 1);
        live.close();
        assert_eq!(term.contents(), "merged something");
    }

    #[test]
    fn more_stages_than_there_is_room_for_are_counted() {
        let term = InMemoryTerm::new(40, 120);
        let target = ProgressDrawTarget::term_like(Box::new(term.clone()));
        let mut live = Live::new(target, true);
        let many: Vec<(String, u64)> = (0..20).map(|n| (format!("t{n}"), n)).collect();
        let many: Vec<(&str, u64)> = many.iter().map(|(id, n)| (id.as_str(), *n)).collect();
        live.update(&progress(&many));
        assert_eq!(live.rows.len(), ROWS_MAX);
        assert_comes(&live, &term, "(+4 not shown)");
    }
}
