//! Handlebars templates, strictly: built in, or files that people edit.

mod helpers;
mod partials;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use handlebars::template::Template;
use handlebars::{Handlebars, RenderError, RenderErrorReason};
use orchestrator_core::{TaskId, TaskSpec};

use super::{ChangeText, Document, Values};

/// Longest prompt, in bytes. The program takes ten times as much; no model reads it.
pub const PROMPT_BYTES_MAX: usize = 1024 * 1024;

/// Fewest attempts that `check` renders.
const ATTEMPTS_CHECKED_MIN: u32 = 3;
/// Most attempts that `check` renders one by one.
const ATTEMPTS_CHECKED_MAX: u32 = 9;
/// Most errors of earlier attempts that `check` renders.
const FEEDBACK_CHECKED_MAX: usize = 64;

const BUILT_IN: &[(&str, &str)] = &[
    ("implement", include_str!("builtin/implement.hbs")),
    ("port", include_str!("builtin/port.hbs")),
    ("fix", include_str!("builtin/fix.hbs")),
    ("address-feedback", include_str!("builtin/address-feedback.hbs")),
    ("review", include_str!("builtin/review.hbs")),
    ("resume", include_str!("builtin/resume.hbs")),
    ("rules", include_str!("builtin/rules.hbs")),
    ("task", include_str!("builtin/task.hbs")),
    ("documents", include_str!("builtin/documents.hbs")),
    ("feedback", include_str!("builtin/feedback.hbs")),
];

/// Endings of files that are templates.
const ENDINGS: [&str; 2] = ["hbs", "md"];

/// The templates of a run.
#[derive(Debug)]
pub struct Templates {
    engine: Handlebars<'static>,
}

