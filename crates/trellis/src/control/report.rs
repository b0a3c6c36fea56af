//! What `trellis status --json` prints. The field names are an interface: docs/STATUS.md lists them.

use super::proto::Raw;
use crate::show;
use home::{Class, ErrorKind, Link};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::time::Duration;
use vfs::{VfsStatus, VolumeStatus};

/// The server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StatusReport {
    /// Every home that is known in this process.
    pub homes: Vec<HomeReport>,
    /// The caches.
    pub cache: CacheReport,
    /// Homes that were asked for lately and could not be reached for the first time.
    #[serde(default)]
    pub unreached: Vec<UnreachedReport>,
    /// Where NFS is served: `ADDR:PORT`.
    pub nfs: Vec<String>,
    /// Where the tree is mounted by FUSE.
    pub mounts: Vec<MountReport>,
    /// Process id of the server.
    pub pid: u32,
    /// Version of the server's program.
    #[serde(default)]
    pub version: String,
}

/// A home.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HomeReport {
    /// Its names in the root directory, the shortest first: people call it by that.
    pub names: Vec<String>,
    /// The account: `user@hostname:port`, or `local:/path`.
    pub account: String,
    /// Number of the volume.
    pub volume: u32,
    /// `wb`, `cto`, `strict`, `owned`, `offline` or `ro`.
    pub mode: String,
    /// Folders with a mode of their own.
    #[serde(default)]
    pub modes: Vec<FolderMode>,
    /// Folders in which conflicts are settled in another way than by keeping both.
    #[serde(default)]
    pub conflict_policies: Vec<FolderPolicy>,
    /// `posix` or `sftp`; null until it was connected once.
    pub class: Option<String>,
    /// `up`, `down`, `login needed`, `connecting`, `idle` or `suspended`.
    pub state: String,
    /// Why it is not up, and what to do; null where there is nothing to say.
    pub reason: Option<String>,
    /// The command that answers the questions of a login; null unless the state is `login needed`.
    #[serde(default)]
    pub login: Option<String>,
    /// The master connection that the home is reached through; null where none lives.
    #[serde(default)]
    pub master: Option<MasterReport>,
    /// By how many seconds the home's clock was ahead of ours when it was last connected; null where it is not known.
    #[serde(default)]
    pub clock_ahead_s: Option<f64>,
    /// What lets us in and has an end, the nearest first.
    #[serde(default)]
    pub expires: Vec<ExpiryReport>,
    /// Which promises are weaker than those of a posix home.
    pub weaker: Vec<String>,
    /// How old an answer from the cache may be while the home can be asked, in seconds; null: any age.
    pub staleness_s: Option<f64>,
    /// How it is seen that something has changed there: `watched`, `polled`, `asked` or `ignored`.
    #[serde(default)]
    pub freshness: String,
    /// Names and attributes are shown as an earlier server kept them, until the home has answered this one.
    #[serde(default)]
    pub kept: bool,
    /// Operations that the home does not have yet.
    pub unsent_ops: u64,
    /// Their bytes.
    pub unsent_bytes: u64,
    /// Age of the oldest in seconds; null where there is none.
    pub oldest_s: Option<f64>,
    /// Conflicts since the start.
    pub conflicts: u64,
    /// That somebody else has changed what is `owned`; null normally.
    #[serde(default)]
    pub alarm: Option<String>,
    /// Copies that conflicts have left and that are still there: `trellis conflicts`.
    #[serde(default)]
    pub conflict_copies: u64,
    /// Operations that the home refused.
    pub parked: Vec<ParkedReport>,
    /// Sequential waits for the home since the start.
    pub round_trips: u64,
    /// Answers, and changes on their way, since the start whose bytes were not those that were sent; none of them was used.
    #[serde(default)]
    pub damaged: u64,
    /// Bytes received since the start.
    pub bytes_in: u64,
    /// Bytes sent since the start.
    pub bytes_out: u64,
    /// Why no change is accepted any more: the journal could not be written. Null normally.
    pub journal: Option<String>,
    /// How whole parts of a tree came in one question.
    #[serde(default)]
    pub walks: WalkReport,
}

