//! The root directory: a name for each way to spell a home. It is read-only, and listing it logs in nowhere.

use crate::config::Mount;
use crate::conflict::Policies;
use crate::hold::held;
use crate::inode::{FIRST_COOKIE, ROOT_ID};
use crate::mode::Modes;
use crate::types::{Ctx, DirEntry, DirPage, FileAttr, Found, Oid};
use crate::volume::{Policy, Volume, known_volumes, offline};
use crate::watch::Event;
use crate::{Vfs, limits};
use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt, Shared};
use hashbrown::HashMap;
use home::{Error, ErrorKind, Kind, Name, Result, Time};
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::hash::Hasher;
use std::sync::Arc;
use std::time::Duration;

type Opening = Shared<BoxFuture<'static, Result<Oid>>>;

/// Why a name did not work.
#[derive(Debug, Clone)]
struct Failed {
    when: Duration,
    why: Error,
    /// The account that it stands for, where that is known.
    account: Option<String>,
}

impl Failed {
    /// How long nobody is asked again.
    fn lasts(&self) -> Duration {
        match self.why.kind {
            // Nobody was asked: what the name means could not be found out here, which costs no home anything.
            _ if self.account.is_none() => limits::FAILED_AWAY,
            kind if kind == ErrorKind::UnknownHost || kind.needs_person() => limits::FAILED_NAME,
            // What a home says of a path may be otherwise in a moment.
            _ => limits::FAILED_AWAY,
        }
    }

    /// Whether it is the failure of one account, as far as that is known.
    fn is_same(&self, other: &Failed) -> bool {
        match (&self.account, &other.account) {
            (Some(one), Some(other)) => one == other,
            _ => self.why == other.why,
        }
    }
}

/// What the root directory remembers.
#[derive(Default)]
pub struct RootDir {
    /// Names that worked once or are configured; the object, once it was reached in this process.
    names: BTreeMap<Name, Option<Oid>>,
    /// Names that did not work.
    failed: HashMap<Name, Failed>,
    /// Names that are being reached.
    opening: HashMap<Name, Opening>,
    /// Last change of the names, or of whether one of them works.
    mtime: Time,
}

impl RootDir {
    /// With the names that are listed from the start.
    pub fn new(names: impl Iterator<Item = Name>, now: Time) -> RootDir {
        RootDir { names: names.map(|n| (n, None)).collect(), mtime: now, ..RootDir::default() }
    }
}

impl Vfs {
    /// Attributes of the root directory.
    pub fn root_attr(&self) -> FileAttr {
        let root = self.root.lock();
        FileAttr {
            kind: Kind::Dir,
            mode: 0o555,
            nlink: 2 + root.names.len() as u32,
            uid: self.shared.server_uid,
            gid: self.shared.server_gid,
            size: 4096,
            used: 0,
            fsid: 1,
            fileid: ROOT_ID,
            atime: root.mtime,
            mtime: root.mtime,
            ctime: root.mtime,
        }
    }

    /// The root directory as an answer.
    pub fn found_root(&self) -> Found {
        let attr = self.root_attr();
        Found { oid: Oid::ROOT, attr, dir: Some(attr) }
    }

    /// Reaches the home that a name stands for. Only the server's user may cause a connection.
    pub async fn lookup_root(&self, ctx: Ctx<'_>, name: &[u8]) -> Result<Found> {
        if matches!(name, b"." | b"..") {
            return Ok(self.found_root());
        }
        let name = Name::new(name)?;
        let known = self.root.lock().names.get(&name).copied().flatten();
        let oid = match known {
            Some(oid) => oid,
            None if ctx.cred.uid != self.shared.server_uid => return Err(self.stranger(&name)),
            None => self.reach(&name).await?,
        };
        if let Ok(volume) = self.volume(oid) {
            volume.path_below(ctx, oid.id);
        }
        let attr = self.getattr(ctx, oid).await?;
        Ok(Found { oid, attr, dir: Some(self.root_attr()) })
    }

    /// What somebody who may not cause a connection hears of a name that is not connected. Nothing is asked for him:
    /// even that would be a process for each name that he makes up.
    fn stranger(&self, name: &Name) -> Error {
        match self.namespace.permits(name) {
            false => Error::new(ErrorKind::NotFound, format!("{name}: no name of a host")),
            true => {
                Error::new(ErrorKind::Access, format!("{name}: only the server's user may connect to a host"))
            }
        }
    }