/// Why a prompt cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// There is no such template.
    #[error("template `{name}` does not exist{}; there are {}", maybe(.nearest.as_deref()), .known.join(", "))]
    Unknown {
        /// The name.
        name: String,
        /// The known name that looks most like it.
        nearest: Option<String>,
        /// All known names.
        known: Vec<String>,
    },
    /// It is no valid template.
    #[error("template `{template}`, {}: {why}", place(*.line, *.column))]
    Syntax {
        /// The template.
        template: String,
        /// The line, from 1.
        line: Option<usize>,
        /// The column.
        column: Option<usize>,
        /// What is wrong.
        why: String,
    },
    /// It uses a value that is not there.
    #[error("template `{template}`, {}: `{variable}` has no value; the task's inputs are {{{{inputs.NAME}}}}, and an optional one goes inside of {{{{#if inputs.NAME}}}}", place(*.line, *.column))]
    MissingVariable {
        /// The template.
        template: String,
        /// The line, from 1.
        line: Option<usize>,
        /// The column.
        column: Option<usize>,
        /// The value.
        variable: String,
    },
    /// It includes a template that does not exist.
    #[error("template `{template}`, {}: the template `{partial}` that it includes does not exist", place(*.line, *.column))]
    MissingPartial {
        /// The template.
        template: String,
        /// The line, from 1.
        line: Option<usize>,
        /// The column.
        column: Option<usize>,
        /// What it includes.
        partial: String,
    },
    /// It fails in another way.
    #[error("template `{template}`, {}: {why}", place(*.line, *.column))]
    Failed {
        /// The template.
        template: String,
        /// The line, from 1.
        line: Option<usize>,
        /// The column.
        column: Option<usize>,
        /// What is wrong.
        why: String,
    },
    /// The prompt is too long.
    #[error(
        "template `{template}` makes a prompt of {bytes} bytes, {PROMPT_BYTES_MAX} are allowed"
    )]
    TooLong {
        /// The template.
        template: String,
        /// Its length.
        bytes: usize,
    },
    /// Two files are one template.
    #[error("`{}` and `{}` are both the template `{name}`: keep one", .first.display(), .second.display())]
    Twice {
        /// The template.
        name: String,
        /// One file.
        first: PathBuf,
        /// The other file.
        second: PathBuf,
    },
    /// A file or directory cannot be read or written.
    #[error("template file `{}` is out of reach", .path.display())]
    File {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Something that is wrong with a prompt, and the tasks that it is wrong for.
#[derive(Debug, thiserror::Error)]
#[error("{}{error}", whom(.tasks))]
#[non_exhaustive]
pub struct PromptFault {
    /// The tasks, in the order of the plan.
    pub tasks: Vec<TaskId>,
    /// What is wrong.
    #[source]
    pub error: TemplateError,
}

fn maybe(nearest: Option<&str>) -> String {
    nearest.map(|name| format!(" (is `{name}` meant?)")).unwrap_or_default()
}

fn place(line: Option<usize>, column: Option<usize>) -> String {
    match (line, column) {
        (Some(line), Some(column)) => format!("line {line}, column {column}"),
        (Some(line), None) => format!("line {line}"),
        (None, _) => "somewhere".to_owned(),
    }
}

fn whom(tasks: &[TaskId]) -> String {
    match tasks {
        [] => String::new(),
        [only] => format!("task `{only}`: "),
        [first, rest @ ..] => format!("task `{first}` and {} more: ", rest.len()),
    }
}

impl Default for Templates {
    fn default() -> Self {
        Self::built_in()
    }
}

impl Templates {
    /// The built-in templates.
    ///
    /// # Panics
    /// Never: a test takes each of them.
    #[must_use]
    pub fn built_in() -> Self {
        let mut engine = Handlebars::new();
        engine.set_strict_mode(true);
        engine.register_escape_fn(handlebars::no_escape);
        helpers::register(&mut engine);
        let mut templates = Self { engine };
        for (name, text) in BUILT_IN {
            templates.add(name, text).expect("the built-in templates are valid");
        }
        templates
    }

    /// The built-in templates, and over them those of a directory: each file `NAME.hbs` or
    /// `NAME.md` is the template `NAME`.
    ///
    /// # Errors
    /// A [`TemplateError`] for each file that is no valid template.
    pub fn with_directory(directory: &Path) -> Result<Self, Vec<TemplateError>> {
        let mut templates = Self::built_in();
        let mut errors = Vec::new();
        let files = match template_files(directory) {
            Ok(files) => files,
            Err(source) => {
                return Err(vec![TemplateError::File { path: directory.to_owned(), source }]);
            }
        };
        let mut seen: BTreeMap<String, PathBuf> = BTreeMap::new();
        for (name, path) in files {
            if let Some(first) = seen.get(&name) {
                errors.push(TemplateError::Twice { name, first: first.clone(), second: path });
                continue;
            }
            let added = std::fs::read_to_string(&path)
                .map_err(|source| TemplateError::File { path: path.clone(), source })
                .and_then(|text| templates.add(&name, &text));
            errors.extend(added.err());
            seen.insert(name, path);
        }
        if errors.is_empty() { Ok(templates) } else { Err(errors) }
    }

    /// Adds a template, or takes the place of the one of its name.
    ///
    /// # Errors
    /// [`TemplateError::Syntax`] when the text is no valid template.
    pub fn add(&mut self, name: &str, text: &str) -> Result<(), TemplateError> {
        let mut template = Template::compile_with_name(text, name.to_owned()).map_err(|err| {
            let (line, column) = err.pos().unzip();
            let why = err.reason().to_string();
            TemplateError::Syntax { template: name.to_owned(), line, column, why }
        })?;
        partials::demand(&mut template);
        self.engine.register_template(name, template);
        Ok(())
    }

    /// Writes the built-in templates into a directory, for people to edit; a file that is there
    /// already stays as it is. Returns what was written.
    ///
    /// # Errors
    /// [`TemplateError::File`] when one cannot be written.
    pub fn write_out(directory: &Path) -> Result<Vec<PathBuf>, TemplateError> {
        let file = |path: &Path, source| TemplateError::File { path: path.to_owned(), source };
        std::fs::create_dir_all(directory).map_err(|err| file(directory, err))?;
        let mut written = Vec::new();
        for (name, text) in BUILT_IN {
            let path = directory.join(format!("{name}.hbs"));
            match std::fs::File::create_new(&path) {
                Ok(mut out) => {
                    io::Write::write_all(&mut out, text.as_bytes())
                        .map_err(|err| file(&path, err))?;
                    written.push(path);
                }
                Err(err) if err.kind() == io::ErrorKind::AlreadyExists => {}
                Err(err) => return Err(file(&path, err)),
            }
        }
        Ok(written)
    }

    /// The names of all templates, in order.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let names: BTreeSet<&String> = self.engine.get_templates().keys().collect();
        names.into_iter().cloned().collect()
    }

    /// Makes a prompt.
    ///
    /// # Errors
    /// [`TemplateError`] names the template and the line.
    pub fn render(&self, name: &str, values: Values<'_>) -> Result<String, TemplateError> {
        if !self.engine.has_template(name) {
            let known = self.names();
            let nearest = nearest(name, &known).map(str::to_owned);
            return Err(TemplateError::Unknown { name: name.to_owned(), nearest, known });
        }
        if let Some(error) = partials::circle(&self.engine, name) {
            return Err(error);
        }
        let prompt =
            self.engine.render(name, &values.to_json()).map_err(|err| render_error(name, &err))?;
        if prompt.len() > PROMPT_BYTES_MAX {
            let bytes = prompt.len();
            return Err(TemplateError::TooLong { template: name.to_owned(), bytes });
        }
        Ok(prompt)
    }

    /// Makes all that a runner would be given for these tasks at each of their attempts, with something
    /// noticed and without, and says what is wrong with any of it. Of more than ten attempts the
    /// first nine and the last are tried.
    #[must_use]
    pub fn check(&self, tasks: &[TaskSpec], documents: &[Document]) -> Vec<PromptFault> {
        let errors = vec!["an error of an earlier attempt".to_owned(); FEEDBACK_CHECKED_MAX];
        let variants = |task: &TaskSpec| attempts(task.max_retries, &errors);
        self.check_all(tasks, documents, &[None, Some("resume"), Some("rules")], variants)
    }

    /// Makes the prompts of all reviews of these tasks: the first question and a repeated one, a first
    /// round and a later one, each part of a change being there and not; and says what is wrong with
    /// any of them.
    #[must_use]
    pub fn check_review(
        &self,
        name: &str,
        tasks: &[TaskSpec],
        documents: &[Document],
    ) -> Vec<PromptFault> {
        let some = ["some".to_owned()];
        let variants: Vec<Variant<'_>> = changes(&some)
            .map(|change| Variant { attempt: 1, feedback: &[], noticed: &[], change: Some(change) })
            .collect();
        self.check_all(tasks, documents, &[Some(name)], |_| variants.clone())
    }

    /// Renders these templates, of which `None` is the task's own, for each task in all variants, and
    /// gathers what goes wrong, each fault once with all of its tasks.
    fn check_all<'a>(
        &self,
        tasks: &[TaskSpec],
        documents: &[Document],
        names: &[Option<&str>],
        variants: impl Fn(&TaskSpec) -> Vec<Variant<'a>>,
    ) -> Vec<PromptFault> {
        // The length of the documents matters to the length of the prompt, and that once.
        let short = |one: &Document| Document { name: one.name.clone(), text: "text".to_owned() };
        let short: Vec<Document> = documents.iter().map(short).collect();
        let mut faults: Vec<PromptFault> = Vec::new();
        for task in tasks {
            // A fault of one rendering is mostly one of the others too.
            let mut own: BTreeMap<String, TemplateError> = BTreeMap::new();
            let variants = variants(task);
            for name in names {
                let name = name.unwrap_or(&task.prompt_template);
                for err in partials::missing(&self.engine, name) {
                    own.entry(err.to_string()).or_insert(err);
                }
                for (number, variant) in variants.iter().enumerate() {
                    let documents = if number == 0 { documents } else { &short };
                    let Variant { attempt, feedback, noticed, change } = *variant;
                    let values = Values { task, attempt, feedback, noticed, documents, change };
                    // Rendering names another place of the same include.
                    if let Err(err) = self.render(name, values)
                        && !own.values().any(|known| is_same_include(known, &err))
                    {
                        own.entry(err.to_string()).or_insert(err);
                    }
                }
            }
            for (text, error) in own {
                match faults.iter_mut().find(|fault| fault.error.to_string() == text) {
                    Some(fault) => fault.tasks.push(task.id.clone()),
                    None => faults.push(PromptFault { tasks: vec![task.id.clone()], error }),
                }
            }
        }
        faults
    }
}

