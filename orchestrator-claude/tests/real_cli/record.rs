//! Keeps what the program wrote as a recording for the tests that need no program: with
//! `RECORD_SCENES=1` the scenes that call this write theirs into `tests/fixtures`.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value};

use crate::support::Place;

/// What is kept of the line that begins a conversation; the rest lists what the program can do.
const KEPT_OF_INIT: [&str; 8] = [
    "type",
    "subtype",
    "cwd",
    "session_id",
    "model",
    "permissionMode",
    "claude_code_version",
    "uuid",
];

/// Whether scenes are recorded.
pub(crate) fn is_recording() -> bool {
    std::env::var_os("RECORD_SCENES").is_some()
}

/// Writes the output of the stage's first run as the recording of a scene, if that is asked for.
pub(crate) fn record(place: &Place, scene: &str) {
    if !is_recording() {
        return;
    }
    let output = std::fs::read_to_string(place.cx.dir.join("stdout.jsonl")).unwrap();
    let mut names = Names { root: place.beside(""), ids: BTreeMap::new() };
    let mut version = None;
    let mut lines = String::new();
    for line in output.lines() {
        let mut line: Value = serde_json::from_str(line).unwrap();
        if line["subtype"] == "init" {
            version = line["claude_code_version"].as_str().map(str::to_owned);
            line = kept(&line);
        }
        names.hide(&mut line);
        lines.extend([line.to_string().as_str(), "\n"]);
    }
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(version.unwrap());
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join(format!("{scene}.jsonl")), lines).unwrap();
}

fn kept(init: &Value) -> Value {
    let fields = init.as_object().unwrap().clone();
    let kept = fields.into_iter().filter(|(name, _)| KEPT_OF_INIT.contains(&name.as_str()));
    Value::Object(kept.collect::<Map<_, _>>())
}

/// Placeholders for what is another one each time.
struct Names {
    root: std::path::PathBuf,
    ids: BTreeMap<String, usize>,
}

impl Names {
    fn hide(&mut self, value: &mut Value) {
        match value {
            Value::String(text) => {
                *text = text.replace(self.root.to_str().unwrap(), "/place/");
                if is_id(text) {
                    let next = self.ids.len() + 1;
                    let number = *self.ids.entry(text.clone()).or_insert(next);
                    *text = format!("00000000-0000-4000-8000-{number:012}");
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.hide(item)),
            Value::Object(fields) => {
                fields.remove("timestamp");
                fields.values_mut().for_each(|field| self.hide(field));
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// Whether a text has the form of a UUID.
fn is_id(text: &str) -> bool {
    let parts: Vec<usize> = text.split('-').map(str::len).collect();
    parts == [8, 4, 4, 4, 12] && text.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
}
