//! FUSE mounts of the running server: made without root by the setuid helper `fusermount3`, served from this process,
//! and kept in a list in the state directory, so that a server that comes back mounts again what was mounted.
//!
//! - [`place`]: where may a mount be, and what may be wrong with the machine?
//! - [`helper`]: how does an ordinary user mount and unmount?
//! - [`probe`]: does anybody answer for a mount?
//! - [`guard`]: who frees the programs of a server that was killed?
//!
//! A mount that nobody serves any more (its server was killed) answers everything with ENOTCONN; it is taken away
//! before its directory is used again. A mount that the user takes away with `fusermount3 -u` himself leaves the list.

pub mod guard;
pub mod helper;
pub mod place;
pub mod probe;

use crate::control::proto::Raw;
use crate::control::report::MountReport;
use crate::show;
use crate::state::{StateDir, write_atomically};
use frontend::fuse::{self, Options, Running};
use guard::Guard;
use helper::Unmount;
use home::io_text;
use place::Look;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use tokio::sync::Mutex;
use vfs::{Cred, Oid, Vfs};

/// The program that this process runs, also when its file was replaced.
const PROGRAM: &str = "/proc/self/exe";

/// The server's mounts.
pub struct Mounts {
    this: Weak<Mounts>,
    vfs: Arc<Vfs>,
    cred: Cred,
    state: StateDir,
    guard: Arc<Guard>,
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    mounts: Vec<Mount>,
    /// Sessions so far; the number of the last one.
    sessions: u64,
    /// From now on mounts end because the server does, and stay in the list for the next one.
    stopping: bool,
}

struct Mount {
    dir: PathBuf,
    state: State,
}

enum State {
    /// Served.
    Mounted { session: u64, running: Running },
    /// It could not be mounted again.
    Failed(String),
}

/// What a mount came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounted {
    /// Its directory, without symbolic links.
    pub dir: PathBuf,
    /// It was mounted before.
    pub before: bool,
    /// A dead mount of an earlier server was taken away first.
    pub recovered: bool,
}

impl Mounts {
    /// No mounts yet; [`Mounts::again`] makes those of the server before.
    pub fn new(vfs: Arc<Vfs>, cred: Cred, state: StateDir) -> Arc<Mounts> {
        let (guard, list) = (Arc::default(), Mutex::default());
        Arc::new_cyclic(|this| Mounts { this: this.clone(), vfs, cred, state, guard, list })
    }

    /// Mounts what was mounted when the last server ended, however it ended. What fails stays in the list.
    pub async fn again(&self) {
        for dir in remembered(&self.state) {
            if let Err(why) = self.mount(&dir, true).await {
                tracing::error!("{}: not mounted again: {why}", shown(&dir));
                let mut list = self.list.lock().await;
                list.mounts.push(Mount { dir, state: State::Failed(why) });
            }
        }
    }

    /// Mounts the tree on a directory. `make`: the directory is made if it does not exist.
    pub async fn mount(&self, dir: &Path, make: bool) -> Result<Mounted, String> {
        let mut list = self.list.lock().await;
        if list.stopping {
            return Err("the server is stopping".into());
        }
        let place = place::prepare(dir, make).await?;
        let ours = |m: &&Mount| m.dir == place.dir && matches!(&m.state, State::Mounted { .. });
        match (place.mounted, list.mounts.iter().any(|m| ours(&m))) {
            (true, true) => return Ok(Mounted { dir: place.dir, before: true, recovered: false }),
            (true, false) => {
                return Err(format!(
                    "{} is served by another trellis server: unmount it there first, or choose another directory",
                    shown(&place.dir)
                ));
            }
            _ => {}
        }
        list.sessions += 1;
        let session = list.sessions;
        let options = Options {
            root: Oid::ROOT,
            cred: self.cred.clone(),
            device: true,
            block: frontend::fuse::BLOCK,
            owner: (self.cred.uid, self.cred.gid),
        };
        let (vfs, at, source) = (Arc::clone(&self.vfs), place.dir.clone(), self.state.source());
        let guard = Arc::clone(&self.guard);
        let running = blocking(move || {
            let device = helper::mount(&at, &source)?;
            guard.watch(&at);
            fuse::serve(vfs, device, options)
                .map_err(|e| format!("{}: FUSE: {e}", shown(&at), e = io_text(&e)))
        });
        let running = running.await?;
        self.watch(session, place.dir.clone(), running.clone());
        list.mounts.retain(|m| m.dir != place.dir);
        list.mounts.push(Mount { dir: place.dir.clone(), state: State::Mounted { session, running } });
        if let Err(why) = self.remember(&list) {
            // It is served all the same.
            tracing::warn!("{}: the next server will not mount it by itself: {why}", shown(&place.dir));
        }
        Ok(Mounted { dir: place.dir, before: false, recovered: place.recovered })
    }

