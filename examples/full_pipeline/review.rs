//! The stand-in's review: one real check of the conventions, done on the difference alone.

use serde_json::{Value, json};

/// The verdict on the change that the prompt shows: every variable that an added line of
/// `sh/<module>.sh` sets must begin with `_<module>_`.
///
/// In a later round an earlier finding is met when the check finds it no more.
pub(crate) fn judge(prompt: &str) -> Value {
    let (mut findings, mut earlier) = (leaks(change(prompt)), Vec::new());
    let mut rejects = !findings.is_empty();
    for (id, text) in earlier_findings(prompt) {
        let found = findings.iter().position(|leak| text.ends_with(&message(leak)));
        rejects |= found.is_some();
        earlier.push(json!({ "id": id, "met": found.is_none() }));
        if let Some(place) = found {
            findings.remove(place);
        }
    }
    let findings: Vec<Value> = findings.iter().map(finding).collect();
    let verdict = if rejects { "REJECT" } else { "APPROVE" };
    let mut judgement = json!({ "verdict": verdict, "findings": findings });
    if !earlier.is_empty() {
        judgement["earlier"] = Value::Array(earlier);
    }
    judgement
}

/// The findings of the round before, each with its name and all that is said of it.
fn earlier_findings(prompt: &str) -> Vec<(&str, &str)> {
    let Some((_, rest)) = prompt.split_once("\n## Earlier findings\n") else { return Vec::new() };
    let section = rest.split("\n## ").next().unwrap_or_default();
    let lines = section.lines().filter_map(|line| line.strip_prefix("- "));
    lines.filter_map(|line| line.split_once(' ')).collect()
}

/// What stands between the marks of the change.
fn change(prompt: &str) -> &str {
    let begin = prompt.find("<change_").unwrap_or(0);
    let end = prompt.rfind("</change_").unwrap_or(prompt.len());
    prompt.get(begin..end).unwrap_or_default()
}

/// A variable without the prefix of its module.
struct Leak {
    file: String,
    line: u64,
    name: String,
    prefix: String,
}

fn message(leak: &Leak) -> String {
    let Leak { name, prefix, .. } = leak;
    format!(
        "`{name}` is a variable of whoever calls, too: a caller that has one of this name finds it \
         changed. Rule 2 of CONVENTIONS.md asks for `{prefix}{name}`."
    )
}

fn finding(leak: &Leak) -> Value {
    let Leak { file, line, .. } = leak;
    json!({ "severity": "blocking", "file": file, "line": line, "message": message(leak) })
}

fn leaks(diff: &str) -> Vec<Leak> {
    let mut leaks: Vec<Leak> = Vec::new();
    let (mut file, mut line) = (String::new(), 0_u64);
    for text in diff.lines() {
        if let Some(path) = text.strip_prefix("+++ b/") {
            path.trim().clone_into(&mut file);
        } else if let Some(hunk) = text.strip_prefix("@@ ") {
            line = first_line(hunk);
        } else if let Some(added) = text.strip_prefix('+') {
            let Some(prefix) = prefix(&file) else { continue };
            for name in set_by(added).into_iter().filter(|name| !name.starts_with(&prefix)) {
                if !leaks.iter().any(|leak| leak.name == name && leak.file == file) {
                    let (file, name) = (file.clone(), name.to_owned());
                    leaks.push(Leak { file, line, name, prefix: prefix.clone() });
                }
            }
            line += 1;
        } else if !text.starts_with('-') {
            line += 1;
        }
    }
    leaks
}

/// The first line of a hunk in the new file: `-1,2 +3,4 @@` says 3.
fn first_line(hunk: &str) -> u64 {
    let new = hunk.split_once('+').map_or("", |(_, new)| new);
    let digits = new.find(|c: char| !c.is_ascii_digit()).unwrap_or(new.len());
    new.get(..digits).and_then(|digits| digits.parse().ok()).unwrap_or(1)
}

fn prefix(file: &str) -> Option<String> {
    let module = file.strip_prefix("sh/")?.strip_suffix(".sh")?;
    Some(format!("_{module}_"))
}

/// The variables that a line sets: by assignments it begins with, by `for`, or by `read -r`.
fn set_by(line: &str) -> Vec<&str> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let is_name = |name: &&str| {
        name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let assigned = words.iter().map_while(|word| word.split_once('=')).map(|(name, _)| name);
    let mut names: Vec<&str> = assigned.filter(is_name).collect();
    if words.first() == Some(&"for") {
        names.extend(words.get(1).copied().filter(is_name));
    }
    if let Some(at) = words.windows(2).position(|pair| pair == ["read", "-r"]) {
        names.extend(words.iter().skip(at + 2).copied().take_while(is_name));
    }
    names
}