/// Walks of a home, since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct WalkReport {
    /// How often somebody began to go through a tree of which not all was known.
    pub crawls: u64,
    /// Questions.
    pub asked: u64,
    /// Directories that came.
    pub directories: u64,
    /// Names in them.
    pub names: u64,
    /// Of these directories those that somebody has looked at since they came.
    pub used: u64,
}

/// A folder of a home with a mode of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FolderMode {
    /// From the root of the home, with a leading slash.
    pub folder: String,
    /// As that of a home; never `strict` or `offline`.
    pub mode: String,
}

/// A folder of a home in which conflicts are settled in another way than by keeping both.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FolderPolicy {
    /// From the root of the home, with a leading slash.
    pub folder: String,
    /// `keep-both`, `prefer-local`, `stop`, `strict-last-writer` or `append-merge`.
    pub policy: String,
}

impl From<&(home::HomePath, vfs::Policy)> for FolderPolicy {
    fn from((folder, policy): &(home::HomePath, vfs::Policy)) -> FolderPolicy {
        FolderPolicy { folder: folder.to_string(), policy: policy.to_string() }
    }
}

impl From<&(home::HomePath, vfs::Mode)> for FolderMode {
    fn from((folder, mode): &(home::HomePath, vfs::Mode)) -> FolderMode {
        FolderMode { folder: folder.to_string(), mode: mode.to_string() }
    }
}

/// A home that was never reached.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UnreachedReport {
    /// Its name in the root directory.
    pub name: String,
    /// Further names by which it was asked for.
    #[serde(default)]
    pub also: Vec<String>,
    /// `login needed` or `down`.
    pub state: String,
    /// Why, and what to do.
    pub reason: String,
    /// The command that answers the questions of a login; null unless the state is `login needed`.
    pub login: Option<String>,
}

/// A living master connection of `trellis login` or of the user's own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MasterReport {
    /// Its socket.
    pub socket: String,
    /// Seconds after its last use at which it ends; null where it stays, or where somebody else made it.
    pub ends_after_idle_s: Option<u64>,
    /// Whether the home is connected, so that nothing ends.
    pub in_use: bool,
}

/// Something that lets us in until some time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExpiryReport {
    /// What it is.
    pub what: String,
    /// In how many seconds it ends; negative where it has ended.
    pub in_s: f64,
    /// What renews it.
    pub renew: String,
}

impl ExpiryReport {
    /// For a person.
    pub fn sentence(&self) -> String {
        match self.in_s > 0.0 {
            true => format!("{} ends in {}; {}", self.what, crate::show::span(self.in_s), self.renew),
            false => format!("{} has ended; {}", self.what, self.renew),
        }
    }

    /// Whether it is time to say so.
    pub fn is_near(&self) -> bool {
        self.in_s <= crate::limits::EXPIRY_AHEAD.as_secs_f64()
    }
}

/// An operation that the home refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ParkedReport {
    /// Its number in the volume.
    pub seq: u64,
    /// What it would have done.
    pub what: String,
    /// Why it did not.
    pub why: String,
    /// How many operations these are: writes to one file that were refused alike are told as the first of them.
    #[serde(default = "one")]
    pub count: u64,
    /// What a person can do; empty where `why` says it.
    #[serde(default)]
    pub help: String,
    /// It waits because bytes of it cannot be read here: the home was not asked.
    #[serde(default)]
    pub damaged: bool,
}

fn one() -> u64 {
    1
}

impl HomeReport {
    /// How many operations the home refused, of those that are told.
    pub fn refused(&self) -> u64 {
        self.parked.iter().map(|p| p.count).sum()
    }

    /// What a person can do about them, each thing once.
    pub fn help(&self) -> Vec<&str> {
        let mut all: Vec<&str> =
            self.parked.iter().map(|p| &*p.help).filter(|help| !help.is_empty()).collect();
        let mut seen = HashSet::new();
        all.retain(|help| seen.insert(*help));
        all
    }
}

impl ParkedReport {
    /// For a person.
    pub fn sentence(&self) -> String {
        let many =
            if self.count > 1 { format!(" ({})", show::count(self.count, "change")) } else { String::new() };
        format!("{}{many}: {}", self.what, self.why)
    }

