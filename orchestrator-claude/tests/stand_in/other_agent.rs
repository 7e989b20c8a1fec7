//! A second agent, whole: a program that speaks in lines of plain words, is given its prompt as an
//! argument, names its conversations itself, and can do nothing else by itself. All of it is public.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use orchestrator_claude::agent::{
    Agent, AgentConfig, Answer, Ask, Capabilities, Conversation, Ended, Event, Finish, Prepared,
    Prices, Reader, Tokens, ToolUse, Usage,
};
use orchestrator_claude::outcome::{Class, Exit};
use orchestrator_claude::{Account, AgentReviewer, AgentRunner, SetupFault, SetupWarning};
use orchestrator_core::port::{ActivityKind, Reviewer as _, Runner as _};
use orchestrator_core::{Cost, Interruption, Outcome, SessionId, StageKind, Usd, Verdict};
use orchestrator_process::Environment;
use serde_json::{Value, json};

use crate::support::{Place, change};
use crate::{read, script};

/// The program.
#[derive(Debug)]
struct Plain {
    program: PathBuf,
    can: Capabilities,
}

/// Reads `WORD REST` on each line.
#[derive(Debug, Default)]
struct PlainReader {
    text: String,
    failed: Option<String>,
    is_closed: bool,
}

const NOTHING: Capabilities = Capabilities {
    structured_answer: false,
    budget: false,
    turns_max: false,
    resume: false,
    names_conversation: false,
    cost: false,
    limit_reset: false,
};

impl Plain {
    fn start(&self, args: Vec<std::ffi::OsString>) -> Prepared {
        let environment = Environment::empty().passing(["PATH"]);
        Prepared {
            program: self.program.clone(),
            args,
            environment,
            stdin: None,
            files: Vec::new(),
        }
    }
}

impl Agent for Plain {
    fn capabilities(&self) -> Capabilities {
        self.can
    }

    fn known_versions(&self) -> &[&str] {
        &["1.2"]
    }

    fn faults(&self) -> Vec<SetupFault> {
        Vec::new()
    }

    fn version(&self) -> Prepared {
        self.start(vec!["version".into()])
    }

    fn silence(&self) -> Duration {
        Duration::from_secs(60)
    }

    fn prepare(&self, ask: &Ask<'_>) -> Prepared {
        let prompt = std::fs::read_to_string(ask.prompt).unwrap_or_default();
        let (how, name) = match ask.conversation {
            Conversation::New => ("new", ""),
            Conversation::Named(name) => ("named", name),
            Conversation::Resume(session) => ("resume", session.as_str()),
        };
        let rights = if ask.answer == Answer::Text { "write" } else { "read" };
        let mut prepared =
            self.start([how, name, rights, &prompt].map(std::ffi::OsString::from).to_vec());
        let rules = ask.rules.unwrap_or_default().to_owned();
        prepared.files.push((ask.files.path("AGENTS", "md"), rules));
        prepared
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::<PlainReader>::default()
    }
}

impl Reader for PlainReader {
    fn line(&mut self, line: &[u8]) -> Vec<Event> {
        let Ok(line) = std::str::from_utf8(line) else { return vec![Event::Torn] };
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        let tokens = || Tokens { input: rest.parse().unwrap_or(0), ..Tokens::default() };
        vec![match word {
            "version" => Event::Version(rest.to_owned()),
            "thread" => SessionId::parse(rest).map_or(Event::Torn, Event::Session),
            "turn" => Event::Turn,
            "use" => Event::Tool(ToolUse { name: "shell".to_owned(), input: json!(rest) }),
            "tokens" => Event::Usage(Usage::Delta { tokens: tokens(), cost: None }),
            "say" => {
                rest.clone_into(&mut self.text);
                Event::Text(rest.to_owned())
            }
            "closed" => {
                self.is_closed = true;
                Event::Other
            }
            "failed" => {
                self.failed = Some(rest.to_owned());
                Event::End
            }
            _ => Event::Other,
        }]
    }

