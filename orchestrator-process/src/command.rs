//! Turning a program into what the system executes, so that each fault has its name.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr};
use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use crate::error::SpawnError;
use crate::launch::{Image, beyond_first};
use crate::marks::{Marker, StartMark};
use crate::program::{Program, Stdin};

/// Where the output goes.
#[derive(Debug)]
pub(crate) enum Output {
    /// To the files that the program names.
    Files,
    /// Into pipes, which the caller reads.
    Pipes,
}

/// Makes what is executed, with all files open; says what the program is called in messages.
pub(crate) fn command(
    program: &Program,
    mark: &StartMark,
    output: &Output,
) -> Result<(Image, Option<Pipes>, String), SpawnError> {
    let name = program.program.to_string_lossy().into_owned();
    if let Some(cwd) = &program.cwd {
        check_directory(cwd).map_err(|source| SpawnError::Directory {
            program: name.clone(),
            cwd: cwd.clone(),
            source,
        })?;
    }
    let path = resolve(program, &name)?;
    let text = |text: &OsStr| {
        CString::new(text.as_bytes()).map_err(|_| SpawnError::Argument { program: name.clone() })
    };
    let args = std::iter::once(&program.program).chain(&program.args);
    let args = args.map(|arg| text(arg)).collect::<Result<_, _>>()?;
    let environment = environment(program, mark, &name)?;
    let cwd = program.cwd.as_ref().map(|cwd| text(cwd.as_os_str())).transpose()?;
    let (outputs, pipes) = outputs(program, output, &name)?;
    let input = stdin(program, &name)?;
    let refused = |err| SpawnError::from_spawn(&name, err);
    let [out, err] = outputs;
    let files = [
        beyond_first(input).map_err(refused)?,
        beyond_first(out).map_err(refused)?,
        beyond_first(err).map_err(refused)?,
    ];
    // One without a `/` would be looked for once more.
    let path = text(Path::new(".").join(path).as_os_str())?;
    Ok((Image { path, args, environment, cwd, files }, pipes, name))
}

/// The variables, each as `NAME=value`.
fn environment(
    program: &Program,
    mark: &StartMark,
    name: &str,
) -> Result<Vec<CString>, SpawnError> {
    let lease = program.marker.as_ref().map(|marker| (Marker::NAME, marker.as_str()));
    let marks = std::iter::once((StartMark::NAME, mark.as_str())).chain(lease);
    let mut values: BTreeMap<&OsStr, &OsStr> = program.environment.iter().collect();
    values.extend(marks.map(|(name, value)| (OsStr::new(name), OsStr::new(value))));
    let refused = || SpawnError::Argument { program: name.to_owned() };
    let entry = |(name, value): (&OsStr, &OsStr)| {
        let (name, value) = (name.as_bytes(), value.as_bytes());
        if name.is_empty() || name.contains(&b'=') {
            return Err(refused());
        }
        CString::new([name, b"=", value].concat()).map_err(|_| refused())
    };
    values.into_iter().map(entry).collect()
}

/// The ends of the pipes that this process reads: of output and errors.
pub(crate) type Pipes = [OwnedFd; 2];

/// What the program writes its output and its errors to.
fn outputs(
    program: &Program,
    output: &Output,
    name: &str,
) -> Result<([OwnedFd; 2], Option<Pipes>), SpawnError> {
    match output {
        Output::Pipes => {
            let pipe = || io::pipe().map_err(|err| SpawnError::from_spawn(name, err));
            let ((out_of, out), (err_of, err)) = (pipe()?, pipe()?);
            Ok(([out.into(), err.into()], Some([out_of.into(), err_of.into()])))
        }
        Output::Files => {
            for file in [&program.stdout, &program.stderr].into_iter().flatten() {
                make_parent(file).map_err(|err| SpawnError::from_file(name, file, err))?;
            }
            let out = append(program.stdout.as_deref(), name)?;
            Ok(([out, append(program.stderr.as_deref(), name)?], None))
        }
    }
}

fn check_directory(dir: &Path) -> io::Result<()> {
    if std::fs::metadata(dir)?.is_dir() {
        Ok(rustix::fs::access(dir, rustix::fs::Access::EXEC_OK)?)
    } else {
        Err(io::Error::from(io::ErrorKind::NotADirectory))
    }
}

fn make_parent(file: &Path) -> io::Result<()> {
    file.parent().map_or(Ok(()), std::fs::create_dir_all)
}