    /// Why it is not at its home, for a person.
    pub fn refusal(&self) -> String {
        format!("{}: {} ({})", vfs::Parked::by(self.damaged), self.what, self.why)
    }
}

/// A conflict that nobody has settled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConflictReport {
    /// The home: its account.
    pub account: String,
    /// Path of the copy, which holds what was changed here.
    pub copy: Raw,
    /// Path of what the home has under the name; null where the copy's name was cut, so that it is not known.
    pub original: Option<Raw>,
    /// When the change was made here, in seconds since 1970.
    pub written: i64,
    /// The copy; null where the home does not tell.
    pub mine: Option<Side>,
    /// What the home has; null where it does not tell.
    pub theirs: Option<Side>,
    /// Whether the home has nothing under the name any more.
    pub gone: bool,
    /// Whether the copy is what the home had, and ours has the name.
    #[serde(default)]
    pub theirs_is_copy: bool,
    /// Whether ours is stopped on its way, and the folder with it: there is no copy, and `copy` is where ours is here.
    #[serde(default)]
    pub stopped: bool,
}

/// One side of a conflict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Side {
    /// First letter of a line of `ls -l`.
    pub kind: char,
    /// Bytes.
    pub size: u64,
    /// Owner.
    pub uid: u32,
    /// Permission bits.
    pub mode: u32,
    /// Last change of content, in seconds and nanoseconds since 1970.
    pub mtime: (i64, u32),
}

/// A FUSE mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountReport {
    /// Its directory.
    pub dir: String,
    /// Why it could not be mounted again after a restart; null where it is mounted.
    pub problem: Option<String>,
}

/// The caches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CacheReport {
    /// Bytes in the data cache.
    pub bytes: u64,
    /// Their bound.
    pub cap: u64,
    /// Bytes that the homes do not have yet; part of `bytes`.
    pub dirty_bytes: u64,
    /// Writers that wait for room in the cache, which is full of those.
    #[serde(default)]
    pub waiting: u64,
    /// Objects in memory.
    pub inodes: u64,
    /// Calls answered without asking a home, since the start.
    pub hits: u64,
    /// Calls that had to ask.
    pub misses: u64,
    /// Requests of kernels, by FUSE and NFS, that were answered since the start; some make several calls.
    #[serde(default)]
    pub requests: u64,
    /// How many of them had waited for a home.
    #[serde(default)]
    pub waited: u64,
}

/// What is not at its home when it should be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UnsentReport {
    /// The account.
    pub account: String,
    /// Operations.
    pub ops: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Why.
    pub why: String,
}

impl StatusReport {
    /// From the engine's status, the addresses of the listeners and the mounts.
    pub fn new(status: &VfsStatus, nfs: &[std::net::SocketAddr], mounts: Vec<MountReport>) -> StatusReport {
        StatusReport {
            homes: status.volumes.iter().map(HomeReport::from).collect(),
            unreached: status
                .unreached
                .iter()
                .filter_map(|(names, why)| UnreachedReport::new(names, why))
                .collect(),
            cache: CacheReport {
                bytes: status.cache_bytes,
                cap: status.cache_cap,
                dirty_bytes: status.dirty_bytes,
                waiting: status.waiting,
                inodes: status.inodes,
                hits: status.cache_hits,
                misses: status.cache_misses,
                requests: status.requests,
                waited: status.waited,
            },
            nfs: nfs.iter().map(ToString::to_string).collect(),
            mounts,
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").into(),
        }
    }
}

impl UnreachedReport {
    /// `None` without a name.
    fn new(names: &[home::Name], why: &home::Error) -> Option<UnreachedReport> {
        let mut names = names.iter().map(|name| String::from_utf8_lossy(name.as_bytes()).into_owned());
        let name = names.next()?;
        let asks = why.kind == ErrorKind::Login;
        Some(UnreachedReport {
            state: if asks { "login needed" } else { "down" }.into(),
            reason: why.detail.clone(),
            login: asks.then(|| name.clone()),
            name,
            also: names.collect(),
        })
    }
}

