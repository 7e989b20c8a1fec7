//! Questions in the form of the Messages API.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

/// What a request asks, as far as rules look at it.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) user: Vec<String>,
    pub(super) turn: usize,
    pub(super) tools: Vec<String>,
    pub(super) model: String,
    /// What tools gave back in the last message, as JSON.
    pub(super) tool_results: String,
    pub(super) is_streamed: bool,
    cwd: Option<String>,
}

impl Asked {
    pub(super) fn read(body: &Value) -> Self {
        let list = |key: &str| body[key].as_array().cloned().unwrap_or_default();
        let messages = list("messages");
        let of_role = |role: &'static str| messages.iter().filter(move |one| one["role"] == role);
        let user = of_role("user").flat_map(|message| texts(&message["content"])).collect();
        let cwd = of_role("system")
            .flat_map(|message| texts(&message["content"]))
            .chain(texts(&body["system"]))
            .find_map(|text| {
                let rest = text.split("orking directory: ").nth(1)?;
                rest.lines().next().map(|line| line.trim().to_owned())
            });
        let last =
            messages.last().and_then(|last| last["content"].as_array()).into_iter().flatten();
        let results = last.filter(|block| block["type"] == "tool_result").map(Value::to_string);
        let tool_results = results.collect();
        Self {
            user,
            tool_results,
            turn: of_role("assistant").count(),
            tools: list("tools").iter().filter_map(|tool| text(&tool["name"])).collect(),
            model: text(&body["model"]).unwrap_or_default(),
            is_streamed: body["stream"] == true,
            cwd,
        }
    }

    /// The text with `${cwd}`, `${now}` and `${now+SECONDS}` filled in.
    pub(super) fn filled(&self, text: &str) -> String {
        let text = text.replace("${cwd}", self.cwd.as_deref().unwrap_or("."));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let mut filled = String::new();
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once("${now") {
            filled.push_str(before);
            let Some((sum, after)) = after.split_once('}') else {
                filled.push_str("${now");
                rest = after;
                continue;
            };
            let seconds: u64 = sum.trim_start_matches('+').parse().unwrap_or(0);
            filled.push_str(&now.saturating_add(seconds).to_string());
            rest = after;
        }
        filled + rest
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}

/// The texts of a content, which is one text or a list of blocks.
fn texts(content: &Value) -> Vec<String> {
    match content.as_array() {
        Some(blocks) => blocks.iter().filter_map(|block| text(&block["text"])).collect(),
        None => text(content).into_iter().collect(),
    }
}
