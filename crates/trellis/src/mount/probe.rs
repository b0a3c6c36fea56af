//! Whether anybody answers for a mount.
//!
//! Whoever asks the kernel that may have to wait for an answer that never comes, and a thread that waits there keeps its
//! process from ending. So a process of its own asks, and is killed when it takes too long. The kernel lets it go where
//! no server has begun with the question, a server of ours where it has (`frontend::fuse::call`).

use super::shown;
use home::io_text;
use rustix::fs::{AtFlags, StatxFlags};
use rustix::io::Errno;
use std::ffi::OsString;
use std::path::Path;
use std::process::{ExitCode, Stdio};
use std::time::Duration;
use tokio::process::Command;

/// How the process is called; its one argument is the mount.
const NAME: &str = "mount-probe";

/// What is known of a mount's server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Server {
    /// It answers.
    Alive,
    /// It has gone.
    Gone,
    /// It has not answered in time.
    Silent,
}

/// Asks for the mount at a directory, whose path has no symbolic links.
pub async fn ask(dir: &Path, patience: Duration) -> Result<Server, String> {
    let mut command = Command::new(super::PROGRAM);
    command.arg0(NAME).arg(dir);
    match answer(command, patience).await {
        Ok(Some(0)) => Ok(Server::Alive),
        Ok(Some(code)) => match Errno::from_raw_os_error(code) {
            Errno::NOTCONN | Errno::CONNABORTED => Ok(Server::Gone),
            e => Err(format!("{}: {}", shown(dir), std::io::Error::from(e))),
        },
        Ok(None) => Ok(Server::Silent),
        Err(e) => Err(format!("{}: {e}", shown(dir), e = io_text(&e))),
    }
}

/// The exit code of a process; `None` where it had to be killed.
async fn answer(mut command: Command, patience: Duration) -> std::io::Result<Option<i32>> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let mut child = command.spawn()?;
    match tokio::time::timeout(patience, child.wait()).await {
        Ok(status) => Ok(status?.code()),
        Err(_) => Ok(None),
    }
}

/// The mount that the arguments of such a process name.
pub fn wanted(args: &[OsString]) -> Option<&Path> {
    match args {
        [name, dir] if name == NAME => Some(Path::new(dir)),
        _ => None,
    }
}

/// What the process does: the error number is its exit code.
pub fn run(dir: &Path) -> ExitCode {
    // Else the kernel answers from what it knows for a second after the server has gone.
    let asks = AtFlags::STATX_FORCE_SYNC;
    match rustix::fs::statx(rustix::fs::CWD, dir, asks, StatxFlags::BASIC_STATS) {
        Ok(_) => ExitCode::SUCCESS,
        Err(e) => ExitCode::from(u8::try_from(e.raw_os_error()).unwrap_or(u8::MAX)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nobody_waits_for_ever_and_who_asked_is_gone() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("pid");
        let mut never = Command::new("sh");
        never.arg("-c").arg("echo $$ > \"$1\"; exec sleep 3600").arg("sh").arg(&file);
        assert_eq!(answer(never, Duration::from_millis(500)).await.unwrap(), None);
        let process = format!("/proc/{}", std::fs::read_to_string(file).unwrap().trim());
        while Path::new(&process).exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let mut fails = Command::new("sh");
        fails.arg("-c").arg("exit 107");
        assert_eq!(answer(fails, Duration::from_secs(60)).await.unwrap(), Some(107));
    }

    #[test]
    fn what_is_asked_answers_with_an_error_number() {
        assert_eq!(run(Path::new("/")), ExitCode::SUCCESS);
        assert_eq!(run(Path::new("/no such place")), ExitCode::from(2));
        let args = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        assert_eq!(wanted(&args(&["mount-probe", "/x"])), Some(Path::new("/x")));
        assert_eq!(wanted(&args(&["trellis", "mount-probe"])), None);
    }
}