    /// Lets a mount leave the list when somebody has taken it away.
    fn watch(&self, session: u64, dir: PathBuf, mut running: Running) {
        let this = self.this.clone();
        tokio::spawn(async move {
            running.ended().await;
            let Some(mounts) = this.upgrade() else { return };
            let mut list = mounts.list.lock().await;
            let ended = |m: &Mount| matches!(&m.state, State::Mounted { session: s, .. } if *s == session);
            if list.stopping || !list.mounts.iter().any(ended) {
                return;
            }
            tracing::info!("{}: unmounted", shown(&dir));
            list.mounts.retain(|m| !ended(m));
            if let Err(why) = mounts.remember(&list) {
                tracing::warn!("{why}");
            }
        });
    }

    /// Takes a mount away; without `dir` the only one. Answers its directory.
    pub async fn unmount(&self, dir: Option<&Path>, lazy: bool) -> Result<PathBuf, String> {
        let mut list = self.list.lock().await;
        let dir = match dir {
            Some(dir) => place::canonical(dir).unwrap_or_else(|_| dir.to_owned()),
            None => only(&list)?,
        };
        let Some(at) = list.mounts.iter().position(|m| m.dir == dir) else {
            return match detach_dead(&dir).await? {
                Look::Dead => Ok(dir),
                _ => Err(format!(
                    "{} is not mounted by this server; `trellis status` lists what is",
                    shown(&dir)
                )),
            };
        };
        if matches!(&list.mounts[at].state, State::Mounted { .. }) {
            let how = if lazy { Unmount::Lazy } else { Unmount::Idle };
            helper::unmount(&dir, how).await?;
        }
        list.mounts.remove(at);
        self.remember(&list)?;
        Ok(dir)
    }

    /// The server ends: takes away what nobody uses. Answers what somebody uses.
    pub async fn end(&self) -> Vec<PathBuf> {
        let mut list = self.list.lock().await;
        list.stopping = true;
        let mut busy = Vec::new();
        for mount in &list.mounts {
            if matches!(&mount.state, State::Mounted { running, .. } if !running.has_ended())
                && let Err(why) = helper::unmount(&mount.dir, Unmount::Idle).await
            {
                tracing::warn!("{why}");
                busy.push(mount.dir.clone());
            }
        }
        busy
    }

    /// Takes away what is in use; whoever uses it hears ENOTCONN once the process has ended.
    pub async fn abandon(&self, busy: &[PathBuf]) {
        for dir in busy {
            if let Err(why) = helper::unmount(dir, Unmount::Lazy).await {
                tracing::warn!("{why}");
            }
        }
    }

    /// What `status` shows.
    pub async fn report(&self) -> Vec<MountReport> {
        let list = self.list.lock().await;
        let each = list.mounts.iter().map(|m| MountReport {
            dir: m.dir.to_string_lossy().into_owned(),
            problem: match &m.state {
                State::Mounted { .. } => None,
                State::Failed(why) => Some(why.clone()),
            },
        });
        each.collect()
    }

    fn remember(&self, list: &List) -> Result<(), String> {
        let dirs: Vec<&Path> = list.mounts.iter().map(|m| m.dir.as_path()).collect();
        write_list(&self.state, &dirs)
    }
}

/// The mounts that a state directory keeps.
pub fn remembered(state: &StateDir) -> Vec<PathBuf> {
    let text = std::fs::read(file(state)).unwrap_or_default();
    let dirs: Vec<Raw> = serde_json::from_slice(&text).unwrap_or_default();
    dirs.iter().map(|d| PathBuf::from(OsStr::from_bytes(&d.0))).collect()
}

/// Keeps them.
pub fn write_list(state: &StateDir, dirs: &[&Path]) -> Result<(), String> {
    let dirs: Vec<Raw> = dirs.iter().map(|d| Raw::from(d.as_os_str().as_bytes())).collect();
    let text = serde_json::to_vec(&dirs).map_err(|e| e.to_string())?;
    write_atomically(&file(state), &text)
}

fn file(state: &StateDir) -> PathBuf {
    state.path().join("mounts.json")
}

/// Takes away a mount that nobody serves. Answers what was at the directory.
pub async fn detach_dead(dir: &Path) -> Result<Look, String> {
    let found = place::look(dir).await?;
    if found == Look::Dead {
        helper::unmount(dir, Unmount::Lazy).await?;
    }
    Ok(found)
}

fn only(list: &List) -> Result<PathBuf, String> {
    match &list.mounts[..] {
        [one] => Ok(one.dir.clone()),
        [] => Err("nothing is mounted".into()),
        many => {
            let dirs: Vec<String> = many.iter().map(|m| shown(&m.dir)).collect();
            Err(format!("more than one directory is mounted; say which: {}", dirs.join(", ")))
        }
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    tokio::task::spawn_blocking(work).await.map_err(|e| format!("the work was given up: {e}"))?
}

fn shown(path: &Path) -> String {
    show::text(path.as_os_str().as_bytes())
}
