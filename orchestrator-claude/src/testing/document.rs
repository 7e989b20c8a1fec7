//! Rules as a JSON document, for people who start the API as a program.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::rules::{Block, Fault};
use super::{Reply, Rule};

/// Why a document holds no rules.
#[derive(Debug, thiserror::Error)]
#[error("these are no rules")]
#[non_exhaustive]
pub struct InvalidRules {
    /// What is wrong, with line and column.
    #[source]
    pub source: serde_json::Error,
}

impl Rule {
    /// Reads rules from JSON: `{"rules": [RULE, ...]}`, or the list alone.
    ///
    /// A rule has a `reply` and, all of them optional, `user` and `tool_result` (a text or a list of
    /// texts), `turn`, `tool`, `model` and `times`. A reply has one of `text`, `tools` (a list of
    /// `{"name", "input"}`), `structured`, `error` (a status) with `message`, `usage_limit` (an object
    /// of `window` and `resets_at`), `raw` (an object of `status`, `content_type` and `body`), or
    /// `fault` alone (`hang`, `drop`); and besides `headers`, `stop_reason`, `input_tokens`,
    /// `output_tokens`, `delay_ms` and `fault` (`cut`, `stall`). An unknown name is an error.
    ///
    /// # Errors
    /// [`InvalidRules`] says where it is something else.
    pub fn parse_all(json: &str) -> Result<Vec<Self>, InvalidRules> {
        let read: Result<Document, _> = serde_json::from_str(json);
        // The error of an untagged enum names no place, so the form is decided here.
        let rules = if json.trim_start().starts_with('[') {
            serde_json::from_str::<Vec<RuleText>>(json)
        } else {
            read.map(|document| document.rules)
        };
        let rules = rules.map_err(|source| InvalidRules { source })?;
        Ok(rules.into_iter().map(RuleText::into_rule).collect())
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    rules: Vec<RuleText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RuleText {
    #[serde(default)]
    user: Texts,
    #[serde(default)]
    tool_result: Texts,
    turn: Option<usize>,
    tool: Option<String>,
    model: Option<String>,
    times: Option<u32>,
    reply: ReplyText,
}

#[derive(Deserialize, Default)]
#[serde(untagged)]
enum Texts {
    #[default]
    None,
    One(String),
    Many(Vec<String>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ReplyText {
    text: Option<String>,
    #[serde(default)]
    tools: Vec<ToolText>,
    structured: Option<Value>,
    error: Option<u16>,
    message: Option<String>,
    usage_limit: Option<LimitText>,
    raw: Option<RawText>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    stop_reason: Option<String>,
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    delay_ms: Option<u64>,
    fault: Option<FaultText>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolText {
    name: String,
    input: Value,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitText {
    window: String,
    resets_at: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawText {
    status: u16,
    content_type: String,
    body: String,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "snake_case")]
enum FaultText {
    Hang,
    Drop,
    Cut,
    Stall,
}

impl Texts {
    fn into_vec(self) -> Vec<String> {
        match self {
            Self::None => Vec::new(),
            Self::One(text) => vec![text],
            Self::Many(texts) => texts,
        }
    }
}

impl RuleText {
    fn into_rule(self) -> Rule {
        Rule {
            reply: self.reply.into_reply(),
            user: self.user.into_vec(),
            tool_result: self.tool_result.into_vec(),
            turn: self.turn,
            tool: self.tool,
            model: self.model,
            times: self.times,
        }
    }
}

impl ReplyText {
    fn into_reply(self) -> Reply {
        let mut reply = match (self.error, self.usage_limit, self.raw) {
            (Some(status), _, _) => Reply::error(status),
            (None, Some(limit), _) => Reply::usage_limit(&limit.window, &limit.resets_at),
            (None, None, Some(raw)) => Reply::raw(raw.status, &raw.content_type, &raw.body),
            (None, None, None) => Reply::empty(),
        };
        reply.blocks.extend(self.text.map(Block::Text));
        let tools = self.tools.into_iter();
        reply.blocks.extend(tools.map(|ToolText { name, input }| Block::Tool { name, input }));
        let name = "StructuredOutput".to_owned();
        reply.blocks.extend(self.structured.map(|input| Block::Tool { name, input }));
        reply.headers.extend(self.headers);
        reply.message = self.message.unwrap_or(reply.message);
        reply.stop_reason = self.stop_reason;
        reply.input_tokens = self.input_tokens.unwrap_or(reply.input_tokens);
        reply.output_tokens = self.output_tokens.unwrap_or(reply.output_tokens);
        reply.delay = self.delay_ms.map_or(reply.delay, Duration::from_millis);
        reply.fault = self.fault.map(|fault| match fault {
            FaultText::Hang => Fault::Hang,
            FaultText::Drop => Fault::Drop,
            FaultText::Cut => Fault::Cut,
            FaultText::Stall => Fault::Stall,
        });
        reply
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_and_an_unknown_name_is_an_error_with_its_place() {
        let rules = r#"{"rules": [
            {"user": "TASK-7", "turn": 0, "times": 2,
             "reply": {"tools": [{"name": "Write", "input": {"file_path": "a"}}], "delay_ms": 5}},
            {"user": ["a", "b"], "reply": {"text": "Done.", "stop_reason": "max_tokens"}},
            {"tool": "StructuredOutput", "reply": {"structured": {"verdict": "APPROVE"}}},
            {"reply": {"usage_limit": {"window": "five_hour", "resets_at": "${now+60}"}}},
            {"reply": {"fault": "hang"}}
        ]}"#;
        let rules = Rule::parse_all(rules).unwrap();
        assert_eq!(rules.len(), 5);
        assert_eq!((rules[0].times, rules[0].reply.delay), (Some(2), Duration::from_millis(5)));
        assert_eq!(rules[1].user, ["a", "b"]);
        assert_eq!((rules[3].reply.status, rules[3].reply.headers.len()), (429, 4));
        assert_eq!(Rule::parse_all("[{\"reply\": {}}]").unwrap().len(), 1);
        for bad in
            ["{}", "[{}]", "[\n{\"reply\": {}, \"usr\": 1}]", "[{\"reply\": {\"txt\": \"\"}}]"]
        {
            assert!(Rule::parse_all(bad).is_err(), "{bad}");
        }
        let err = Rule::parse_all("[\n{\"reply\": {}, \"usr\": 1}]").unwrap_err();
        let source = err.source.to_string();
        assert!(source.contains("usr") && source.contains("line 2"), "{source}");
    }
}