    async fn reach(&self, name: &Name) -> Result<Oid> {
        let opening = {
            let mut root = self.root.lock();
            let now = self.shared.env.clock.instant();
            if let Some(failed) = root.failed.get(name)
                && now.saturating_sub(failed.when) < failed.lasts()
            {
                return Err(failed.why.clone());
            }
            match root.opening.get(name) {
                Some(opening) => opening.clone(),
                None if root.opening.len() >= limits::OPENINGS_MAX => {
                    return Err(Error::new(ErrorKind::Busy, "too many names are being reached"));
                }
                None => {
                    let opening = self.start_opening(name.clone());
                    root.opening.insert(name.clone(), opening.clone());
                    opening
                }
            }
        };
        match held(limits::HOLD, || true, opening).await {
            Some(answer) => answer,
            None => Err(Error::new(ErrorKind::Busy, format!("{name}: still connecting"))),
        }
    }

    /// Names that were refused lately, with the reason: those of one account, or with one reason, together, the shortest
    /// first. Not those of accounts that have a volume, which tells how it fares. Before them, with the reason for as long as it
    /// holds, volumes with unsent changes that could not be opened.
    pub(crate) fn unreached(&self) -> Vec<(Vec<Name>, Error)> {
        let mut met: Vec<String> = self.all_volumes().into_iter().map(|v| v.account.clone()).collect();
        met.extend(self.kept_back(None).into_iter().map(|unsent| unsent.account));
        let root = self.root.lock();
        let now = self.shared.env.clock.instant();
        // Who has to log in may read of it later; a mistyped name is not worth that.
        let lasts =
            |f: &Failed| f.why.kind.needs_person() || now.saturating_sub(f.when) < limits::FAILED_NAME;
        let mut failed: Vec<_> = root.failed.iter().filter(|(_, f)| lasts(f)).collect();
        failed.retain(|(_, f)| f.account.as_ref().is_none_or(|account| !met.contains(account)));
        failed.sort_by_key(|(name, _)| (name.as_bytes().len(), name.as_bytes()));
        let mut told: Vec<(&Failed, Vec<Name>)> = Vec::new();
        for (name, f) in failed {
            match told.iter().position(|(other, _)| other.is_same(f)) {
                Some(at) => told[at].1.push(name.clone()),
                None if told.len() < limits::UNREACHED_SHOWN => told.push((f, vec![name.clone()])),
                None => {}
            }
        }
        let told = told.into_iter().map(|(f, names)| (names, f.why.clone()));
        self.kept_back_names().into_iter().chain(told).collect()
    }

    /// Remembers why names of an account could not be reached.
    pub(crate) fn not_reached(&self, account: &[u8], names: &[Name], why: &Error) {
        let now = self.shared.env.clock.instant();
        let mut root = self.root.lock();
        let account = Some(String::from_utf8_lossy(account).into_owned());
        let failed = Failed { when: now, why: why.clone(), account };
        root.failed.extend(names.iter().map(|name| (name.clone(), failed.clone())));
    }

    /// Forgets which names could not be reached: a person has done something about the reason.
    pub fn forget_failures(&self) {
        self.root.lock().failed.clear();
    }

    /// A person asks for a name: what was tried longer than a moment ago is tried again, even if it was a login.
    pub async fn asked(&self, name: &Name) {
        let known = {
            let mut root = self.root.lock();
            let now = self.shared.env.clock.instant();
            match root.failed.get(name) {
                // A login may have been tried long before whoever looked the name up last: its home knows.
                Some(failed)
                    if !failed.why.kind.needs_person()
                        && now.saturating_sub(failed.when) < limits::FAILED_AWAY =>
                {
                    return;
                }
                _ => root.failed.remove(name),
            };
            root.names.get(name).copied().flatten()
        };
        let home = match known {
            Some(oid) => self.volume(oid).map(|volume| volume.home.clone()),
            None => self.namespace.resolve(name).await.map(|mount| mount.home),
        };
        // Whoever asks for the name hears why it does not lead anywhere.
        if let Ok(home) = home {
            home.asked();
        }
    }

    /// Goes on even when nobody waits any more, so that a lookup that comes again finds the home reached.
    fn start_opening(&self, name: Name) -> Opening {
        let Some(vfs) = self.this.upgrade() else {
            return futures_util::future::err(ErrorKind::Io.into()).boxed().shared();
        };
        let task = tokio::spawn(async move {
            let mount = vfs.namespace.resolve(&name).await;
            let account = mount.as_ref().ok().map(|mount| mount.account.clone());
            let answer = match mount {
                Ok(mount) => vfs.open_name(&name, mount).await,
                Err(e) => Err(e),
            };
            let mut root = vfs.root.lock();
            root.opening.remove(&name);
            root.mtime = vfs.shared.env.clock.now();
            match &answer {
                Ok(oid) => {
                    root.failed.remove(&name);
                    if root.names.len() < limits::HOSTS_MAX || root.names.contains_key(&name) {
                        let event = Event::Entry { dir: Oid::ROOT, name: name.clone(), origin: 0 };
                        if root.names.insert(name, Some(*oid)).is_none() {
                            vfs.shared.watchers.tell(&[event]);
                        }
                    }
                }
                Err(e) if e.kind == ErrorKind::NotFound => {}
                Err(e) => {
                    if root.failed.len() >= limits::HOSTS_MAX {
                        root.failed.clear();
                    }
                    let now = vfs.shared.env.clock.instant();
                    root.failed.insert(name, Failed { when: now, why: e.clone(), account });
                }
            }
            answer
        });
        task.map(|r| r.unwrap_or_else(|_| Err(ErrorKind::Io.into()))).boxed().shared()
    }

