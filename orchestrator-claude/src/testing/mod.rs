//! A scripted stand-in for the Messages API on the loopback device, for tests with the real program.
//!
//! [`LoopbackApi`] answers what `claude` asks by rules, so that a whole set-up (program, settings,
//! permissions, templates, review) is tried without an account and without money. It speaks as much
//! of the API as the program needs: streamed and plain answers, errors with the API's own bodies,
//! headers, answers that never come.
//!
//! ```no_run
//! use orchestrator_claude::testing::{LoopbackApi, Reply, Rule};
//! use serde_json::json;
//!
//! # fn main() -> std::io::Result<()> {
//! let write = json!({ "file_path": "${cwd}/hello.txt", "content": "hello\n" });
//! let api = LoopbackApi::start(vec![
//!     Rule::new(Reply::tool("Write", write)).user("task-7").turn(0),
//!     Rule::new(Reply::text("Done.")).user("task-7"),
//!     Rule::new(Reply::structured(json!({ "verdict": "APPROVE", "findings": [] })))
//!         .tool("StructuredOutput"),
//! ])?;
//! // Start `claude` with ANTHROPIC_BASE_URL = api.base_url() and ANTHROPIC_API_KEY = anything.
//! # drop(api);
//! # Ok(())
//! # }
//! ```
//!
//! The first rule whose conditions hold answers; when none does, the answer is a status 400, which
//! the program does not try again. Requests without tools (titles, summaries) get a word in answer
//! and count for no rule. In texts of a rule `${cwd}` stands for the working directory that the
//! program names in its prompt, and `${now}` and `${now+3600}` for the time in seconds since 1970.
//!
//! The same is there as a program, with rules from a file ([`Rule::parse_all`]):
//! `cargo run -p orchestrator-claude --features testing --example loopback_api -- --help`.

mod asked;
mod document;
mod http;
mod messages;
mod rules;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use self::asked::Asked;
pub use self::document::InvalidRules;
use self::rules::Fault;
pub use self::rules::{Reply, Rule};

/// How often a connection that is to hang looks whether it may end.
const HANG_CHECK: Duration = Duration::from_millis(20);

/// A Messages API on the loopback device; ends when it is dropped.
#[derive(Debug)]
pub struct LoopbackApi {
    address: SocketAddr,
    shared: Arc<Shared>,
}

/// A request that was answered by a rule, or by none.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The place of the rule that answered.
    pub rule: Option<usize>,
    /// How many answers of the model the conversation held.
    pub turn: usize,
    /// The tools that were offered.
    pub tools: Vec<String>,
    /// The whole body.
    pub body: Value,
}

#[derive(Debug)]
struct Shared {
    rules: Mutex<Vec<Rule>>,
    requests: Mutex<Vec<Request>>,
    asked: Condvar,
    is_over: AtomicBool,
}

impl LoopbackApi {
    /// Listens on a free port.
    ///
    /// # Errors
    /// When the loopback device gives no port.
    pub fn start(rules: Vec<Rule>) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            rules: Mutex::new(rules),
            requests: Mutex::new(Vec::new()),
            asked: Condvar::new(),
            is_over: AtomicBool::new(false),
        });
        let for_thread = Arc::clone(&shared);
        thread::Builder::new()
            .name("loopback-api".to_owned())
            .spawn(move || for_thread.accept(&listener))?;
        Ok(Self { address, shared })
    }

    /// The address, for `ANTHROPIC_BASE_URL`.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Waits until there are more requests than `seen`, or until `timeout`, and gives all of them.
    #[must_use]
    pub fn wait_for_more(&self, seen: usize, timeout: Duration) -> Vec<Request> {
        let requests = self.shared.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self
            .shared
            .asked
            .wait_timeout_while(requests, timeout, |requests| requests.len() <= seen);
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// The requests with tools so far, in the order in which they came.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for LoopbackApi {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        // Wakes the thread that waits for a connection.
        TcpStream::connect(self.address).ok();
    }
}

impl Shared {
    fn accept(self: Arc<Self>, listener: &TcpListener) {
        for stream in listener.incoming() {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            let Ok(stream) = stream else { continue };
            let shared = Arc::clone(&self);
            // A connection that breaks is the business of whoever opened it.
            thread::spawn(move || shared.serve(stream).ok());
        }
    }

    fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        let Some(request) = http::read(&stream)? else { return Ok(()) };
        let path = request.path.split('?').next().unwrap_or_default();
        match (request.method.as_str(), path) {
            ("POST", "/v1/messages") => self.message(&mut stream, &request.body),
            ("POST", "/v1/messages/count_tokens") => {
                http::write_json(&mut stream, 200, &[], &serde_json::json!({ "input_tokens": 100 }))
            }
            ("HEAD", _) => http::write_json(&mut stream, 200, &[], &Value::Null),
            _ => http::write_json(&mut stream, 404, &[], &messages::error(404, "no such page")),
        }
    }

    fn message(&self, stream: &mut TcpStream, body: &[u8]) -> io::Result<()> {
        let Ok(body) = serde_json::from_slice::<Value>(body) else {
            return http::write_json(stream, 400, &[], &messages::error(400, "no JSON"));
        };
        let asked = Asked::read(&body);
        let reply = if asked.tools.is_empty() {
            Some(Reply::text("ok"))
        } else {
            let (rule, reply) = self.choose(&asked).unzip();
            let request = Request { rule, turn: asked.turn, tools: asked.tools.clone(), body };
            self.requests.lock().unwrap_or_else(PoisonError::into_inner).push(request);
            self.asked.notify_all();
            reply
        };
        let reply = reply.unwrap_or_else(|| Reply::error(400).saying("no rule matches"));
        thread::sleep(reply.delay);
        match reply.fault {
            Some(Fault::Hang) => self.hang(stream),
            Some(Fault::Drop) => Ok(()),
            Some(Fault::Stall) => {
                messages::answer(stream, &asked, &reply)?;
                self.hang(stream)
            }
            Some(Fault::Cut) | None => messages::answer(stream, &asked, &reply),
        }
    }

    fn choose(&self, asked: &Asked) -> Option<(usize, Reply)> {
        let mut rules = self.rules.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, rule) = rules.iter_mut().enumerate().find(|(_, rule)| rule.holds(asked))?;
        rule.fired();
        Some((at, rule.reply.clone()))
    }

    /// Answers nothing until the other side gives up or the API ends.
    fn hang(&self, stream: &TcpStream) -> io::Result<()> {
        stream.set_read_timeout(Some(HANG_CHECK))?;
        while !self.is_over.load(Ordering::Relaxed) {
            match stream.peek(&mut [0]) {
                Ok(0) => return Ok(()),
                Ok(_) => thread::park_timeout(HANG_CHECK),
                Err(err) if is_timeout(&err) => {}
                Err(err) => return Err(err),
            }
        }
        Ok(())
    }
}

fn is_timeout(err: &io::Error) -> bool {
    matches!(err.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
