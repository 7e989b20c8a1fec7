//! Feedback about a merge that is not possible: where, what, and with whose work.

use std::collections::BTreeSet;
use std::path::PathBuf;

use orchestrator_core::{TaskId, head_and_tail};

use crate::error::GitError;
use crate::git::apart::Apart;
use crate::git::exec::Answer;
use crate::git::oid::Oid;
use crate::git::repository::Git;
use crate::git::trailers::TASK_TRAILER;
use crate::names::{Refs, listed, path_of, shown};

/// Most files whose conflicting lines are shown.
const FILES_MAX: usize = 20;
/// Most bytes of conflicting lines that are shown of one file.
const HUNKS_BYTES_MAX: usize = 4 << 10;
/// How many bytes of all files are enough, so that none of the feedback is cut.
const HUNKS_BYTES_ENOUGH: usize = 32 << 10;
/// Most of git's own words that are passed on, of which there are some for each file.
const SAID_MAX: usize = 40;
/// Most commits that are named.
const COMMITS_MAX: &str = "-n20";

/// What git says of a merge with conflicts.
#[derive(Debug, Default)]
struct Conflicts {
    /// The tree with the marks of the conflicts in it.
    tree: String,
    /// The files that are in it more than once.
    files: Vec<Vec<u8>>,
    /// All that is said of.
    paths: BTreeSet<Vec<u8>>,
    /// Git's own words.
    said: Vec<String>,
}

/// The change that could not be merged.
pub(crate) struct Old<'a> {
    pub(crate) task: &'a TaskId,
    pub(crate) base: &'a Oid,
    pub(crate) change: &'a Oid,
}

/// The feedback of a merge that git gave up.
pub(crate) async fn feedback(
    (apart, refs): (&Apart, &Refs),
    answer: &Answer,
    old: &Old<'_>,
    onto: &Oid,
) -> Result<String, GitError> {
    let conflicts = read(&answer.stdout);
    // Git puts what is in its way beside it, under the name of its side.
    let sides = [(onto.as_str(), "the target"), (old.change.as_str(), "your change")];
    let paths: BTreeSet<&[u8]> =
        conflicts.paths.iter().map(|path| without_side(path, &sides)).collect();
    let names: Vec<String> = paths.iter().map(|path| shown(path)).collect();
    let mut text = format!(
        "The change conflicts with what was merged since it was begun. A new workspace holds the \
         present target; do the work again on top of it.\nFiles: {}\n",
        listed(names.iter().map(String::as_str))
    );
    for said in conflicts.said.iter().take(SAID_MAX) {
        let said = sides.iter().fold(said.clone(), |said, (oid, name)| said.replace(oid, name));
        text.extend(["- ", &said, "\n"]);
    }
    if let Some(more) = conflicts.said.len().checked_sub(SAID_MAX).filter(|more| *more > 0) {
        let line = format!("- and {more} more\n");
        text.push_str(&line);
    }
    text.push_str(&merged_by(&apart.git, &paths, old.base, onto).await?);
    text.push_str(&described(apart, refs, old).await?);
    let enough = text.len() + HUNKS_BYTES_ENOUGH;
    for file in conflicts.files.iter().take(FILES_MAX) {
        if text.len() > enough {
            break;
        }
        let hunks = hunks_of(&apart.git, &conflicts.tree, file, &sides).await?;
        if !hunks.is_empty() {
            let line = format!("\n{}:\n{hunks}", shown(without_side(file, &sides)));
            text.push_str(&line);
        }
    }
    Ok(text)
}

/// What the old change was, and how to look at it.
async fn described(apart: &Apart, refs: &Refs, old: &Old<'_>) -> Result<String, GitError> {
    let entries = apart.changed(old.base.as_str(), old.change.as_str()).await?;
    let files: Vec<String> = entries.iter().map(|entry| shown(&entry.path)).collect();
    let change = old.change.short();
    Ok(format!(
        "Your earlier change is kept as the commit `{change}` (ref `{}`): it changed {}. \
         `git show {change}` shows it, `git checkout {change} -- PATH` takes a file from it.\n",
        refs.task(old.task),
        listed(files.iter().map(String::as_str))
    ))
}