    async fn open_name(&self, name: &Name, mount: Mount) -> Result<Oid> {
        let start = mount.start.clone();
        let volume = match self.keeper(name, &mount).await? {
            Some(volume) => volume,
            None => {
                self.meet(&mount).await?;
                self.open_volume(mount).await?
            }
        };
        // Somebody waits for the name.
        volume.home.wanted();
        let hello = match volume.introduced().await {
            Ok(hello) => hello,
            Err(e) => {
                self.forget_stranger(&volume);
                return Err(e);
            }
        };
        let path = start.path(hello.home_dir.clone());
        // Who begins at the root often goes to the home directory from there.
        let way = if path.is_root() { hello.home_dir } else { path.clone() };
        let walk = tokio::spawn(volume.clone().walk_along(way));
        let mut at = ROOT_ID;
        let need = volume.need(at);
        volume.ensure_attr(at, need).await?;
        // Whatever comes of it: who wants more asks for it.
        let _ = tokio::time::timeout(limits::WAY_WAIT, walk).await;
        for part in path.names() {
            at = volume.ensure_name(at, &part, need).await?.ok_or_else(|| {
                Error::new(
                    ErrorKind::NotFound,
                    format!("{name}: {path} does not exist at {}", volume.account),
                )
            })?;
        }
        volume.remember_name(name)?;
        // Another name of the same account may have failed meanwhile and taken the volume away.
        self.volumes.write().entry(volume.id).or_insert_with(|| volume.clone());
        Ok(Oid { volume: volume.id, id: at })
    }

    /// The volume that this name led to before, if ssh spells its account otherwise now and the account is the same:
    /// its token says so. A name that leads to another account is given up, unless changes wait behind it.
    async fn keeper(&self, name: &Name, mount: &Mount) -> Result<Option<Arc<Volume>>> {
        let led_here = |v: &&Arc<Volume>| v.account != mount.account && v.record.lock().names.contains(name);
        let Some(volume) = self.volumes.read().values().find(led_here).cloned() else { return Ok(None) };
        let known = volume.record.lock().token;
        if known.is_some() && mount.home.attach().await?.token == known {
            return Ok(Some(volume));
        }
        if volume.tree.lock().queue.len() > 0 {
            let text = format!(
                "{name} leads to {} now, but changes for {} wait behind this name: let it lead there again, or \
                 choose another name",
                mount.account, volume.account
            );
            return Err(Error::new(ErrorKind::Setup, text));
        }
        volume.forget_name(name)?;
        Ok(None)
    }

    /// An account has no volume, and nothing on disk, before it has let us in.
    async fn meet(&self, mount: &Mount) -> Result<()> {
        let is_open = self.volumes.read().values().any(|v| v.account == mount.account);
        let is_kept = || {
            known_volumes(&*self.shared.store)
                .map(|k| k.iter().any(|(_, r)| r.account == mount.account.as_bytes()))
        };
        if is_open || is_kept()? {
            return Ok(());
        }
        if !mount.options.mode.unwrap_or(self.mode).connects() {
            return Err(offline(&mount.account));
        }
        // Somebody waits for the name.
        mount.home.wanted();
        mount.home.attach().await.map(drop)
    }

    /// A host that was lost before it told enough of itself leaves no volume behind.
    fn forget_stranger(&self, volume: &Arc<Volume>) {
        let never_met = volume.record.lock().names.is_empty();
        if never_met && volume.tree.lock().queue.len() == 0 {
            self.volumes.write().remove(&volume.id);
            if let Err(e) = crate::volume::remove_record(&self.shared, volume.id) {
                tracing::warn!("a host that never answered stays in the store: {e}");
            }
        }
    }

