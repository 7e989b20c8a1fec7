//! Answers in the form of the Messages API.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use super::asked::Asked;
use super::http;
use super::rules::{Block, Reply};

/// An error as the API words it.
pub(super) fn error(status: u16, message: &str) -> Value {
    let kind = match status {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    };
    json!({ "type": "error", "error": { "type": kind, "message": message } })
}

/// Gives the answer, streamed if that was asked for.
pub(super) fn answer(to: &mut impl Write, asked: &Asked, reply: &Reply) -> io::Result<()> {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let headers: Vec<(String, String)> =
        reply.headers.iter().map(|(name, value)| (name.clone(), asked.filled(value))).collect();
    if let Some((kind, body)) = &reply.raw {
        return http::write_body(to, (reply.status, kind), &headers, &asked.filled(body));
    }
    if reply.status != 200 {
        let body = error(reply.status, &reply.message);
        return http::write_json(to, reply.status, &headers, &body);
    }
    let blocks: Vec<Value> = (0..)
        .zip(&reply.blocks)
        .map(|(at, block)| match block {
            Block::Text(text) => json!({ "type": "text", "text": asked.filled(text) }),
            Block::Tool { name, input } => json!({
                "type": "tool_use",
                "id": format!("toolu_{number}_{at}"),
                "name": name,
                "input": filled(asked, input),
            }),
        })
        .collect();
    let uses_tool = reply.blocks.iter().any(|block| matches!(block, Block::Tool { .. }));
    let message = Message {
        id: format!("msg_{number}"),
        model: &asked.model,
        blocks: &blocks,
        stop_reason: reply.stop_reason.as_deref().unwrap_or(if uses_tool {
            "tool_use"
        } else {
            "end_turn"
        }),
        reply,
    };
    if asked.is_streamed {
        http::write_head(to, 200, "text/event-stream", &headers)?;
        write!(to, "\r\n")?;
        message.stream(to)?;
        return to.flush();
    }
    if reply.fault.is_some() {
        // The head of an answer whose body never comes.
        return http::write_head(to, 200, "application/json", &headers);
    }
    http::write_json(to, 200, &headers, &message.whole(&blocks, Some(message.stop_reason)))
}

fn filled(asked: &Asked, value: &Value) -> Value {
    match value {
        Value::String(text) => Value::from(asked.filled(text)),
        Value::Array(values) => values.iter().map(|value| filled(asked, value)).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| (name.clone(), filled(asked, value)))
            .collect::<serde_json::Map<_, _>>()
            .into(),
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

struct Message<'a> {
    id: String,
    model: &'a str,
    blocks: &'a [Value],
    stop_reason: &'a str,
    reply: &'a Reply,
}

impl Message<'_> {
    fn whole(&self, content: &[Value], stop_reason: Option<&str>) -> Value {
        let output = if stop_reason.is_some() { self.reply.output_tokens } else { 1 };
        json!({
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            "stop_reason": stop_reason,
            "stop_sequence": null,
            "usage": {
                "input_tokens": self.reply.input_tokens,
                "output_tokens": output,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
            },
        })
    }

    fn stream(&self, to: &mut impl Write) -> io::Result<()> {
        let start = json!({ "type": "message_start", "message": self.whole(&[], None) });
        event(to, &start)?;
        for (index, block) in self.blocks.iter().enumerate() {
            let (empty, delta) = in_pieces(block);
            event(
                to,
                &json!({ "type": "content_block_start", "index": index, "content_block": empty }),
            )?;
            if self.reply.fault.is_some() {
                return Ok(());
            }
            event(to, &json!({ "type": "content_block_delta", "index": index, "delta": delta }))?;
            event(to, &json!({ "type": "content_block_stop", "index": index }))?;
        }
        let delta = json!({ "stop_reason": self.stop_reason, "stop_sequence": null });
        let usage = json!({ "output_tokens": self.reply.output_tokens });
        event(to, &json!({ "type": "message_delta", "delta": delta, "usage": usage }))?;
        event(to, &json!({ "type": "message_stop" }))
    }
}

/// A block as it begins, and all of its content as one delta.
fn in_pieces(block: &Value) -> (Value, Value) {
    if block["type"] == "text" {
        let delta = json!({ "type": "text_delta", "text": block["text"] });
        return (json!({ "type": "text", "text": "" }), delta);
    }
    let mut empty = block.clone();
    empty["input"] = json!({});
    let input = block["input"].to_string();
    (empty, json!({ "type": "input_json_delta", "partial_json": input }))
}

fn event(to: &mut impl Write, event: &Value) -> io::Result<()> {
    let name = event["type"].as_str().unwrap_or_default();
    write!(to, "event: {name}\ndata: {event}\n\n")
}
