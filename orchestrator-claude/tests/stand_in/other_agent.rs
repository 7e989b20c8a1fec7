//! A second agent is one implementation of `Agent`: this one speaks in threads and turns, names no
//! money and stops at no limit of it, takes no schema, and is all that had to be written for it.

use std::path::PathBuf;
use std::sync::Arc;

use orchestrator_claude::agent::{
    Agent, AgentConfig, Ask, Capabilities, Conversation, Ended, Event, Finish, Prepared, Reader,
    ToolUse, Usage,
};
use orchestrator_claude::outcome::{Class, Exit, Limit};
use orchestrator_claude::stream::{Prices, Tokens};
use orchestrator_claude::{AgentReviewer, AgentRunner};
use orchestrator_core::port::{Reviewer as _, Runner as _};
use orchestrator_core::{Cost, Outcome, SessionId, StageKind, Usd, Verdict};
use orchestrator_process::Environment;
use serde_json::{Value, json};

use crate::support::{Place, change};
use crate::{read, set_up};

const PRICES: Prices = Prices {
    input: Usd::dollars(1),
    output: Usd::dollars(10),
    cache_read: Usd::ZERO,
    cache_write: Usd::ZERO,
};

#[derive(Debug)]
struct Threads {
    program: PathBuf,
}

#[derive(Debug, Default)]
struct ThreadReader {
    text: String,
    tokens: Tokens,
    end: Option<Result<(), String>>,
}

impl Agent for Threads {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            structured_answer: false,
            budget: false,
            turns_max: false,
            resume: true,
            names_conversation: false,
            cost: false,
            limit_reset: false,
        }
    }

    fn known_versions(&self) -> &[&str] {
        &[]
    }

    fn prepare(&self, ask: &Ask<'_>) -> Prepared {
        let mut args = vec!["exec".into(), "--json".into()];
        if let Conversation::Resume(thread) = ask.conversation {
            args.extend(["resume".into(), thread.as_str().into()]);
        }
        let environment = Environment::empty().passing(["PATH"]).with("HOME", ask.home);
        let rules = (ask.files.path("AGENTS", "md"), ask.rules.unwrap_or_default().to_owned());
        Prepared { program: self.program.clone(), args, environment, files: vec![rules] }
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::<ThreadReader>::default()
    }
}

impl Reader for ThreadReader {
    fn line(&mut self, line: &[u8]) -> Vec<Event> {
        let Ok(event) = serde_json::from_slice::<Value>(line) else { return vec![Event::Torn] };
        let item = &event["item"];
        match event["type"].as_str() {
            Some("thread.started") => {
                let id = event["thread_id"].as_str().and_then(|id| SessionId::parse(id).ok());
                id.map(Event::Session).into_iter().collect()
            }
            Some("item.completed") if item["type"] == "agent_message" => {
                item["text"].as_str().unwrap_or_default().clone_into(&mut self.text);
                vec![Event::Text(self.text.clone())]
            }
            Some("item.completed") => {
                let input = json!({ "command": item["command"] });
                vec![Event::Tool(ToolUse { name: "shell".to_owned(), input })]
            }
            Some("usage") => {
                let of = |name: &str| event[name].as_u64().unwrap_or(0);
                self.tokens.input = of("input_tokens");
                self.tokens.output = of("output_tokens");
                vec![Event::Usage(Usage::Total { tokens: self.tokens, cost: None })]
            }
            Some("turn.completed") => {
                self.end = Some(Ok(()));
                vec![Event::End]
            }
            Some("turn.failed") => {
                self.end = Some(Err(event["error"].to_string()));
                vec![Event::End]
            }
            _ => vec![Event::Other],
        }
    }

    fn finish(&self, ended: &Ended<'_>) -> Finish {
        let class = match (ended.stopped, &self.end, ended.exit) {
            (Some(stop), _, _) => Class::Stopped(stop),
            (None, Some(Ok(())), _) if ended.question.is_some() => Class::Blocked,
            (None, Some(Ok(())), _) => Class::Success,
            (None, Some(Err(error)), _) if error.contains("turns") => Class::Limit(Limit::Turns),
            (None, Some(Err(_)), _) => Class::Failed,
            (None, None, Exit::Signal(_)) => Class::Killed,
            (None, None, _) => Class::Malformed,
        };
        let spent = PRICES.of(self.tokens);
        Finish {
            class,
            message: self.end.clone().and_then(Result::err).unwrap_or_default(),
            text: self.text.clone(),
            structured: None,
            cost: if self.end.is_some() { Cost::Known(spent) } else { Cost::AtLeast(spent) },
            version: None,
            model: None,
        }
    }

    fn record(&self) -> Value {
        json!({})
    }
}

fn agent(kind: StageKind, task: &str, body: &str) -> (Place, Arc<dyn Agent>, AgentConfig) {
    let (place, config) = set_up(kind, task, body);
    let mut common = config.agent_config();
    common.prices = PRICES;
    (place, Arc::new(Threads { program: config.program }), common)
}

#[tokio::test]
async fn a_second_agent_works_reviews_and_keeps_a_conversation() {
    let body = r#"printf '%s\n' "$@" > args; cat > input
echo '{"type":"thread.started","thread_id":"th-1"}'
echo '{"type":"item.completed","item":{"type":"agent_message","text":"{\"verdict\":\"APPROVE\",\"findings\":[]}"}}'
echo '{"type":"usage","input_tokens":100000,"output_tokens":1000}'
echo '{"type":"turn.completed"}'"#;
    let (mut place, agent, config) = agent(StageKind::Run, "threads", body);
    let runner = AgentRunner::new(Arc::clone(&agent), config.clone());
    let end = runner.run(&place.cx).await;
    assert_eq!((end.outcome, end.cost), (Outcome::Passed, Cost::Known(Usd(110_000))));
    assert!(read(&place.file("input")).contains("# Task threads"));
    assert!(read(&place.cx.dir.join("AGENTS.md")).contains("Ask no questions"));
    place.next_grant(end.session);
    assert_eq!(runner.run(&place.cx).await.outcome, Outcome::Passed);
    assert_eq!(read(&place.file("args")), "exec\n--json\nresume\nth-1\n");

    let review = AgentReviewer::new(agent, config).review(&place.cx, &change()).await;
    assert_eq!(review.judgement.unwrap().verdict, Verdict::Approve);
}

#[tokio::test]
async fn a_limit_of_money_is_kept_for_a_program_that_keeps_none() {
    let body = r#"cat > /dev/null
echo '{"type":"thread.started","thread_id":"th-1"}'
for n in 1 2 3 4 5 6 7 8 9; do echo "{\"type\":\"usage\",\"input_tokens\":${n}00000}"; sleep 0.05; done
sleep 3333"#;
    let (place, agent, config) = agent(StageKind::Run, "spends", body);
    // One dollar is reserved, half of it is for the turn under way.
    assert_eq!(config.budget_of(place.cx.stage.cap), Usd(500_000));
    let end = AgentRunner::new(agent, config).run(&place.cx).await;
    let Outcome::Rejected { feedback, .. } = end.outcome else { panic!("{:?}", end.outcome) };
    assert!(feedback.contains("limit of money"), "{feedback}");
    let Cost::AtLeast(spent) = end.cost else { panic!("{:?}", end.cost) };
    assert!(spent >= Usd(500_000) && spent <= place.cx.stage.cap, "{spent}");
    assert!(place.processes().is_empty());
}
