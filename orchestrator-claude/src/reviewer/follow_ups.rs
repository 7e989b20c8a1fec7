//! Findings that do not block a merge, kept for a person to go through.

use std::io;
use std::path::Path;

use orchestrator_core::port::{Change, StageContext};
use orchestrator_core::{BlobHash, Finding};

/// Longest title, in characters.
const TITLE_CHARS_MAX: usize = 90;

/// Writes each finding into a file of its own, with where it comes from at its foot. A finding has
/// the same file however often it is written, so that one that was mended, edited or moved away by a
/// person and found again is seen as what it is.
pub(super) fn write(
    dir: &Path,
    cx: &StageContext,
    change: &Change,
    findings: &[Finding],
) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    for finding in findings {
        let place = format!("{}\0{:?}\0{}", cx.task.id, finding.file, finding.message);
        let hash = BlobHash::of(place.as_bytes());
        let short: String = hash.as_str().chars().take(8).collect();
        let path = dir.join(format!("{}-{short}.md", cx.task.id.slug()));
        match std::fs::File::create_new(&path) {
            Ok(mut file) => {
                io::Write::write_all(&mut file, text(cx, change, finding).as_bytes())?;
            }
            Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {}
            Err(err) => return Err(err),
        }
    }
    Ok(())
}

fn text(cx: &StageContext, change: &Change, finding: &Finding) -> String {
    let line = finding.message.lines().next().unwrap_or_default();
    let title: String = line.chars().take(TITLE_CHARS_MAX).collect();
    let place = match (&finding.file, finding.line) {
        (Some(file), Some(line)) => format!("At `{file}:{line}`.\n\n"),
        (Some(file), None) => format!("In `{file}`.\n\n"),
        (None, _) => String::new(),
    };
    format!(
        "# {title}\n\n{}\n\n{place}---\n\nFound by stage `{}` of task `{}` in run `{}`, attempt {}, \
         in change `{}`{}. It did not block the merge.\n",
        finding.message.trim(),
        cx.stage.name,
        cx.task.id,
        cx.run,
        cx.attempt,
        change.candidate.change,
        finding.id.as_ref().map(|id| format!(", as {id}")).unwrap_or_default(),
    )
}
