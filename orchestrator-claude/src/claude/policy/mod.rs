//! What an agent may do, as typed values that become the program's settings.
//!
//! The program drops settings that it does not understand without a word, so they are never built
//! from text that somebody wrote. The deny list and the guard stop slips, not an opponent: what
//! really protects is a worktree without credentials and a sandbox around the program.

use std::fmt;
use std::path::Path;

use serde_json::{Value, json};

/// Looks at each shell command before it runs, and stops what the deny list lets through in another
/// spelling (`git -C . push`, `sh -c 'git push'`, `rm -r -f`).
///
/// It is a file of its own, since the program quotes a hook's command to the agent when it blocks.
pub(crate) const GUARD: &str = include_str!("guard.sh");

/// What an agent may do.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Policy {
    /// What needs no permission.
    pub permissions: Permissions,
    /// What is denied in any case.
    pub deny: Vec<Rule>,
    /// Whether each shell command is looked at before it runs.
    pub guard: bool,
}

/// What needs no permission; since nobody is there to give it, all else is denied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Permissions {
    /// Changing files below the working directory, reading there, and what is listed. The task's
    /// verify command is added to the list.
    Edits {
        /// What else.
        allow: Vec<Rule>,
    },
    /// Only what is listed.
    Listed {
        /// What.
        allow: Vec<Rule>,
    },
    /// Everything that is not denied, for a container or machine that holds nothing of worth but the
    /// work. The program refuses this to root unless it is told that it is in such a place, so that
    /// choosing this says so.
    Sandboxed,
}

/// A use of a tool that is allowed or denied.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rule(String);

/// A text that cannot be part of a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` cannot stand in a rule: it is empty, or holds a bracket, a control character, or what is no part of a name or command", .text.escape_debug())]
pub struct InvalidRule {
    /// The text.
    pub text: String,
}

impl Rule {
    /// Every use of a tool: `WebFetch`.
    ///
    /// # Errors
    /// [`InvalidRule`] when the name is none.
    pub fn tool(name: &str) -> Result<Self, InvalidRule> {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '*');
        if name.is_empty() || !name.chars().all(is_part) {
            return Err(InvalidRule { text: name.to_owned() });
        }
        Ok(Self(name.to_owned()))
    }

    /// Shell commands that begin with these words: `git push`. What follows them is any, so there
    /// is no need of a pattern, and a rule with one in it may match nothing.
    ///
    /// # Errors
    /// [`InvalidRule`] when the words cannot stand in a rule, or hold a `*`.
    pub fn command(words: &str) -> Result<Self, InvalidRule> {
        literal(words).map(|words| Self(format!("Bash({words}:*)")))
    }

    /// This shell command and no other.
    ///
    /// # Errors
    /// [`InvalidRule`] when the command cannot stand in a rule.
    pub fn exact_command(command: &str) -> Result<Self, InvalidRule> {
        literal(command).map(|command| Self(format!("Bash({command})")))
    }

    /// Reading files that match a pattern, relative to the working directory: `./secrets/**`.
    ///
    /// # Errors
    /// [`InvalidRule`] when the pattern cannot stand in a rule.
    pub fn read(pattern: &str) -> Result<Self, InvalidRule> {
        checked(pattern).map(|pattern| Self(format!("Read({pattern})")))
    }

    /// Changing files that match a pattern, relative to the working directory.
    ///
    /// # Errors
    /// [`InvalidRule`] when the pattern cannot stand in a rule.
    pub fn edit(pattern: &str) -> Result<Self, InvalidRule> {
        checked(pattern).map(|pattern| Self(format!("Edit({pattern})")))
    }

    /// The rule as the program reads it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn checked(text: &str) -> Result<&str, InvalidRule> {
    let fits = !text.trim().is_empty()
        && !text.contains(|c: char| c.is_control() || matches!(c, '(' | ')' | '[' | ']'));
    if fits { Ok(text) } else { Err(InvalidRule { text: text.to_owned() }) }
}

