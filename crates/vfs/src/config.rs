//! What the engine is given: local resources, policies, and the meaning of the names in its root directory.

use crate::conflict::{Policies, Policy};
use crate::env::Env;
use crate::mode::{Mode, Modes};
use crate::store::MetaStore;
use crate::types::Oid;
use home::{ErrorKind, Home, HomePath, Name, Result};
use std::sync::Arc;
use std::time::Duration;

/// Everything that the engine is given.
pub struct Config {
    /// Local disk, clock and randomness.
    pub env: Env,
    /// Where identities are kept.
    pub store: Arc<dyn MetaStore>,
    /// The meaning of names in the root directory.
    pub namespace: Arc<dyn Namespace>,
    /// The local user that remote accounts are mapped to, and whose calls the home's own access bits decide.
    pub server_uid: u32,
    /// The local group that the accounts' primary groups are mapped to.
    pub server_gid: u32,
    /// For homes that say nothing else.
    pub mode: Mode,
    /// Whether other users have what the mode gives to others; for homes that say nothing else.
    pub share: bool,
    /// Cap of the data cache in bytes. Dirty data counts against it.
    pub cache_bytes: u64,
    /// How old an answer from the cache may be.
    pub staleness: Duration,
    /// Bytes from which on a file that is written anew is staged on the home's disk, such as [`crate::SPOOL_FROM`]; `None`: it
    /// goes home as it is written, in batches.
    pub spool_from: Option<u64>,
    /// Bytes in one batch that goes home, such as [`crate::BATCH_BYTES`].
    pub batch_bytes: u64,
}

/// What a name in the root directory stands for.
pub struct Mount {
    /// Identity of the account, for example `user@hostname:port`; all names with one account share one volume.
    pub account: String,
    /// The home; not necessarily connected.
    pub home: Arc<dyn Home>,
    /// Where in the home the name leads.
    pub start: Start,
    /// Policies.
    pub options: MountOptions,
}

/// Where in a home a name of the root directory leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// The root of the host.
    Root,
    /// The home directory of the account.
    HomeDir,
    /// This directory, from the root of the host.
    Path(HomePath),
    /// This directory, from the home directory of the account.
    Below(HomePath),
}

impl Start {
    /// The directory, where the account's home directory is this one.
    pub fn path(self, home_dir: HomePath) -> HomePath {
        match self {
            Start::Root => HomePath::root(),
            Start::HomeDir => home_dir,
            Start::Path(path) => path,
            Start::Below(path) => {
                let mut full = home_dir;
                path.names().for_each(|name| full.push(&name));
                full
            }
        }
    }
}

/// Policies of a home; what is `None` follows the [`Config`].
#[derive(Debug, Clone, Default)]
pub struct MountOptions {
    /// What an acknowledgement promises.
    pub mode: Option<Mode>,
    /// Folders, from the root of the home, in which it promises something else.
    pub modes: Vec<(HomePath, Mode)>,
    /// Folders, from the root of the home, in which conflicts are settled in another way than by keeping both.
    pub conflicts: Vec<(HomePath, Policy)>,
    /// Whether other users have what the mode gives to others.
    pub share: Option<bool>,
    /// Whether absolute symbolic links are shown below `/trellis` and the [name](Namespace::root_name) of the root.
    pub rebase_symlinks: bool,
    /// Folders below the account's home directory in which nothing may be changed.
    pub protect: Vec<HomePath>,
}

/// The meaning of names in the root directory.
#[async_trait::async_trait]
pub trait Namespace: Send + Sync {
    /// Names that are always listed.
    fn configured(&self) -> Vec<Name>;

    /// Whether [`resolve`](Self::resolve) could find this name, by its syntax and the rules. Names that worked under
    /// other rules are not listed.
    fn permits(&self, _name: &Name) -> bool {
        true
    }

    /// Of an account with these names: a name that stands for the root of its host. Absolute links lead below it
    /// where they are rebased; `None` leaves them as they are.
    fn root_name(&self, _names: &[Name]) -> Option<Name> {
        None
    }

    /// Checks the syntax and makes the home, without connecting to it. [`ErrorKind::NotFound`] at once for what
    /// is no host name.
    async fn resolve(&self, name: &Name) -> Result<Mount>;
}