/// The feedback of a merge that would change what the task may not change.
pub(crate) fn out_of_bounds(broken: &[String]) -> String {
    let mut text = String::from(
        "Files of the change were moved on the target since it was begun, so that merging it would \
         break a rule. A new workspace holds the present target; do the work again on top of it.\n",
    );
    for rule in broken {
        text.extend(["- ", rule, "\n"]);
    }
    text
}

/// Reads what `merge-tree -z` writes: a tree, files, and messages.
fn read(bytes: &[u8]) -> Conflicts {
    let mut fields = bytes.split(|byte| *byte == 0);
    let mut conflicts = Conflicts { tree: text_of(fields.next()), ..Conflicts::default() };
    let mut files = BTreeSet::new();
    for field in fields.by_ref().take_while(|field| !field.is_empty()) {
        let tab = field.iter().position(|byte| *byte == b'\t').unwrap_or(0);
        files.insert(field.get(tab + 1..).unwrap_or_default().to_vec());
    }
    conflicts.paths.clone_from(&files);
    conflicts.files = files.into_iter().collect();
    while let Some(count) = fields.next().and_then(|count| text_of(Some(count)).parse().ok()) {
        let count: usize = count;
        let paths: Vec<&[u8]> = fields.by_ref().take(count).collect();
        let kind = fields.next();
        let said = text_of(fields.next());
        if kind.is_some_and(|kind| kind.starts_with(b"CONFLICT")) {
            let said: String =
                said.trim().chars().map(|c| if c == '\n' { ' ' } else { c }).collect();
            conflicts.said.push(said);
            conflicts.paths.extend(paths.into_iter().map(<[u8]>::to_vec));
        }
    }
    conflicts
}

fn text_of(field: Option<&[u8]>) -> String {
    String::from_utf8_lossy(field.unwrap_or_default()).into_owned()
}

/// A path without the name of the side that git puts behind it where something is in its way.
fn without_side<'a>(path: &'a [u8], sides: &[(&str, &str)]) -> &'a [u8] {
    let ends = sides.iter().filter_map(|(oid, _)| {
        let mark = [b"~", oid.as_bytes()].concat();
        path.windows(mark.len()).position(|part| part == mark)
    });
    path.get(..ends.min().unwrap_or(path.len())).unwrap_or(path)
}

/// The commits on the target that touched the paths, with their tasks; or, where a directory went
/// elsewhere, those that touched what the paths are in.
async fn merged_by(
    git: &Git,
    paths: &BTreeSet<&[u8]>,
    base: &Oid,
    onto: &Oid,
) -> Result<String, GitError> {
    let paths: Vec<PathBuf> = paths.iter().take(FILES_MAX).map(|path| path_of(path)).collect();
    let text = commits_of(git, &paths, base, onto).await?;
    let above: Vec<PathBuf> = paths.iter().filter_map(|path| Some(path.parent()?.into())).collect();
    if !text.is_empty() || above.iter().any(|dir| dir.as_os_str().is_empty()) {
        return Ok(text);
    }
    commits_of(git, &above, base, onto).await
}