/// A text that is no pattern.
fn literal(text: &str) -> Result<&str, InvalidRule> {
    checked(text).and_then(|text| {
        let is_pattern = text.contains('*');
        if is_pattern { Err(InvalidRule { text: text.to_owned() }) } else { Ok(text.trim()) }
    })
}

/// Shell commands that are denied by default.
const DENIED_COMMANDS: &[&str] = &[
    "rm -rf",
    "rm -fr",
    "git push",
    "git commit",
    "git remote",
    "sudo",
    "su",
    "curl",
    "wget",
    "nc",
    "ncat",
    "telnet",
    "ftp",
    "sftp",
    "ssh",
    "scp",
    "rsync",
];
/// Tools that are denied by default.
const DENIED_TOOLS: &[&str] = &["WebFetch", "WebSearch"];
/// Tools that are of no use where nobody is there and a run ends with its final line: what they start
/// goes on after it, and would be cut off there; or they move the work into another tree.
const NEVER_FIT: &[&str] =
    &["CronCreate", "EnterWorktree", "Monitor", "ScheduleWakeup", "Workflow"];

/// What the program asks in the place of making a worktree. Those that it makes, for agents of the
/// agent, are in the repository under work, and what is done there is no part of the change.
const NO_WORKTREE: &str = "echo 'no worktree is made here: work in this directory' >&2; exit 1";

impl Default for Policy {
    /// Changes below the working directory only; no network tools, no `rm -rf`, no commit or push;
    /// each shell command is looked at.
    fn default() -> Self {
        let commands = DENIED_COMMANDS.iter().map(|words| Rule(format!("Bash({words}:*)")));
        let tools = DENIED_TOOLS.iter().map(|&name| Rule(name.to_owned()));
        Self {
            permissions: Permissions::Edits { allow: Vec::new() },
            deny: commands.chain(tools).collect(),
            guard: true,
        }
    }
}

impl Policy {
    /// The default policy in a sandbox: see [`Permissions::Sandboxed`].
    #[must_use]
    pub fn sandboxed() -> Self {
        Self { permissions: Permissions::Sandboxed, ..Self::default() }
    }

    /// What a reviewer gets: it reads, and its tools can do nothing else.
    #[must_use]
    pub(crate) fn reviewer() -> Self {
        let permissions = Permissions::Listed { allow: Vec::new() };
        Self { permissions, guard: false, ..Self::default() }
    }

    /// The name of the program's permission mode.
    pub(crate) const fn mode(&self) -> &'static str {
        match self.permissions {
            Permissions::Edits { .. } => "acceptEdits",
            Permissions::Listed { .. } => "dontAsk",
            Permissions::Sandboxed => "bypassPermissions",
        }
    }

    /// The program's settings, with one more command that is allowed, and the guard in this file.
    pub(crate) fn settings(&self, verify: Option<&str>, guard: &Path) -> Value {
        let own = self.deny.iter().map(Rule::as_str);
        let deny: Vec<&str> = own.chain(NEVER_FIT.iter().copied()).collect();
        let mut allow: Vec<String> = match &self.permissions {
            Permissions::Edits { allow } | Permissions::Listed { allow } => {
                allow.iter().map(Rule::to_string).collect()
            }
            Permissions::Sandboxed => Vec::new(),
        };
        if let (Permissions::Edits { .. }, Some(verify)) = (&self.permissions, verify) {
            // One that cannot stand in a rule is left out: the agent may not run it then.
            allow.extend(Rule::exact_command(verify).ok().map(|rule| rule.to_string()));
        }
        let mut settings = json!({ "permissions": { "allow": allow, "deny": deny } });
        // Else the agent may switch hooks off, by a file in its own configuration directory.
        settings["disableAllHooks"] = json!(false);
        let hook = json!({ "type": "command", "command": NO_WORKTREE, "timeout": 10 });
        settings["hooks"] = json!({ "WorktreeCreate": [{ "hooks": [hook] }] });
        if self.guard {
            // A hook that ends in any other way than with 2 blocks nothing: one that is gone, say.
            let command = format!("/bin/sh {} || exit 2", quoted(&guard.to_string_lossy()));
            let hook = json!({ "type": "command", "command": command, "timeout": 10 });
            settings["hooks"]["PreToolUse"] = json!([{ "matcher": "Bash", "hooks": [hook] }]);
        }
        settings
    }
}