/// An engine as `trellis status` shows it.
#[derive(Debug, Clone)]
pub struct VfsStatus {
    /// Every volume that is known in this process.
    pub volumes: Vec<VolumeStatus>,
    /// Names of the root directory that could not be reached lately, by home, with the reason; these have no volume.
    pub unreached: Vec<(Vec<Name>, home::Error)>,
    /// Bytes in the data cache.
    pub cache_bytes: u64,
    /// Its cap.
    pub cache_cap: u64,
    /// Bytes that the homes do not have yet.
    pub dirty_bytes: u64,
    /// Writers that wait until the homes have some of them.
    pub waiting: u64,
    /// Objects in memory.
    pub inodes: u64,
    /// Calls answered without asking a home.
    pub cache_hits: u64,
    /// Calls that had to ask a home.
    pub cache_misses: u64,
    /// Requests of front-ends that were answered.
    pub requests: u64,
    /// How many of them had waited for a home.
    pub waited: u64,
}

/// A volume as `trellis status` shows it.
#[derive(Debug, Clone)]
pub struct VolumeStatus {
    /// Its number.
    pub volume: u32,
    /// Identity of the account.
    pub account: String,
    /// Names in the root directory.
    pub names: Vec<Name>,
    /// What an acknowledgement promises, in which folders.
    pub modes: Modes,
    /// What becomes of conflicts, in which folders.
    pub conflict_policies: Policies,
    /// The home.
    pub home: home::Status,
    /// How old an answer from the cache may be; `None`: any age.
    pub staleness: Option<Duration>,
    /// The home has not answered this process yet, or it is not certain yet what it executed for an earlier one: what is
    /// shown of it may be what the earlier one kept.
    pub kept: bool,
    /// The home did not answer when it was last asked: what is shown is what was known.
    pub silent: bool,
    /// Operations that the home does not have yet.
    pub unsent_ops: u64,
    /// Their bytes.
    pub unsent_bytes: u64,
    /// Age of the oldest of them.
    pub oldest: Option<Duration>,
    /// Conflicts since the start.
    pub conflicts: u64,
    /// That somebody else changed what nobody else should, for a person.
    pub alarm: Option<String>,
    /// Copies that conflicts have left and that are still there.
    pub copies: u64,
    /// Operations that the home refused; kept until somebody decides.
    pub parked: Vec<Parked>,
    /// Why nothing is sent to this home, if so.
    pub suspended: Option<String>,
    /// Why nothing is accepted any more, if so: a journal that could not be synced.
    pub journal: Option<String>,
    /// How whole parts of a tree came in one question.
    pub walks: WalkStatus,
}

/// Walks of a home, since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WalkStatus {
    /// How often somebody began to go through a tree of which not all was known.
    pub crawls: u64,
    /// Questions, also of [`crate::Prefetch`].
    pub asked: u64,
    /// Directories that came.
    pub directories: u64,
    /// Names in them.
    pub names: u64,
    /// Of these directories those that somebody has listed, or looked a name up in, since they came.
    pub used: u64,
}

/// An operation that the home refused.
#[derive(Debug, Clone)]
pub struct Parked {
    /// Its number in the volume.
    pub seq: u64,
    /// What it would have done, for a person.
    pub what: String,
    /// Why not.
    pub kind: ErrorKind,
    /// It is a conflict, where the policy is `stop`: it waits for [`crate::Vfs::settle_stopped`], and so does later work in
    /// this folder, from the root of the home.
    pub stopped: Option<HomePath>,
    /// Where it would have changed something, from the root of the home.
    pub at: Option<HomePath>,
    /// The numbers of all that it stands for: writes to one file that were refused alike are told as the first of them.
    pub all: Vec<u64>,
}

impl Parked {
    /// Whether it waits because bytes of it cannot be read here: the home was not asked.
    pub fn is_damaged(&self) -> bool {
        self.kind == ErrorKind::Damaged
    }

    /// Who keeps it from its home, for a person.
    pub fn by(is_damaged: bool) -> &'static str {
        if is_damaged { "damage here keeps back" } else { "the home refused" }
    }
}

/// An object with changes that cannot go home, because the home refused one.
#[derive(Debug, Clone)]
pub struct Held {
    /// The object.
    pub oid: Oid,
    /// Where it is, from the root of the home.
    pub path: HomePath,
}

/// What is not durable at a home when it should be.
#[derive(Debug, Clone)]
pub struct Unsent {
    /// The volume.
    pub volume: u32,
    /// Identity of the account.
    pub account: String,
    /// Operations.
    pub ops: u64,
    /// Bytes.
    pub bytes: u64,
    /// Why they are still here, for a person.
    pub why: String,
    /// Whether waiting longer may help.
    pub may_pass: bool,
}
