//! What is answered to what.

use serde_json::Value;

use super::messages::Asked;

/// An answer, and when it is given.
#[derive(Debug, Clone)]
pub struct Rule {
    pub(super) reply: Reply,
    user: Vec<String>,
    turn: Option<usize>,
    tool: Option<String>,
    times: Option<u32>,
}

impl Rule {
    /// An answer that is always given.
    #[must_use]
    pub const fn new(reply: Reply) -> Self {
        Self { reply, user: Vec::new(), turn: None, tool: None, times: None }
    }

    /// Only when some text of the user holds this; may be given several times.
    #[must_use]
    pub fn user(mut self, text: &str) -> Self {
        self.user.push(text.to_owned());
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
            && self.user.iter().all(|part| asked.user.iter().any(|text| text.contains(part)))
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
    pub(super) input_tokens: u64,
    pub(super) output_tokens: u64,
    pub(super) hangs: bool,
}

#[derive(Debug, Clone)]
pub(super) enum Block {
    Text(String),
    Tool { name: String, input: Value },
}

impl Reply {
    const fn of(blocks: Vec<Block>) -> Self {
        Self {
            blocks,
            status: 200,
            message: String::new(),
            headers: Vec::new(),
            input_tokens: 1_000,
            output_tokens: 50,
            hangs: false,
        }
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

    /// No answer at all, until one side gives up.
    #[must_use]
    pub fn hang() -> Self {
        Self { hangs: true, ..Self::of(Vec::new()) }
    }

    /// With this message, for an error.
    #[must_use]
    pub fn saying(mut self, message: &str) -> Self {
        message.clone_into(&mut self.message);
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