/// A text as one word of a shell command.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn the_settings_of_the_default_policy_are_these() {
        let guard = Path::new("/it's here/guard.sh");
        let settings = Policy::default().settings(Some("cargo test -p http"), guard);
        insta::assert_json_snapshot!(settings);
        assert_eq!(Policy::sandboxed().mode(), "bypassPermissions");
    }

    #[test]
    fn a_text_that_would_end_a_rule_early_is_refused() {
        for bad in ["", " ", "git push) Bash(ls", "a\nb", "x]"] {
            assert!(Rule::command(bad).is_err() && Rule::tool(bad).is_err(), "{bad}");
        }
        // The program would drop each of these without a word, or match nothing by it.
        assert!(Rule::command("git push:*").is_err());
        assert!(Rule::tool("Bash, Write").is_err() && Rule::tool("Bash ").is_err());
        assert_eq!(Rule::command(" git push ").unwrap().as_str(), "Bash(git push:*)");
        assert_eq!(Rule::tool("mcp__git__push").unwrap().as_str(), "mcp__git__push");
        // A verify command that cannot stand in a rule is left out rather than widened.
        let settings = Policy::default().settings(Some("(cd x && make *)"), Path::new("g"));
        assert_eq!(settings["permissions"]["allow"], json!([]));
        assert!(Rule::exact_command("make *").is_err());
    }

    fn guard(command: &str) -> Option<i32> {
        let mut child = Command::new("/bin/sh")
            // The program waits 10 s for it, which are seconds of a processor where it has one.
            .args(["-c", "ulimit -t 10; exec /bin/sh -c \"$0\"", GUARD])
            .stdin(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let call = json!({
            "session_id": "s",
            "cwd": "/tmp/work",
            "hook_event_name": "PreToolUse",
            "tool_name": "Bash",
            "tool_input": { "command": command, "description": "see whether to git push or rm -rf" },
        });
        child.stdin.take().unwrap().write_all(call.to_string().as_bytes()).unwrap();
        child.wait().unwrap().code()
    }

    const STOPPED: &[&str] = &[
        "git push",
        "git -C . push origin main",
        "git --git-dir=.git push",
        "sh -c 'git push'",
        "bash -c \"git push\"",
        "cd x && git\tpush",
        "true;git push",
        "echo a\ngit push --force",
        "git \"push\"",
        "rm -rf target",
        "rm -r -f target",
        "rm -f a -R b",
        "rm --recursive --force x",
        "sh -c 'rm -fr x'",
        "echo a\nrm -rf x",
        "g\\it pu\\sh",
        "git pu''sh",
        "\"git\" push",
        "/usr/bin/git push",
        "env X=1 git push",
        "command git -c a=b push",
        "bash -lc 'cd x && git -C y push'",
        "eval \"git push\"",
        "xargs git push < x",
        "$(git push)",
        "git send-pack origin",
        "\\rm -rf x",
        "/bin/rm -fR x",
        "rm x -r y -f",
        "rm '-rf' x",
        "find . -name x -exec rm -rf {} +",
        "find src -name '*.rs' -delete",
        "find -delete",
        "find src \\\n -type f \\\n -delete",
        "git \\\n -C . \\\n push origin main",
        "git pu\\\nsh",
        "git -c http.extraHeader='A: b; c' push",
        "git -c credential.helper='!f() { echo x; }; f' push",
        "git -c alias.p=push p",
        "git --config-env=Alias.p=P p",
        "git config alias.p push",
        "git 2>&1 push",
        "git 2> 'a b' push",
        "git -C $(git rev-parse --show-toplevel) push",
        "git -C `pwd` push",
        "git $'push'",
        "git subtree push origin main",
        "rm -r \\\n -f keep",
        "rm -r 'no;such' -f keep",
        "rm --recursive --forc keep",
        "rm -r x >/dev/null 2>&1 -f",
        "rm -{r,f} x",
        "eval git 'push'",
        "echo \"$(cd a; git \"-C\" . push)\"",
        "sh <<'E O F'\nit's\nE O F\ngit -C 'a;b' push",
        "sh <<-E; echo it\n\tgit push\n\tE",
        "echo it # isn't\ngit -C 'a;b' push",
        "python3 -c \"import os; os.system('git push')\"",
        "bash -c $'git\\x20push'",
        "bash -c $'\\147it \\u0070ush'",
        "GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=alias.p GIT_CONFIG_VALUE_0=push git p",
        "cat <<'E' | sh\ngit push\nE",
        "cat <<'E' > x\ngit push\nE\nsh x",
        "cat <<E\n$(git push) `x`\nE",
        "cat <<-'E'\n\tx\n\tE\ngit push",
        "echo 'git push' | sh",
        "X=1 sh -c 'git push'",
        "git submodule foreach 'git -C . push'",
        "/tmp/cat 'git push'",
    ];
    const LET_THROUGH: &[&str] = &[
        "cargo test",
        "git status",
        "git diff | grep push_back",
        "git log; echo push",
        "rm a.txt",
        "rm -f a.txt",
        "rm -r dir",
        "grep -rf patterns src",
        "cargo run -- pushes",
        "npm run format -rf",
        "git status --short # nothing to pu-sh",
        "find . -name delete",
        "cat src/push.rs; git diff src/push.rs",
        "cargo test perform -- -r",
        "git log --grep push",
        "git stash push",
        "git show HEAD:push",
        "rm -r x; rm -f y",
        "rm -r x 2>&1 | grep -f y",
        "rm -- -rf",
        "find . -name '*.o' -exec rm -f {} \\; -print",
        "git commit-graph write # and no git push",
        "echo $((1 + 2)) ${x:-y} 'it''s' \"a \\\" b\"",
        "cat <<'E' > notes\ndon't (\nE\ngit status",
        "cat <<'E' > run.sh && ls\nrm -rf \"$TMP\"\nE",
        "tee notes <<E\nRun \\`git push\\` to publish.\nE",
        "grep -rn 'git push' docs | head -3",
        "if grep -q 'rm -rf' x; then echo \"it has 'rm -rf'\"; fi",
        "git commit -m 'no rm -rf any more'",
        "git rm -r -f --cached x",
        "echo $'\\e[31mred\\x1b[0m'",
    ];

    #[test]
    fn the_guard_stops_what_the_deny_list_lets_through() {
        for bad in STOPPED {
            assert_eq!(guard(bad), Some(2), "{bad}");
        }
        for good in LET_THROUGH {
            assert_eq!(guard(good), Some(0), "{good}");
        }
    }

    #[test]
    fn a_guard_that_is_gone_blocks_every_command_whatever_the_shell_says_of_it() {
        let settings = Policy::default().settings(None, Path::new("/no/such/guard.sh"));
        let hook = settings["hooks"]["PreToolUse"][0]["hooks"][0]["command"].as_str().unwrap();
        // As in a shell that says 127 of a script that is not there.
        let hook = hook.replace("/bin/sh", "false");
        let status = Command::new("/bin/sh").args(["-c", &hook]).status().unwrap();
        assert_eq!(status.code(), Some(2), "{hook}");
    }

    #[test]
    fn p16_the_guard_looks_at_a_command_in_bounded_time_or_blocks_it() {
        for (part, count, code) in [
            ("echo 'a b' \"c d\" e;\n", 3_000, 0),
            ("$(", 60_000, 2),
            ("\"$(", 60_000, 2),
            ("{a,b}", 64, 2),
            ("rm ", 50_000, 2),
            ("eval \"", 20_000, 2),
            ("x", 4_000_000, 2),
        ] {
            assert_eq!(guard(&part.repeat(count)), Some(code), "{part}");
        }
        assert_eq!(guard(&format!("{}; git -C . push", "true;".repeat(10_000))), Some(2));
    }
}