impl From<&VolumeStatus> for HomeReport {
    fn from(v: &VolumeStatus) -> HomeReport {
        let (state, reason) = match (&v.suspended, &v.home.link) {
            (Some(why), _) => ("suspended", Some(why.clone())),
            (None, Link::Up) => ("up", None),
            (None, Link::Connecting) => ("connecting", None),
            (None, Link::Idle) => ("idle", None),
            (None, Link::Down(why)) if v.home.login.is_some() => ("login needed", Some(why.clone())),
            (None, Link::Down(why)) => ("down", Some(why.clone())),
        };
        let parked = v.parked.iter();
        let mut names: Vec<String> =
            v.names.iter().map(|n| String::from_utf8_lossy(n.as_bytes()).into_owned()).collect();
        names.sort_by(|a, b| (a.len(), a).cmp(&(b.len(), b)));
        HomeReport {
            names,
            account: v.account.clone(),
            volume: v.volume,
            mode: v.modes.whole().to_string(),
            modes: v.modes.below().iter().map(FolderMode::from).collect(),
            conflict_policies: v.conflict_policies.folders().iter().map(FolderPolicy::from).collect(),
            class: v.home.class.map(|class| {
                match class {
                    Class::Posix => "posix",
                    Class::Sftp => "sftp",
                }
                .into()
            }),
            login: v.home.login.clone().filter(|_| state == "login needed"),
            master: None,
            clock_ahead_s: v.home.clock_ahead_s,
            expires: Vec::new(),
            state: state.into(),
            reason,
            weaker: v.home.weaker.clone(),
            staleness_s: v.staleness.map(|age| age.as_secs_f64()),
            freshness: freshness(v).into(),
            kept: v.kept,
            unsent_ops: v.unsent_ops,
            unsent_bytes: v.unsent_bytes,
            oldest_s: v.oldest.map(|age| age.as_secs_f64()),
            conflicts: v.conflicts,
            alarm: v.alarm.clone(),
            conflict_copies: v.copies,
            parked: parked.map(ParkedReport::from).collect(),
            round_trips: v.home.round_trips,
            damaged: v.home.damaged,
            bytes_in: v.home.bytes_in,
            bytes_out: v.home.bytes_out,
            journal: v.journal.clone(),
            walks: v.walks.into(),
        }
    }
}

impl From<vfs::WalkStatus> for WalkReport {
    fn from(vfs::WalkStatus { crawls, asked, directories, names, used }: vfs::WalkStatus) -> WalkReport {
        WalkReport { crawls, asked, directories, names, used }
    }
}

/// How it is seen that something has changed at a home.
fn freshness(v: &VolumeStatus) -> &'static str {
    match v.staleness {
        None => "ignored",
        Some(Duration::ZERO) if v.modes.whole().is_plain() => "asked",
        Some(_) if v.home.watches => "watched",
        Some(_) => "polled",
    }
}

impl From<&vfs::Parked> for ParkedReport {
    fn from(p: &vfs::Parked) -> ParkedReport {
        let why = match &p.stopped {
            Some(folder) => format!(
                "the home has changed it, too, and {folder} stops at conflicts: `trellis conflicts resolve` settles it"
            ),
            None => p.kind.to_string(),
        };
        let help = if p.stopped.is_some() { "" } else { help(p.kind) };
        ParkedReport {
            seq: p.seq,
            what: p.what.clone(),
            why,
            count: p.all.len() as u64,
            help: help.to_owned(),
            damaged: p.is_damaged(),
        }
    }
}

/// What helps where a home refuses a change for this reason.
fn help(why: ErrorKind) -> &'static str {
    use ErrorKind as E;
    match why {
        E::NoSpace
        | E::Quota
        | E::Access
        | E::Perm
        | E::ReadOnly
        | E::Io
        | E::Busy
        | E::TextBusy
        | E::Locked => {
            "parked changes are kept: make room or give the permission at the home, and they go there by themselves; or \
             see `trellis retry`, `trellis export` and `trellis discard`"
        }
        E::Damaged => {
            "parked, because bytes of it cannot be read from the cache on this machine: look at its disk, then `trellis retry`; \
             `trellis export` saves what is left of the files, and `trellis discard` gives the change up"
        }
        E::NotFound | E::Stale => {
            "parked, because what is to be changed, or its folder, is not at the home any more: where somebody has moved \
             it, move it back, and the change goes there by itself; else `trellis export` saves the files as they are \
             here, and `trellis discard` gives the change up"
        }
        _ => {
            "parked, because the home cannot have it so: `trellis export` saves the files as they are here, `trellis \
             discard` gives the change up, `trellis retry` tries it again where the home was changed"
        }
    }
}