    fn finish(&self, ended: &Ended<'_>) -> Finish {
        // It has no last line: that it ended well shows by its exit code.
        let class = match (ended.stopped, ended.exit) {
            (Some(stop), _) => Class::Stopped(stop),
            (None, _) if self.is_closed => Class::UsageLimit { resets_at: None, window: None },
            (None, _) if self.failed.is_some() => Class::Failed,
            (None, Exit::Code(0)) if ended.question.is_some() => Class::Blocked,
            (None, Exit::Code(0)) => Class::Success,
            (None, Exit::Signal(_)) => Class::Killed,
            (None, _) => Class::Malformed,
        };
        Finish {
            class,
            message: self.failed.clone().unwrap_or_default(),
            text: self.text.clone(),
            structured: None,
            cost: None,
        }
    }

    fn record(&self) -> Value {
        json!({ "failed": self.failed })
    }
}

/// A place, the agent for a script with this body, and a configuration at a dollar a million tokens.
fn agent(task: &str, can: Capabilities, body: &str) -> (Place, Arc<dyn Agent>, AgentConfig) {
    let place = Place::new(StageKind::Run, task);
    let program = script(&place, body);
    let mut config = AgentConfig::default();
    config.prices = Prices { input: Usd::dollars(1), ..Prices::default() };
    config.kill_grace = Duration::from_secs(2);
    (place, Arc::new(Plain { program, can }), config)
}

/// Keeps its arguments beside the workspace.
const KEEP: &str = "for word; do printf '%s\\n' \"$word\"; done > ../args";

#[tokio::test]
async fn a_second_agent_works_reviews_and_keeps_a_conversation() {
    let body = format!(
        r#"{KEEP}
echo "$PORT" > ../port
echo 'thread th-1'
echo 'tokens 100000'
echo 'tokens 10000'
echo 'say {{"verdict":"APPROVE","findings":[]}}'"#
    );
    let can = Capabilities { resume: true, ..NOTHING };
    let (mut place, agent, config) = agent("plain", can, &body);
    let runner = AgentRunner::new(Arc::clone(&agent), config.clone());
    place.cx.workspace.environment.push(("PORT".to_owned(), "4000".into()));
    let end = runner.run(&place.cx).await;
    assert_eq!((end.outcome, end.cost), (Outcome::Passed, Cost::Known(Usd(110_000))));
    let args = read(&place.beside("args"));
    assert!(args.starts_with("new\n\nwrite\n") && args.contains("# Task plain"), "{args}");
    assert_eq!(read(&place.beside("port")), "4000\n", "what belongs to the workspace");
    assert!(read(&place.cx.dir.join("AGENTS.md")).contains("Ask no questions"));
    place.next_grant(end.session);
    assert_eq!(runner.run(&place.cx).await.outcome, Outcome::Passed);
    assert!(read(&place.beside("args")).starts_with("resume\nth-1\nwrite\nGo on"));

    let review = AgentReviewer::new(agent, config).review(&place.cx, &change()).await;
    assert_eq!(review.judgement.unwrap().verdict, Verdict::Approve);
    assert!(read(&place.beside("args")).starts_with("new\n\nread\n# Review"));
}

#[tokio::test]
async fn what_a_program_can_do_decides_what_it_is_asked() {
    let body = format!("{KEEP}\necho 'thread th-1'");
    // One that cannot go on begins anew, with the whole prompt.
    let (mut place, plain, config) = agent("anew", NOTHING, &body);
    place.next_grant(Some("th-1".parse().unwrap()));
    AgentRunner::new(plain, config).run(&place.cx).await;
    let args = read(&place.beside("args"));
    assert!(args.starts_with("new\n\n") && args.contains("# Task anew"), "{args}");
    // One that takes names gets one.
    let can = Capabilities { names_conversation: true, ..NOTHING };
    let (place, plain, config) = agent("named", can, &body);
    AgentRunner::new(plain, config).run(&place.cx).await;
    let args = read(&place.beside("args"));
    assert_eq!((args.lines().next(), args.lines().nth(1).map(str::len)), (Some("named"), Some(36)));
}

