//! What a program finds in its environment: nothing but what was put there.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;

use orchestrator_core::Mask;

/// Variables that tools need to find themselves and their files.
const TOOLS: &[&str] = &[
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "GOPATH",
    "GOCACHE",
    "JAVA_HOME",
    "NVM_DIR",
    "PYENV_ROOT",
    "VIRTUAL_ENV",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];

/// An environment: it starts empty and holds what is set, and what is passed on from this process.
///
/// Its values are not shown by `Debug`, since some may be secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment {
    values: BTreeMap<OsString, OsString>,
}

impl Environment {
    /// Nothing at all.
    #[must_use]
    pub fn empty() -> Self {
        Self::default()
    }

    /// What build tools and test programs commonly need, as this process has it: `PATH`, `HOME`,
    /// `LANG`, `TMPDIR`, `CARGO_HOME`, `RUSTUP_HOME` and their kin; no credentials.
    #[must_use]
    pub fn tools() -> Self {
        Self::empty().passing(TOOLS.iter().copied())
    }

    /// With these variables as this process has them; one that it does not have is left out.
    #[must_use]
    pub fn passing<N: AsRef<OsStr>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        for name in names {
            if let Some(value) = std::env::var_os(name.as_ref()) {
                self.set(name.as_ref(), value);
            }
        }
        self
    }

    /// With this variable set.
    #[must_use]
    pub fn with(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.set(name, value);
        self
    }

    /// Sets this variable.
    pub fn set(&mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) {
        self.values.insert(name.as_ref().to_owned(), value.as_ref().to_owned());
    }

    /// The value of a variable.
    #[must_use]
    pub fn get(&self, name: impl AsRef<OsStr>) -> Option<&OsStr> {
        self.values.get(name.as_ref()).map(OsString::as_os_str)
    }

    /// Keeps the values of these variables secret, beside all that looks like a key.
    #[must_use]
    pub fn mask<N: AsRef<OsStr>>(&self, secret: impl IntoIterator<Item = N>) -> Mask {
        let values =
            secret.into_iter().filter_map(|name| self.get(name)?.to_str().map(str::to_owned));
        values.fold(Mask::keys(), Mask::with_value)
    }

    /// The variables, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.values.iter().map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.values.keys()).finish()
    }
}
