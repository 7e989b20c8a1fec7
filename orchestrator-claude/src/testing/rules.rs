//! What is answered to what.

use std::time::Duration;

use serde_json::Value;

use super::asked::Asked;

/// An answer, and when it is given.
#[derive(Debug, Clone)]
pub struct Rule {
    pub(super) reply: Reply,
    pub(super) user: Vec<String>,
    pub(super) tool_result: Vec<String>,
    pub(super) turn: Option<usize>,
    pub(super) tool: Option<String>,
    pub(super) model: Option<String>,
    pub(super) times: Option<u32>,
}

impl Rule {
    /// An answer that is always given.
    #[must_use]
    pub const fn new(reply: Reply) -> Self {
        Self {
            reply,
            user: Vec::new(),
            tool_result: Vec::new(),
            turn: None,
            tool: None,
            model: None,
            times: None,
        }
    }

    /// Only when some text of the user holds this; may be given several times.
    #[must_use]
    pub fn user(mut self, text: &str) -> Self {
        self.user.push(text.to_owned());
        self
    }

    /// Only when the last message holds this in what a tool gave back; may be given several times.
    #[must_use]
    pub fn tool_result(mut self, text: &str) -> Self {
        self.tool_result.push(text.to_owned());
        self
    }

    /// Only when the conversation holds this many answers of the model so far.
    #[must_use]
    pub const fn turn(mut self, turn: usize) -> Self {
        self.turn = Some(turn);
        self
    }

    /// Only when this tool is offered.
    #[must_use]
    pub fn tool(mut self, name: &str) -> Self {
        self.tool = Some(name.to_owned());
        self
    }

    /// Only when the name of the model holds this.
    #[must_use]
    pub fn model(mut self, part: &str) -> Self {
        self.model = Some(part.to_owned());
        self
    }

    /// Only so often.
    #[must_use]
    pub const fn times(mut self, times: u32) -> Self {
        self.times = Some(times);
        self
    }

    pub(super) fn holds(&self, asked: &Asked) -> bool {
        self.times != Some(0)
            && self.turn.is_none_or(|turn| turn == asked.turn)
            && self.tool.as_ref().is_none_or(|tool| asked.tools.contains(tool))
            && self.model.as_ref().is_none_or(|part| asked.model.contains(part))
            && self.user.iter().all(|part| asked.user.iter().any(|text| text.contains(part)))
            && self.tool_result.iter().all(|part| asked.tool_results.contains(part))
    }

    pub(super) const fn fired(&mut self) {
        if let Some(times) = self.times {
            self.times = Some(times.saturating_sub(1));
        }
    }
}

/// An answer.
#[derive(Debug, Clone)]
pub struct Reply {
    pub(super) blocks: Vec<Block>,
    pub(super) status: u16,
    pub(super) message: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) stop_reason: Option<String>,
    pub(super) input_tokens: u64,
    pub(super) output_tokens: u64,
    pub(super) delay: Duration,
    pub(super) fault: Option<Fault>,
    pub(super) raw: Option<(String, String)>,
}

#[derive(Debug, Clone)]
pub(super) enum Block {
    Text(String),
    Tool { name: String, input: Value },
}

/// How an answer goes wrong on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// It never comes.
    Hang,
    /// The connection ends before it.
    Drop,
    /// The connection ends in the middle of it.
    Cut,
    /// It stops in the middle, and the connection stays.
    Stall,
}

impl Reply {
    pub(super) const fn of(blocks: Vec<Block>) -> Self {
        Self {
            blocks,
            status: 200,
            message: String::new(),
            headers: Vec::new(),
            stop_reason: None,
            input_tokens: 1_000,
            output_tokens: 50,
            delay: Duration::ZERO,
            fault: None,
            raw: None,
        }
    }

    /// An answer without content.
    #[must_use]
    pub const fn empty() -> Self {
        Self::of(Vec::new())
    }

    /// A text, which ends the turn.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self::of(vec![Block::Text(text.to_owned())])
    }

    /// A use of a tool.
    #[must_use]
    pub fn tool(name: &str, input: Value) -> Self {
        Self::of(vec![Block::Tool { name: name.to_owned(), input }])
    }

    /// One more use of a tool in the same answer.
    #[must_use]
    pub fn and_tool(mut self, name: &str, input: Value) -> Self {
        self.blocks.push(Block::Tool { name: name.to_owned(), input });
        self
    }

    /// The structured answer that the program was told to ask for.
    #[must_use]
    pub fn structured(answer: Value) -> Self {
        Self::tool("StructuredOutput", answer)
    }

    /// An error of the API.
    #[must_use]
    pub fn error(status: u16) -> Self {
        Self { status, ..Self::of(Vec::new()) }.saying("as the rule says")
    }

    /// The refusal that an account gets whose usage window is used up, which reopens at this many
    /// seconds since 1970 (a text, so that `${now+3600}` can stand for it). The program takes it for
    /// one only when it is signed in with a token (`CLAUDE_CODE_OAUTH_TOKEN`) and not with a key.
    #[must_use]
    pub fn usage_limit(window: &str, resets_at: &str) -> Self {
        Self::error(429)
            .header("anthropic-ratelimit-unified-status", "rejected")
            .header("anthropic-ratelimit-unified-reset", resets_at)
            .header("anthropic-ratelimit-unified-representative-claim", window)
            .header("retry-after", "7200")
    }

    /// This body as it is, whatever it is: what a proxy puts in between, say.
    #[must_use]
    pub fn raw(status: u16, content_type: &str, body: &str) -> Self {
        let raw = Some((content_type.to_owned(), body.to_owned()));
        Self { status, raw, ..Self::of(Vec::new()) }
    }

    /// No answer at all, until one side gives up.
    #[must_use]
    pub fn hang() -> Self {
        Self { fault: Some(Fault::Hang), ..Self::of(Vec::new()) }
    }

    /// A connection that ends before the answer.
    #[must_use]
    pub fn dropped() -> Self {
        Self { fault: Some(Fault::Drop), ..Self::of(Vec::new()) }
    }

    /// The connection ends in the middle of the answer.
    #[must_use]
    pub const fn cut(mut self) -> Self {
        self.fault = Some(Fault::Cut);
        self
    }

    /// The answer stops in its middle, and the connection stays open.
    #[must_use]
    pub const fn stalling(mut self) -> Self {
        self.fault = Some(Fault::Stall);
        self
    }

    /// After this long.
    #[must_use]
    pub const fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// With this message, for an error.
    #[must_use]
    pub fn saying(mut self, message: &str) -> Self {
        message.clone_into(&mut self.message);
        self
    }

    /// With this reason why the model stopped: `refusal`, `max_tokens` and so on.
    #[must_use]
    pub fn stopping(mut self, reason: &str) -> Self {
        self.stop_reason = Some(reason.to_owned());
        self
    }

    /// With this header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With this use of tokens, in place of 1,000 sent and 50 received.
    #[must_use]
    pub const fn tokens(mut self, input: u64, output: u64) -> Self {
        self.input_tokens = input;
        self.output_tokens = output;
        self
    }
}
