//! Which servers on other machines serve mounts of this one, and how they are reached: what `mount --at` found out is kept
//! as long as the mount lasts, so that commands reach the same server by the same way.
//!
//! Login and compute nodes often share the user's home directory, and with it the state directory: each machine has a
//! folder of its own.

use super::client::At;
use crate::control::proto::{Raw, Request};
use crate::limits;
use crate::login::Way;
use crate::mounts::{self, Mounted, path_inside};
use crate::scl::RootName;
use crate::show;
use crate::state::{StateDir, write_atomically};
use home::io_text;
use home::ssh::short_hash;
use home::{Error, ErrorKind};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A mount, and its server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Where it is mounted here.
    pub dir: Raw,
    /// The server's machine, as `--at` named it.
    pub host: String,
    /// This program there.
    pub program: String,
    /// Whether a person named it; nothing else is taken for it then.
    pub named: bool,
    /// The server's state directory there, if not the usual one.
    pub state: Option<String>,
    /// Configuration for `ssh -F`, an absolute path.
    pub ssh_config: Option<PathBuf>,
}

impl Record {
    /// The way to the server. [`ErrorKind::Invalid`] where the host is none.
    pub fn at(&self) -> home::Result<At> {
        let name = RootName::parse(self.host.as_bytes());
        let account = name.map(|n| n.account).ok_or_else(|| {
            let host = show::text(self.host.as_bytes());
            Error::new(ErrorKind::Invalid, format!("--at {host}: write [user@]host, as for ssh"))
        })?;
        let here = StateDir::existing(None).map_err(|e| Error::new(ErrorKind::Io, e))?;
        let target = Way::new(self.ssh_config.clone(), here.as_ref()).target(&account)?;
        let (program, named, state) = (self.program.clone(), self.named, self.state.clone());
        Ok(At { target, program, named, state })
    }

    /// Where it is mounted here.
    pub fn dir(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.dir.0))
    }

    /// The mount as what leads into its tree.
    pub fn mounted(&self) -> Mounted {
        Mounted::whole(self.dir())
    }
}

/// Keeps a record.
pub fn keep(state: &StateDir, record: &Record) -> Result<(), String> {
    use std::os::unix::fs::DirBuilderExt;
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder(state));
    made.map_err(|e| format!("{}: {e}", folder(state).display(), e = io_text(&e)))?;
    let text = serde_json::to_vec(record).map_err(|e| e.to_string())?;
    write_atomically(&file(state, record.dir()), &text)
}

/// Forgets the record of a mount.
pub fn forget(state: &StateDir, dir: &Path) {
    // One without a mount counts for nothing.
    let _ = std::fs::remove_file(file(state, dir));
}

/// The mounts of this machine that servers on others serve and that are there, by their directories.
pub fn all(state: &StateDir) -> Vec<Record> {
    let points = mounts::relayed_points();
    let entries = std::fs::read_dir(folder(state)).into_iter().flatten().flatten();
    let texts = entries.take(limits::ATTACH_SESSIONS).filter_map(|e| std::fs::read(e.path()).ok());
    let records = texts.filter_map(|text| serde_json::from_slice::<Record>(&text).ok());
    let mut all: Vec<Record> = records.filter(|r| points.iter().any(|p| p == r.dir())).collect();
    all.sort_by(|a, b| a.dir.cmp(&b.dir));
    all
}

/// Waits until everything that was acknowledged before is durable at the home that a path of this machine leads to by a
/// mount of another machine's server. `None` where it does not lead into one.
pub async fn sync(path: &Path) -> Option<home::Result<()>> {
    let full = std::path::absolute(path).ok()?;
    let state = StateDir::existing(None).ok()??;
    let found =
        all(&state).into_iter().find_map(|r| path_inside(&full, &[r.mounted()]).map(|inside| (r, inside)));
    let (record, inside) = found?;
    let done = async {
        let timeout_s = limits::SYNC_TIMEOUT.as_secs_f64();
        let request = Request::Sync { path: Some(Raw(inside)), timeout_s };
        crate::tree::served::synced(record.at()?.control().await?.ask(request).await?)
    };
    Some(done.await)
}

fn folder(state: &StateDir) -> PathBuf {
    let node = rustix::system::uname().nodename().to_string_lossy().into_owned();
    state.path().join("relays").join(node)
}

fn file(state: &StateDir, dir: &Path) -> PathBuf {
    folder(state).join(format!("{}.json", short_hash(dir.as_os_str().as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_mounted_counts() {
        let temp = tempfile::tempdir().unwrap();
        let state = StateDir::create(Some(&temp.path().join("s")), true).unwrap();
        let record = Record {
            dir: Raw(b"/home/ann/no mount".to_vec()),
            host: "ann@login1".into(),
            program: "/opt/t".into(),
            named: true,
            state: Some("/s".into()),
            ssh_config: None,
        };
        assert!(all(&state).is_empty());
        keep(&state, &record).unwrap();
        let text = std::fs::read(file(&state, record.dir())).unwrap();
        assert_eq!(serde_json::from_slice::<Record>(&text).unwrap(), record);
        assert!(all(&state).is_empty(), "it is not mounted");
        let at = record.at().unwrap();
        assert_eq!((at.target.to_string(), at.named), ("ann@login1".into(), true));
        assert!(Record { host: "-oProxyCommand=x".into(), ..record.clone() }.at().is_err());
        forget(&state, record.dir());
        assert!(!file(&state, record.dir()).exists());
    }
}