/// What may differ between two renderings of a template for the same task.
#[derive(Clone, Copy)]
struct Variant<'a> {
    attempt: u32,
    feedback: &'a [String],
    noticed: &'a [String],
    change: Option<ChangeText<'a>>,
}

fn is_same_include(one: &TemplateError, two: &TemplateError) -> bool {
    let names = |error: &TemplateError| {
        if let TemplateError::MissingPartial { template, partial, .. } = error {
            Some((template.clone(), partial.clone()))
        } else {
            None
        }
    };
    names(one).is_some_and(|one| names(two) == Some(one))
}

/// The attempts that a task may have: those up to the third always, since a person can grant more than
/// were planned.
fn attempts(retries: u32, errors: &[String]) -> Vec<Variant<'_>> {
    let last = retries.saturating_add(1).max(ATTEMPTS_CHECKED_MIN);
    let first = 1..=last.min(ATTEMPTS_CHECKED_MAX);
    let further = (last > ATTEMPTS_CHECKED_MAX).then_some(last);
    let variants = first.chain(further).flat_map(|attempt| {
        let earlier = usize::try_from(attempt - 1).unwrap_or(usize::MAX).min(errors.len());
        let feedback = &errors[..earlier];
        [&[][..], &errors[..earlier.min(2)]].map(|noticed| Variant {
            attempt,
            feedback,
            noticed,
            change: None,
        })
    });
    variants.collect()
}