async fn commits_of(
    git: &Git,
    paths: &[PathBuf],
    base: &Oid,
    onto: &Oid,
) -> Result<String, GitError> {
    let format =
        format!("--format=%h %s%x00%(trailers:key={TASK_TRAILER},valueonly,separator=%x2C)%x00");
    let call = git.plumbing(["log", "--no-show-signature", COMMITS_MAX, &format]);
    let call = call.arg(format!("{base}..{onto}")).arg("--");
    let answer = git.ask(call.args(paths)).await?;
    let mut text = String::new();
    let mut fields = answer.stdout.split(|byte| *byte == 0);
    while let (Some(commit), Some(task)) = (fields.next(), fields.next()) {
        let (commit, task) = (text_of(Some(commit)), text_of(Some(task)));
        let by =
            if task.trim().is_empty() { String::new() } else { format!(" (task {})", task.trim()) };
        let line = format!("Merged meanwhile: {}{by}\n", commit.trim());
        text.push_str(&line);
    }
    Ok(text)
}

/// The lines of a file in which both sides differ.
async fn hunks_of(
    git: &Git,
    tree: &str,
    file: &[u8],
    sides: &[(&str, &str)],
) -> Result<String, GitError> {
    let mut name = format!("{tree}:").into_bytes();
    name.extend_from_slice(file);
    let call = git.plumbing(["cat-file", "blob"]).arg(path_of(&name));
    let answer = git.ask(call.bytes_max(8 << 20)).await?;
    if answer.code != 0 {
        return Ok(String::new());
    }
    let hunks = hunks(&String::from_utf8_lossy(&answer.stdout), sides);
    Ok(head_and_tail(&hunks, HUNKS_BYTES_MAX))
}

/// The parts between marks of conflicts, with the numbers of their first lines. How long a mark is
/// may be configured; the file itself may have lines that look like one, but for the side's name.
fn hunks(text: &str, sides: &[(&str, &str)]) -> String {
    let mut found = String::new();
    let mut is_inside = false;
    for (number, line) in text.lines().enumerate() {
        let side = |mark: char| {
            let name = line.trim_start_matches(mark).strip_prefix(' ')?;
            let rest = |(oid, side): &(&str, &str)| Some([side, name.strip_prefix(oid)?].concat());
            sides.iter().find_map(rest).filter(|_| line.starts_with(mark))
        };
        if let Some(side) = side('<') {
            is_inside = true;
            let line = format!("@ line {}\n<<<<<<< {side}\n", number + 1);
            found.push_str(&line);
        } else if let Some(side) = side('>').filter(|_| is_inside) {
            is_inside = false;
            found.extend([">>>>>>> ", &side, "\n"]);
        } else if is_inside {
            found.extend([line, "\n"]);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_merge_tree_writes_is_read_with_odd_paths() {
        let fields: [&[u8]; 12] = [
            b"aaaa",
            b"100644 1 1\ta\nb",
            b"100644 2 2\ta\nb",
            b"",
            b"1",
            b"a\nb",
            b"Auto-merging",
            b"Auto-merging a",
            b"1",
            b"a\nb",
            b"CONFLICT (contents)",
            b"CONFLICT (content): Merge conflict in a\nb\n",
        ];
        let bytes = fields.join(&0);
        let conflicts = read(&bytes);
        assert_eq!(conflicts.tree, "aaaa");
        assert_eq!(conflicts.files, [b"a\nb".to_vec()]);
        assert_eq!(conflicts.said, ["CONFLICT (content): Merge conflict in a b"]);
        let sides = [("cccc", "the target"), ("dddd", "your change")];
        for (path, plain) in [("x~dddd", "x"), ("x~cccc_0", "x"), ("x~dd", "x~dd"), ("a", "a")] {
            assert_eq!(without_side(path.as_bytes(), &sides), plain.as_bytes());
        }
    }

    #[test]
    fn only_the_conflicting_lines_are_shown() {
        let sides = [("cccc", "the target"), ("dddd", "your change")];
        let text =
            "one\n<<<<<<< no mark\n<<<<<<<<<<<< cccc:old\nx\n=======\ny\n>>>>>>>>>>>> dddd\ntwo\n";
        assert_eq!(
            hunks(text, &sides),
            "@ line 3\n<<<<<<< the target:old\nx\n=======\ny\n>>>>>>> your change\n"
        );
    }
}
