//! What is noted of a run of a program, for people and reports.

use orchestrator_core::{Cost, millis};
use serde_json::{Map, Value, json};

use super::Called;
use crate::agent::{Denial, Finish, RateLimit};
use crate::outcome::Stop;
use crate::signals::Signal;

/// The record as JSON text.
pub(super) fn of(called: &Called, finish: &Finish, signals: &[Signal]) -> String {
    let (cost_usd, is_cost_known) = match called.cost(finish) {
        Cost::Known(cost) => (cost.as_dollars(), true),
        Cost::AtLeast(cost) => (cost.as_dollars(), false),
    };
    let denials: Vec<Value> = called.heard.denials.iter().map(denial).collect();
    let mut record = json!({
        "version": called.heard.version,
        "version_is_known": called.heard.is_known,
        "model": called.heard.model,
        "session": called.heard.session,
        "program": called.program,
        "arguments": called.argv,
        "exit": format!("{:?}", called.exit),
        "stopped": called.stopped.map(Stop::as_str),
        "ended_after_final_line": called.was_ended_late,
        "class": format!("{:?}", finish.class),
        "class_row": finish.class.row(),
        "wall_ms": millis(called.wall),
        "cost_usd": cost_usd,
        "cost_is_known": is_cost_known,
        "denials": denials,
        "rate_limit": called.heard.limit.as_ref().map(of_limit),
        "signals": signals,
        "left": called.left,
        "stdout": called.files.path("stdout", "jsonl"),
        "stderr": called.files.path("stderr", "txt"),
    });
    if let (Value::Object(record), Value::Object(own)) = (&mut record, called.reader.record()) {
        for (name, value) in own {
            record.entry(name).or_insert(value);
        }
    }
    format!("{record:#}\n")
}

fn of_limit(limit: &RateLimit) -> Value {
    let windows: Map<String, Value> = limit
        .windows
        .iter()
        .map(|(name, window)| {
            (name.clone(), json!({ "used": window.used, "resets_at_ms": window.resets_at }))
        })
        .collect();
    json!({
        "is_rejected": limit.is_rejected,
        "resets_at_ms": limit.resets_at,
        "window": limit.window,
        "windows": windows,
    })
}

fn denial(denial: &Denial) -> Value {
    json!({ "tool": denial.tool, "input": denial.input })
}