    /// The volume of an account, opened if it is not yet.
    pub async fn open_volume(&self, mount: Mount) -> Result<Arc<Volume>> {
        let _one_at_a_time = self.opening_volumes.lock().await;
        if let Some(volume) = self.volumes.read().values().find(|v| v.account == mount.account) {
            return Ok(volume.clone());
        }
        let known = known_volumes(&*self.shared.store)?;
        let id = match known.iter().find(|(_, r)| r.account == mount.account.as_bytes()) {
            Some((id, _)) => *id,
            None => loop {
                let id = self.shared.env.rng.u64() as u32;
                if id != Oid::ROOT_VOLUME && known.iter().all(|(k, _)| *k != id) {
                    break id;
                }
            },
        };
        let whole = mount.options.mode.unwrap_or(self.mode);
        let modes = Modes::new(whole, mount.options.modes.clone())?;
        let policy = Policy {
            modes: RwLock::new(modes),
            conflicts: Policies::new(mount.options.conflicts.clone())?,
            share: mount.options.share.unwrap_or(self.share),
            options: mount.options,
        };
        let shared = self.shared.clone();
        let (account, home) = (mount.account, mount.home);
        let runtime = tokio::runtime::Handle::current();
        let open = self.shared.env.lend(move || {
            let _in_runtime = runtime.enter();
            Volume::open(&shared, id, account, home, policy)
        });
        let volume = open.await.map_err(|e| Error::new(ErrorKind::Io, e.to_string()))??;
        self.volumes.write().insert(id, volume.clone());
        if self.unopened.lock().remove(&id).is_some() {
            // Its names lead there again.
            self.root.lock().failed.retain(|_, failed| failed.account.as_ref() != Some(&volume.account));
        }
        Ok(volume)
    }

    /// Which mode is in force where, a line for each name that was used and each folder with a mode of its own: mode,
    /// blank, path from the root directory. The longest path that leads to a file decides.
    pub fn modes_text(&self) -> String {
        let names = self.root.lock().names.clone();
        let mut lines = Vec::new();
        for (name, oid) in names.into_iter().filter_map(|(name, oid)| Some((name, oid?))) {
            let Ok(volume) = self.volume(oid) else { continue };
            lines.push((format!("/{name}"), volume.mode_of(oid.id)));
            let Ok(place) = volume.tree.lock().local_path(oid.id) else { continue };
            let modes = volume.policy.modes.read().clone();
            lines.extend(modes.inside(&place).map(|(rest, mode)| (format!("/{name}{rest}"), mode)));
        }
        lines.sort();
        lines.iter().map(|(path, mode)| format!("{mode} {path}\n")).collect()
    }

    /// What becomes of conflicts where, in the same way.
    pub fn policies_text(&self) -> String {
        let names = self.root.lock().names.clone();
        let mut lines = Vec::new();
        for (name, oid) in names.into_iter().filter_map(|(name, oid)| Some((name, oid?))) {
            let Ok(volume) = self.volume(oid) else { continue };
            let Ok(place) = volume.tree.lock().local_path(oid.id) else { continue };
            let policies = &volume.policy.conflicts;
            lines.push((format!("/{name}"), policies.at(&place).0));
            lines.extend(policies.inside(&place).map(|(rest, policy)| (format!("/{name}{rest}"), policy)));
        }
        lines.sort_by(|a, b| a.0.cmp(&b.0));
        lines.iter().map(|(path, policy)| format!("{policy} {path}\n")).collect()
    }

    /// Entries of the root directory: what is configured and what worked once.
    pub fn list_root(&self, after: u64, max: usize) -> DirPage {
        let attr = self.root_attr();
        let root = self.root.lock();
        let named = |name: &'static [u8], cookie| DirEntry {
            name: Bytes::from_static(name),
            cookie,
            oid: Oid::ROOT,
            fileid: attr.fileid,
            attr: None,
        };
        let mut entries = vec![named(b".", 1), named(b"..", 2)];
        for (name, oid) in root.names.iter().filter(|(name, _)| self.namespace.permits(name)) {
            let cookie = name_hash(name);
            let oid = oid.unwrap_or(Oid::ROOT);
            let name = Bytes::copy_from_slice(name.as_bytes());
            entries.push(DirEntry { name, cookie, oid, fileid: cookie, attr: None });
        }
        entries.sort_by_key(|e| e.cookie);
        entries.retain(|e| e.cookie > after);
        let eof = entries.len() <= max;
        entries.truncate(max);
        DirPage { entries, eof, dir: attr }
    }
}

/// A number of 62 bits for a name: its cookie, or its id.
pub fn name_hash(name: &Name) -> u64 {
    let mut hasher = siphasher::sip::SipHasher13::new();
    hasher.write(name.as_bytes());
    (hasher.finish() >> 2).max(FIRST_COOKIE)
}
