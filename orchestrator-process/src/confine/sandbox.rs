//! Where a program may write and connect to, by Landlock.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, NetPort, PathBeneath,
    PathFd, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, Scope,
};

use super::ConfineError;

/// Where a program may write and connect to. Reading is not restricted.
///
/// With a sandbox it may write to [`Sandbox::write`] and to `/dev/null` and its kin, connect by TCP
/// as [`Sandbox::tcp`] says, and signal nobody outside. It cannot gain rights by a set-user-id
/// program. What it has open, its output files for one, it keeps. UDP and Unix sockets are not
/// restricted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Sandbox {
    /// Whether it must be, may be or is not.
    pub mode: SandboxMode,
    /// Directories, with all that is below, and files that it may write to.
    pub write: Vec<PathBuf>,
    /// Where it may connect to.
    pub tcp: Tcp,
}

/// Whether there is a sandbox.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SandboxMode {
    /// Without one the program is not started.
    Require,
    /// What the machine can do; that it can do less is said in the log.
    Prefer,
    /// There is none.
    #[default]
    Off,
}

/// Ports that a program may connect to by TCP.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Tcp {
    /// Any.
    #[default]
    Any,
    /// These, on any host; none when it is empty.
    Only(Vec<u16>),
}

/// A word that names no mode of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{word}` is none of `require`, `prefer`, `off`")]
pub struct UnknownSandboxMode {
    /// The word.
    pub word: String,
}

impl FromStr for SandboxMode {
    type Err = UnknownSandboxMode;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        match word {
            "require" => Ok(Self::Require),
            "prefer" => Ok(Self::Prefer),
            "off" => Ok(Self::Off),
            _ => Err(UnknownSandboxMode { word: word.to_owned() }),
        }
    }
}

impl Sandbox {
    /// A sandbox in which nothing may be written, and any port connected to.
    #[must_use]
    pub const fn new(mode: SandboxMode) -> Self {
        Self { mode, write: Vec::new(), tcp: Tcp::Any }
    }

    /// In which this directory or file may be written, too.
    #[must_use]
    pub fn with_write(mut self, path: impl AsRef<Path>) -> Self {
        self.write.push(path.as_ref().to_owned());
        self
    }

    /// In which these ports may be connected to, and no others.
    #[must_use]
    pub fn with_tcp_only(mut self, ports: impl IntoIterator<Item = u16>) -> Self {
        self.tcp = Tcp::Only(ports.into_iter().collect());
        self
    }
}

/// The first version that has all that writing can be.
const WRITE: ABI = ABI::V3;
/// The first that has TCP.
const TCP: ABI = ABI::V4;
/// The first that has signals.
const SIGNALS: ABI = ABI::V6;
/// Devices that any program may write to.
const DEVICES: &[&str] =
    &["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// The rules as the kernel takes them; `None` when there is no sandbox, or less than none can be
/// made.
pub(crate) fn rules(sandbox: &Sandbox) -> Result<Option<OwnedFd>, ConfineError> {
    let level = match sandbox.mode {
        SandboxMode::Off => return Ok(None),
        SandboxMode::Prefer => CompatLevel::BestEffort,
        SandboxMode::Require => CompatLevel::HardRequirement,
    };
    let writable: Vec<(PathFd, bool)> =
        sandbox.write.iter().map(|path| open(path)).collect::<Result<_, _>>()?;
    ruleset(sandbox, level, writable)
        .map_err(|err| ConfineError::NoSandbox { why: err.to_string() })
}

fn open(path: &Path) -> Result<(PathFd, bool), ConfineError> {
    let refused = |source| ConfineError::Path { path: path.to_owned(), source };
    let is_dir = std::fs::metadata(path).map_err(refused)?.is_dir();
    let fd = PathFd::new(path).map_err(|err| refused(std::io::Error::other(err)))?;
    Ok((fd, is_dir))
}

fn ruleset(
    sandbox: &Sandbox,
    level: CompatLevel,
    writable: Vec<(PathFd, bool)>,
) -> Result<Option<OwnedFd>, RulesetError> {
    let mut ruleset =
        Ruleset::default().set_compatibility(level).handle_access(AccessFs::from_write(WRITE))?;
    let ports = match &sandbox.tcp {
        Tcp::Any => &[][..],
        Tcp::Only(ports) => {
            ruleset = ruleset.handle_access(AccessNet::ConnectTcp)?;
            ports
        }
    };
    // Kernels before 6.12 have no word for it; what writes and connects is held all the same.
    ruleset = ruleset.set_compatibility(CompatLevel::BestEffort).scope(Scope::Signal)?;
    let mut created = ruleset.set_compatibility(level).create()?;
    let whole = AccessFs::from_write(WRITE);
    let of_file = AccessFs::from_file(WRITE) & whole;
    for (path, is_dir) in writable {
        let access = if is_dir { whole } else { of_file };
        created = created.add_rule(PathBeneath::new(path, access))?;
    }
    for device in DEVICES {
        if let Ok(path) = PathFd::new(device) {
            created = created.add_rule(PathBeneath::new(path, of_file))?;
        }
    }
    for port in ports {
        created = created.add_rule(NetPort::new(*port, AccessNet::ConnectTcp))?;
    }
    Ok(created.into())
}

/// Whether writes, and whether TCP connections, can be kept from a program on this machine.
pub(crate) fn abilities() -> (Result<&'static str, String>, Result<&'static str, String>) {
    let lacks = |least: &str| format!("Landlock is not in this kernel, or older than {least}");
    let hard = || Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let write = hard().handle_access(AccessFs::from_write(WRITE)).and_then(Ruleset::create).is_ok();
    let tcp = hard().handle_access(AccessNet::from_all(TCP)).and_then(Ruleset::create).is_ok();
    let signals = hard().scope(Scope::from_all(SIGNALS)).and_then(Ruleset::create).is_ok();
    let by = if signals { "Landlock (signals too)" } else { "Landlock" };
    (
        write.then_some(by).ok_or_else(|| lacks("version 3 (kernel 6.2)")),
        tcp.then_some("Landlock").ok_or_else(|| lacks("version 4 (kernel 6.7)")),
    )
}
