//! The setuid helper `fusermount3`, which lets an ordinary user mount FUSE file systems and take them away.
//!
//! It opens `/dev/fuse`, mounts, and sends the descriptor over the unix socket that `_FUSE_COMMFD` names (libfuse,
//! util/fusermount.c); here that socket is its standard input.

use super::{place, shown};
use crate::{limits, show};
use home::io_text;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use std::fs::{File, Permissions};
use std::io::IoSliceMut;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Its name.
const NAME: &str = "fusermount3";
/// Where it is looked for when `PATH` does not lead to it.
const USUAL: [&str; 3] = ["/usr/bin", "/bin", "/usr/local/bin"];
/// No program of another machine gets privileges here, and no file is a device. Only the user himself may come in.
const OPTIONS: &str = "nosuid,nodev,subtype=trellis";

/// How a mount is taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmount {
    /// Only if nobody uses it.
    Idle,
    /// From the tree of directories at once; whoever uses it may go on.
    Lazy,
}

/// The helper's path.
pub fn find() -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain(USUAL.iter().map(PathBuf::from));
    dirs.map(|dir| dir.join(NAME)).find(|p| p.is_file()).ok_or_else(|| {
        format!(
            "{NAME} is missing, without which only root can mount: let the administrator install the package fuse3 \
             (`apt-get install fuse3`, `dnf install fuse3`)"
        )
    })
}

/// Mounts on a directory under the name `source`, in which no comma stands; answers the descriptor over which the
/// kernel speaks FUSE.
pub fn mount(dir: &Path, source: &str) -> Result<OwnedFd, String> {
    let fail = |e: std::io::Error| format!("{NAME}: {}", io_text(&e));
    let _writable = Writable::make(dir).map_err(|e| format!("{}: {e}", shown(dir), e = io_text(&e)))?;
    let (ours, theirs) = UnixStream::pair().map_err(fail)?;
    let mut command = Command::new(find()?);
    command.arg("-o").arg(format!("{OPTIONS},fsname={source}")).arg("--").arg(dir).env("_FUSE_COMMFD", "0");
    command.stdin(OwnedFd::from(theirs)).stdout(Stdio::null()).stderr(Stdio::piped());
    let child = command.spawn().map_err(fail)?;
    // The command holds a copy of the helper's end, and would keep us waiting for it.
    drop(command);
    let device = receive(&ours);
    let output = child.wait_with_output().map_err(fail)?;
    match device {
        Some(device) if output.status.success() => Ok(device),
        _ => {
            let said = String::from_utf8_lossy(&output.stderr);
            Err(format!("{}: {}", shown(dir), place::explained(&show::message(said.trim()))))
        }
    }
}

/// A directory that its owner may not write, but while this lives: the helper mounts on no other. It is the directory
/// below the mount that gets its mode back.
struct Writable {
    dir: File,
    mode: Permissions,
}

impl Writable {
    /// `None` where the owner may write it.
    fn make(dir: &Path) -> std::io::Result<Option<Writable>> {
        let dir = File::open(dir)?;
        let mode = dir.metadata()?.permissions();
        if mode.mode() & 0o200 != 0 {
            return Ok(None);
        }
        dir.set_permissions(Permissions::from_mode(mode.mode() | 0o200))?;
        Ok(Some(Writable { dir, mode }))
    }
}

impl Drop for Writable {
    fn drop(&mut self) {
        // Else it is an ordinary directory.
        let _ = self.dir.set_permissions(self.mode.clone());
    }
}

/// The descriptor that comes with one byte; `None` where the helper ends without.
fn receive(from: &UnixStream) -> Option<OwnedFd> {
    let mut byte = [0];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    rustix::net::recvmsg(from, &mut [IoSliceMut::new(&mut byte)], &mut control, flags).ok()?;
    control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    })
}

/// Takes a mount away.
pub async fn unmount(dir: &Path, how: Unmount) -> Result<(), String> {
    let mut command = tokio::process::Command::new(find()?);
    command.arg("-u").args((how == Unmount::Lazy).then_some("-z")).arg("--").arg(dir);
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(limits::UNMOUNT, command.output());
    let output = output.await.map_err(|_| format!("{}: {NAME} does not end", shown(dir)))?;
    let output = output.map_err(|e| format!("{NAME}: {}", io_text(&e)))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let (dir, word) = (shown(dir), show::path_word(dir));
    match said.contains("busy") {
        true => Err(format!(
            "{dir} is in use: `lsof +f -- {word}` or `fuser -vm {word}` shows by whom; end that and try again, or take \
             it out of the tree at once with `trellis umount --lazy {word}`"
        )),
        false => Err(format!("{dir}: {}", show::message(said.trim()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_point_is_writable_only_for_the_helper() {
        let temp = tempfile::tempdir().unwrap();
        let mode = || temp.path().metadata().unwrap().permissions().mode() & 0o777;
        assert!(Writable::make(temp.path()).unwrap().is_none());
        std::fs::set_permissions(temp.path(), Permissions::from_mode(0o500)).unwrap();
        let writable = Writable::make(temp.path()).unwrap();
        assert!(writable.is_some() && mode() == 0o700);
        drop(writable);
        assert_eq!(mode(), 0o500);
    }
}
