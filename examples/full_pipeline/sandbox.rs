//! Where agents and verify commands may write and connect to.

use std::ffi::OsStr;
use std::path::PathBuf;

use clap::Args;
use orchestrator_process::{Confinement, Sandbox, SandboxMode};

use super::options::whole;

/// Of the command line, what is about the sandbox.
#[derive(Debug, Args)]
pub(crate) struct InSandbox {
    /// Whether agents and verify commands run in a sandbox, in which they write to their worktree
    /// only: `require`, `prefer` (what this machine can do) or `off`.
    #[arg(long, value_name = "MODE", default_value = "off")]
    sandbox: SandboxMode,
    /// A directory or file that they may write to as well; give it once for each.
    #[arg(long, value_name = "PATH", requires = "sandbox")]
    sandbox_write: Vec<PathBuf>,
    /// A port that they may connect to by TCP, and then to no other; give it once for each.
    #[arg(long, value_name = "PORT", requires = "sandbox")]
    sandbox_tcp: Vec<u16>,
}

impl InSandbox {
    /// What it comes to for one program.
    pub(crate) fn confinement(&self) -> Confinement {
        let mut sandbox = Sandbox::new(self.sandbox);
        for path in &self.sandbox_write {
            sandbox = sandbox.with_write(path);
        }
        if !self.sandbox_tcp.is_empty() {
            sandbox = sandbox.with_tcp_only(self.sandbox_tcp.iter().copied());
        }
        Confinement::none().with_sandbox(sandbox)
    }

    /// Says the same again.
    pub(crate) fn again(&self, put: &mut impl FnMut(&str, &OsStr)) {
        let mode = match self.sandbox {
            SandboxMode::Require => "require",
            SandboxMode::Prefer => "prefer",
            SandboxMode::Off => return,
        };
        put("--sandbox", mode.as_ref());
        self.sandbox_write.iter().for_each(|path| put("--sandbox-write", whole(path).as_os_str()));
        self.sandbox_tcp.iter().for_each(|port| put("--sandbox-tcp", port.to_string().as_ref()));
    }
}