/// Changes as reviews may get them: bare, with each part alone, with all but one, and with all.
fn changes(some: &[String]) -> impl Iterator<Item = ChangeText<'_>> {
    const PARTS: u32 = 6;
    let usual = |parts: &u32| matches!(parts.count_ones(), 0 | 1 | 5 | PARTS);
    (0..1_u32 << PARTS).filter(usual).map(move |parts| {
        let has = |part: u32| parts & (1 << part) != 0;
        let list = |part: u32| if has(part) { some } else { &[] };
        ChangeText {
            files: some,
            diff: "difference",
            mark: "mark",
            known: list(0),
            documents: list(1),
            earlier: list(2),
            answer: has(3).then_some("answer"),
            cut: has(4).then_some("what"),
            repeat: has(5).then_some("why"),
        }
    })
}

fn template_files(directory: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        let ending = path.extension().and_then(|ending| ending.to_str());
        let name = path.file_stem().and_then(|stem| stem.to_str());
        if let (Some(name), Some(ending)) = (name, ending)
            && ENDINGS.contains(&ending)
        {
            files.push((name.to_owned(), path.clone()));
        }
    }
    files.sort();
    Ok(files)
}

fn render_error(name: &str, err: &RenderError) -> TemplateError {
    let template = err.template_name.clone().unwrap_or_else(|| name.to_owned());
    let (line, column) = (err.line_no, err.column_no);
    let reason = err.reason();
    if let RenderErrorReason::MissingVariable(variable) = reason {
        let variable = variable.clone().unwrap_or_else(|| "a value".to_owned());
        TemplateError::MissingVariable { template, line, column, variable }
    } else if let RenderErrorReason::PartialNotFound(partial) = reason {
        TemplateError::MissingPartial { template, line, column, partial: partial.clone() }
    } else {
        TemplateError::Failed { template, line, column, why: reason.to_string() }
    }
}

/// The known name that looks most like this one, if any does.
fn nearest<'a>(name: &str, known: &'a [String]) -> Option<&'a str> {
    let near = |candidate: &&String| distance(name, candidate);
    let best = known.iter().min_by_key(near)?;
    (distance(name, best) <= name.chars().count().max(3) / 3 + 1).then_some(best.as_str())
}

/// How many letters must be changed, added or taken away to make one word of the other.
fn distance(one: &str, two: &str) -> usize {
    let two: Vec<char> = two.chars().collect();
    let mut row: Vec<usize> = (0..=two.len()).collect();
    for (before, letter) in one.chars().enumerate() {
        let mut diagonal = before;
        let mut left = before + 1;
        for (cell, other) in row.iter_mut().skip(1).zip(&two) {
            let above = *cell;
            *cell = (diagonal + usize::from(letter != *other)).min(above + 1).min(left + 1);
            (diagonal, left) = (above, *cell);
        }
        if let Some(first) = row.first_mut() {
            *first = before + 1;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests;