impl From<&vfs::Unsent> for UnsentReport {
    fn from(u: &vfs::Unsent) -> UnsentReport {
        UnsentReport { account: u.account.clone(), ops: u.ops, bytes: u.bytes, why: u.why.clone() }
    }
}

/// What an engine that was closed still holds.
pub fn left_over(volumes: &[VolumeStatus], kept_back: &[vfs::Unsent]) -> Vec<UnsentReport> {
    let unsent = volumes.iter().filter(|v| v.unsent_ops > 0);
    unsent
        .map(|v| {
            let home = HomeReport::from(v);
            let refused = home.parked.first().map(ParkedReport::refusal);
            let why = home.reason.or(refused).unwrap_or_else(|| "there was no time to send it".into());
            UnsentReport { account: home.account, ops: home.unsent_ops, bytes: home.unsent_bytes, why }
        })
        .chain(kept_back.iter().map(UnsentReport::from))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(link: Link, suspended: Option<&str>) -> VolumeStatus {
        VolumeStatus {
            volume: 7,
            account: "ann@lab:22".into(),
            names: [&b"scp:lab:"[..], b"lab"].map(|name| home::Name::new(name).unwrap()).to_vec(),
            modes: vfs::Modes::new(vfs::Mode::Wb, vec![]).unwrap(),
            conflict_policies: vfs::Policies::default(),
            home: home::Status {
                link,
                login: None,
                needs_person: false,
                clock_ahead_s: None,
                class: Some(Class::Sftp),
                weaker: vec!["second times".into()],
                watches: false,
                round_trips: 1,
                damaged: 0,
                bytes_in: 2,
                bytes_out: 3,
            },
            staleness: Some(Duration::from_millis(500)),
            kept: false,
            silent: false,
            unsent_ops: 4,
            unsent_bytes: 5,
            oldest: Some(Duration::from_secs(6)),
            conflicts: 0,
            alarm: None,
            copies: 0,
            parked: vec![vfs::Parked {
                seq: 9,
                what: "remove x".into(),
                kind: home::ErrorKind::Perm,
                stopped: None,
                at: None,
                all: vec![7, 8, 9],
            }],
            suspended: suspended.map(str::to_owned),
            journal: None,
            walks: vfs::WalkStatus { crawls: 1, asked: 2, directories: 3, names: 4, used: 2 },
        }
    }

    #[test]
    fn what_a_login_answers_is_told_by_its_kind() {
        let names = [home::Name::new(b"lab").unwrap()];
        for (kind, state) in
            [(ErrorKind::Login, "login needed"), (ErrorKind::Setup, "down"), (ErrorKind::NameServer, "down")]
        {
            let why = home::Error::new(kind, "correct it, then run `trellis login lab`");
            let report = UnreachedReport::new(&names, &why).unwrap();
            assert_eq!((report.state.as_str(), report.login.is_some()), (state, state != "down"));
        }
    }

    #[test]
    fn the_documented_fields_are_there() {
        let json =
            serde_json::to_value(HomeReport::from(&volume(Link::Down("no route".into()), None))).unwrap();
        let want = serde_json::json!({
            "names": ["lab", "scp:lab:"], "account": "ann@lab:22", "volume": 7, "mode": "wb", "modes": [], "conflict_policies": [], "class": "sftp",
            "state": "down", "reason": "no route", "login": null, "master": null, "clock_ahead_s": null, "expires": [], "weaker": ["second times"], "staleness_s": 0.5, "freshness": "polled",
            "kept": false, "unsent_ops": 4, "unsent_bytes": 5, "oldest_s": 6.0, "conflicts": 0, "alarm": null, "conflict_copies": 0,
            "parked": [{"seq": 9, "what": "remove x", "why": "operation not permitted", "count": 3, "help": help(ErrorKind::Perm), "damaged": false}],
            "round_trips": 1, "damaged": 0, "bytes_in": 2, "bytes_out": 3, "journal": null,
            "walks": {"crawls": 1, "asked": 2, "directories": 3, "names": 4, "used": 2},
        });
        assert_eq!(json, want);
        let document = include_str!("../../../../docs/STATUS.md");
        let fields = [&want, &want["walks"]].map(|part| part.as_object().unwrap().keys());
        for field in fields.into_iter().flatten() {
            assert!(document.contains(&format!("`{field}`")), "docs/STATUS.md does not mention {field}");
        }
    }

    #[test]
    fn what_helps_fits_the_reason() {
        for (kind, part) in [
            (ErrorKind::NoSpace, "make room"),
            (ErrorKind::Stale, "move it back"),
            (ErrorKind::NotFound, "move it back"),
            (ErrorKind::TooBig, "cannot have it so"),
        ] {
            assert!(help(kind).contains(part), "{kind:?}");
            assert_eq!(help(kind).contains("room"), part == "make room", "{kind:?}");
        }
        let stopped = vfs::Parked {
            seq: 1,
            what: "write to /d/f".into(),
            kind: ErrorKind::Stale,
            stopped: Some(home::HomePath::root()),
            at: None,
            all: vec![9],
        };
        assert_eq!(ParkedReport::from(&stopped).help, "");
    }

    #[test]
    fn suspension_goes_before_the_state_of_the_link() {
        let report = HomeReport::from(&volume(Link::Up, Some("another account answers")));
        assert_eq!(
            (report.state.as_str(), report.reason.as_deref()),
            ("suspended", Some("another account answers"))
        );
        assert_eq!(HomeReport::from(&volume(Link::Idle, None)).state, "idle");
    }

    #[test]
    fn how_changes_are_seen_is_told() {
        let mut volume = volume(Link::Up, None);
        let of = |v: &VolumeStatus| HomeReport::from(v).freshness;
        assert_eq!(of(&volume), "polled");
        volume.home.watches = true;
        assert_eq!(of(&volume), "watched");
        volume.modes = vfs::Modes::new(vfs::Mode::Strict, vec![]).unwrap();
        volume.staleness = Some(Duration::ZERO);
        assert_eq!(of(&volume), "asked");
        volume.staleness = None;
        assert_eq!(of(&volume), "ignored");
    }

    #[test]
    fn a_login_that_asks_is_told_apart() {
        let mut volume = volume(Link::Down("it asks".into()), None);
        volume.home.login = Some("trellis login ann@lab".into());
        let report = HomeReport::from(&volume);
        assert_eq!(report.state, "login needed");
        assert_eq!(report.login.as_deref(), Some("trellis login ann@lab"));
        volume.suspended = Some("another account answers".into());
        let report = HomeReport::from(&volume);
        assert_eq!((report.state.as_str(), report.login), ("suspended", None));
    }

    #[test]
    fn ends_are_told_in_time() {
        let end = |in_s| ExpiryReport { what: "the ticket".into(), in_s, renew: "run kinit".into() };
        assert_eq!(end(75.0).sentence(), "the ticket ends in 1m15s; run kinit");
        assert_eq!(end(-1.0).sentence(), "the ticket has ended; run kinit");
        assert!(end(3600.0).is_near() && !end(3601.0).is_near());
    }

    #[test]
    fn what_is_left_over_has_a_reason() {
        let late = VolumeStatus { parked: Vec::new(), ..volume(Link::Up, None) };
        let left = left_over(&[late, volume(Link::Up, None), volume(Link::Down("gone".into()), None)], &[]);
        assert_eq!(left[0].why, "there was no time to send it");
        assert!(left[1].why.starts_with("the home refused: remove x ("), "{}", left[1].why);
        let mut damaged = volume(Link::Up, None);
        damaged.parked[0].kind = ErrorKind::Damaged;
        let why = left_over(&[damaged], &[]).remove(0).why;
        assert_eq!(why, "damage here keeps back: remove x (bytes are damaged)");
        assert_eq!(left[2].why, "gone");
        let sent = VolumeStatus { unsent_ops: 0, ..volume(Link::Up, None) };
        assert!(left_over(&[sent], &[]).is_empty());
    }
}