fn stdin(program: &Program, name: &str) -> Result<OwnedFd, SpawnError> {
    let refused = |path: &Path, err| SpawnError::from_file(name, path, err);
    match &program.stdin {
        Stdin::Closed => nothing(File::options().read(true), name),
        Stdin::File(path) => Ok(input(path).map_err(|err| refused(path, err))?.into()),
        Stdin::Bytes(bytes) => {
            let file =
                memory_file(bytes).map_err(|err| refused(Path::new("a file in memory"), err))?;
            Ok(file.into())
        }
    }
}

fn nothing(options: &OpenOptions, name: &str) -> Result<OwnedFd, SpawnError> {
    let nothing = Path::new("/dev/null");
    let file = options.open(nothing).map_err(|err| SpawnError::from_file(name, nothing, err))?;
    Ok(file.into())
}

/// Opens a file to be read by the program; a named pipe has an end only if somebody gives it one.
fn input(path: &Path) -> io::Result<File> {
    // Not waiting at a named pipe for somebody who writes.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    check_kind(&file)?;
    rustix::fs::fcntl_setfl(&file, rustix::fs::OFlags::empty())?;
    Ok(file)
}

/// Whether it is a file, or a device such as `/dev/null`.
pub(crate) fn check_kind(file: &File) -> io::Result<()> {
    let kind = file.metadata()?.file_type();
    if kind.is_file() || kind.is_char_device() {
        return Ok(());
    }
    Err(io::Error::other("it is no regular file"))
}

/// A file in memory that holds these bytes: unlike a pipe it needs nobody to feed it.
fn memory_file(bytes: &[u8]) -> io::Result<File> {
    let fd = rustix::fs::memfd_create("stdin", rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut file = File::from(fd);
    file.write_all(bytes)?;
    file.rewind()?;
    Ok(file)
}

fn append(path: Option<&Path>, name: &str) -> Result<OwnedFd, SpawnError> {
    let Some(path) = path else { return nothing(File::options().write(true), name) };
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
        .map_err(|err| SpawnError::from_file(name, path, err))?;
    Ok(file.into())
}

/// Where a program that is named without a `/` is looked for when its environment has no `PATH`.
const PATH_DEFAULT: &str = "/usr/local/bin:/usr/bin:/bin";

/// Finds the program as `execvp` would, but says what is wrong where it would not.
fn resolve(program: &Program, name: &str) -> Result<PathBuf, SpawnError> {
    let as_path = Path::new(&program.program);
    // Absolute, since the child is in the other directory already when it looks the path up.
    let base = program.cwd.as_deref().map(std::path::absolute).transpose();
    let base = base.map_err(|err| SpawnError::from_spawn(name, err))?.unwrap_or_default();
    if program.program.as_encoded_bytes().contains(&b'/') {
        let path = base.join(as_path);
        return match std::fs::metadata(&path) {
            Ok(_) => check_executable(path, name),
            Err(_) => Err(SpawnError::NotFound {
                program: name.to_owned(),
                searched: format!("`{}`", path.display()),
            }),
        };
    }
    let search = program.environment.get("PATH").unwrap_or_else(|| PATH_DEFAULT.as_ref());
    let mut refused = None;
    let named = !program.program.is_empty();
    for dir in std::env::split_paths(search).filter(|_| named) {
        let path = base.join(dir).join(as_path);
        if std::fs::metadata(&path).is_ok_and(|meta| meta.is_file()) {
            match check_executable(path, name) {
                Ok(path) => return Ok(path),
                Err(err) => refused = refused.or(Some(err)),
            }
        }
    }
    Err(refused.unwrap_or_else(|| SpawnError::NotFound {
        program: name.to_owned(),
        searched: format!("PATH `{}`", search.to_string_lossy()),
    }))
}

fn check_executable(path: PathBuf, name: &str) -> Result<PathBuf, SpawnError> {
    let refuse = |why| SpawnError::NotExecutable { program: name.to_owned(), why };
    if std::fs::metadata(&path).is_ok_and(|meta| meta.is_dir()) {
        return Err(refuse("it is a directory"));
    }
    match rustix::fs::access(&path, rustix::fs::Access::EXEC_OK) {
        Ok(()) => Ok(path),
        Err(_) => Err(refuse("it lacks the permission: `chmod +x` it")),
    }
}
