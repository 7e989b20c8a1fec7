//! What the example brings along: a small program to port, a plan, and what the stand-in writes.

/// The plan.
pub(crate) const PLAN: &str = include_str!("tasks.json");

macro_rules! files {
    ($($path:literal),* $(,)?) => {
        &[$(($path, include_str!(concat!("repo/", $path)))),*]
    };
}

/// The repository that the plan is for.
pub(crate) const REPOSITORY: &[(&str, &str)] = files![
    "README.md",
    "CONVENTIONS.md",
    "INTERFACES.md",
    "DECISIONS.md",
    "bin/tk",
    "awk/agenda.awk",
    "awk/box.awk",
    "awk/calendar.awk",
    "awk/chars.awk",
    "awk/columns.awk",
    "awk/count.awk",
    "awk/csv.awk",
    "awk/dates.awk",
    "awk/indent.awk",
    "awk/num.awk",
    "awk/stats.awk",
    "awk/table.awk",
    "awk/trim.awk",
    "awk/uniq.awk",
    "awk/wrap.awk",
    "tests/harness.sh",
    "tests/agenda.sh",
    "tests/box.sh",
    "tests/calendar.sh",
    "tests/chars.sh",
    "tests/columns.sh",
    "tests/count.sh",
    "tests/csv.sh",
    "tests/dates.sh",
    "tests/indent.sh",
    "tests/num.sh",
    "tests/stats.sh",
    "tests/table.sh",
    "tests/tk.sh",
    "tests/trim.sh",
    "tests/uniq.sh",
    "tests/wrap.sh",
];

macro_rules! ports {
    ($($module:literal),* $(,)?) => {
        &[$(($module, include_str!(concat!("ports/", $module, ".sh")))),*]
    };
}

/// What the stand-in writes for each module.
pub(crate) const PORTS: &[(&str, &str)] = ports![
    "agenda", "box", "calendar", "chars", "columns", "count", "csv", "dates", "indent", "num",
    "stats", "table", "tk", "trim", "uniq", "wrap",
];

/// Modules that it gets wrong at first: the words of a rejection by which it notices its mistake,
/// and what it writes before.
pub(crate) const DRAFTS: &[(&str, &str, &str)] = &[
    ("csv", "doubled quotes", include_str!("ports/csv-draft.sh")),
    ("columns", "Rule 2 of CONVENTIONS.md", include_str!("ports/columns-draft.sh")),
];