#[tokio::test]
async fn limits_of_money_and_turns_are_kept_for_a_program_that_keeps_none() {
    let spends = "for n in 1 2 3 4 5 6 7 8 9; do echo 'tokens 100000'; done; sleep 3333";
    let turns = "for n in 1 2 3 4 5 6 7 8 9; do echo turn; done; sleep 3333";
    for (task, body, limit) in [("spends", spends, "limit of money"), ("turns", turns, "of turns")]
    {
        let (place, plain, mut config) = agent(task, NOTHING, body);
        // One dollar is reserved, half of it is for the turn under way.
        assert_eq!(config.budget_of(place.cx.stage.cap), Usd(500_000));
        config.turns_max = NonZeroU32::MIN.saturating_add(7);
        let end = AgentRunner::new(plain, config).run(&place.cx).await;
        let Outcome::Rejected { feedback, .. } = end.outcome else { panic!("{:?}", end.outcome) };
        assert!(feedback.contains(limit), "{feedback}");
        let Cost::AtLeast(spent) = end.cost else { panic!("{:?}", end.cost) };
        assert_eq!(spent >= Usd(500_000), task == "spends", "{spent}");
        assert!(spent <= place.cx.stage.cap && place.processes().is_empty(), "{spent}");
    }
    // One that keeps them by itself is left to it.
    let can = Capabilities { budget: true, turns_max: true, ..NOTHING };
    let (place, plain, mut config) =
        agent("keeps", can, "echo turn; echo turn; echo 'tokens 900000'");
    config.turns_max = NonZeroU32::MIN;
    let end = AgentRunner::new(plain, config).run(&place.cx).await;
    assert_eq!((end.outcome, end.cost), (Outcome::Passed, Cost::Known(Usd(900_000))));
}

#[tokio::test]
async fn without_prices_nobody_knows_what_tokens_cost() {
    let (place, plain, mut config) = agent("unpriced", NOTHING, "echo 'tokens 100000'");
    config.prices = Prices::default();
    let end = AgentRunner::new(plain, config).run(&place.cx).await;
    assert_eq!((end.outcome, end.cost), (Outcome::Passed, Cost::AtLeast(Usd::ZERO)));
}

#[tokio::test]
async fn an_account_that_is_closed_for_nobody_knows_how_long_is_tried_again_later() {
    let (place, plain, mut config) = agent("closed", NOTHING, "echo x >> ../starts; echo closed");
    let account = Account::at(place.beside("account.json"));
    config.account = Some(account);
    let runner = AgentRunner::new(plain, config);
    for _ in 0..2 {
        let end = runner.run(&place.cx).await;
        let Outcome::Interrupted { reason, retry_at: Some(_) } = end.outcome else {
            panic!("{:?}", end.outcome)
        };
        assert_eq!(reason, Interruption::UsageLimit);
    }
    assert_eq!(read(&place.beside("starts")), "x\n");
}

#[tokio::test]
async fn its_set_up_is_checked_like_any_other() {
    let body = "case $1 in version) echo 'plain, release 1.3';; *) echo 'version 1.3';; esac";
    let (place, plain, mut config) = agent("check", NOTHING, body);
    config.prices = Prices::default();
    let task = place.cx.task.as_ref().clone();
    let runner = AgentRunner::new(plain, config);
    let checked = runner.check(&[task], &place.cx.workspace.path).await.unwrap();
    let version = checked.version.clone();
    let expected = [SetupWarning::UnknownVersion { version }, SetupWarning::NothingPriced];
    assert_eq!((checked.version.as_str(), checked.warnings.as_slice()), ("1.3", &expected[..]));
    // It is noticed while it runs, too.
    runner.run(&place.cx).await;
    let said = place.said.lock().unwrap();
    let noticed = |it: &ActivityKind| matches!(it, ActivityKind::Said(text) if text.starts_with("version 1.3 is not known"));
    assert_eq!(said.iter().filter(|it| noticed(it)).count(), 1, "{said:?}");
}
