//! What is noted of a run of the program, for people and reports.

use orchestrator_core::{Cost, millis};
use serde_json::{Map, Value, json};

use super::Called;
use crate::config::ClaudeConfig;
use crate::outcome::{Class, Stop};
use crate::stream::{Denial, Final, RateLimit};

/// The record as JSON text.
pub(super) fn of(called: &Called, config: &ClaudeConfig, class: &Class) -> String {
    let transcript = &called.transcript;
    let (cost_usd, is_cost_known) = match called.cost(config) {
        Cost::Known(cost) => (cost.as_dollars(), true),
        Cost::AtLeast(cost) => (cost.as_dollars(), false),
    };
    let tokens = transcript.tokens();
    let denials: Vec<Value> = transcript.denials().map(denial).collect();
    let record = json!({
        "version": transcript.version(),
        "model": transcript.model(),
        "session": transcript.session(),
        "program": config.program,
        "arguments": called.argv,
        "exit": format!("{:?}", called.exit),
        "stopped": called.stopped.map(Stop::as_str),
        "ended_after_final_line": called.was_ended_late,
        "class": format!("{class:?}"),
        "class_row": class.row(),
        "wall_ms": millis(called.wall),
        "cost_usd": cost_usd,
        "cost_is_known": is_cost_known,
        "tokens_of_messages": {
            "input": tokens.input,
            "output": tokens.output,
            "cache_read": tokens.cache_read,
            "cache_write": tokens.cache_write,
        },
        "final_lines": transcript.finals(),
        "final": transcript.last().map(of_final),
        "denials": denials,
        "retries": transcript.retries(),
        "torn_lines": transcript.torn_lines(),
        "rate_limit": transcript.limit().map(of_limit),
        "left": called.left,
        "stdout": called.files.stdout,
        "stderr": called.files.stderr,
    });
    format!("{record:#}\n")
}

fn of_final(last: &Final) -> Value {
    json!({
        "subtype": last.subtype,
        "is_error": last.is_error,
        "api_status": last.api_status,
        "error": last.error,
        "stop_reason": last.stop_reason,
        "terminal_reason": last.terminal_reason,
        "turns": last.turns,
        "duration_ms": last.duration_ms,
        "duration_api_ms": last.duration_api_ms,
        "usage": last.usage.clone().map(Value::Object),
        "models": last.models.clone().map(Value::Object),
    })
}

fn of_limit(limit: &RateLimit) -> Value {
    let used: Map<String, Value> =
        limit.used.iter().map(|(window, used)| (window.clone(), json!(used))).collect();
    json!({
        "is_rejected": limit.is_rejected,
        "resets_at_ms": limit.resets_at,
        "window": limit.window,
        "used": used,
    })
}

fn denial(denial: &Denial) -> Value {
    json!({ "tool": denial.tool, "input": denial.input })
}
