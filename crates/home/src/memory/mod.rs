//! A home in memory, for tests of the layers above: POSIX semantics with identities, versions and
//! conflicts, and a clock that only counts, so that a test has the same answers each time.
//!
//! Other programs act through [`Outside`], which this home implements itself.

mod apply;
mod tree;

use crate::attr::StatFs;
use crate::error::{Error, ErrorKind, Result};
use crate::posix::memo::{Memo, StagedStore};
use crate::sparse::{AROUND, Sparse, SparsePart};
use crate::testing::Outside;
use crate::{
    Belief, Believed, Changed, Chunk, Claimed, Class, Copied, Entry, Hello, Home, HomePath, Link, Loc, Mark,
    Name, Op, OpId, Outcome, Page, Payload, Piece, Placed, Seen, Status, Turn, Walked, Watched, Xattr,
    XattrName, Xattrs, limits,
};
use bytes::Bytes;
use oncrpc::xdr::Xdr;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use tokio::sync::Notify;
use tree::{Body, GID, Tree, UID};

/// How often a home was asked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Calls of [`Home::attach`].
    pub attach: u64,
    /// Calls of [`Home::stat`].
    pub stat: u64,
    /// Calls of [`Home::list`].
    pub list: u64,
    /// Calls of [`Home::confirm`].
    pub confirm: u64,
    /// Calls of [`Home::walk`].
    pub walk: u64,
    /// Directories that these came to.
    pub walked: u64,
    /// Calls of [`Home::read`] and [`Home::read_in`].
    pub read: u64,
    /// Those of them that nobody waited for: [`Turn::Ahead`].
    pub read_ahead: u64,
    /// Calls of [`Home::readlink`].
    pub readlink: u64,
    /// Calls of [`Home::statfs`].
    pub statfs: u64,
    /// Calls of [`Home::xattrs`].
    pub xattrs: u64,
    /// Calls of [`Home::stage`].
    pub stage: u64,
    /// Calls of [`Home::copy`].
    pub copy: u64,
    /// Calls of [`Home::apply`].
    pub apply: u64,
    /// Operations executed, without repeated ones.
    pub ops: u64,
    /// Bytes of files that it was asked for and gave.
    pub bytes_read: u64,
    /// Bytes that [`Home::stage`] brought.
    pub bytes_staged: u64,
    /// See [`Home::spool`](crate::Home::spool).
    pub spool: u64,
    /// See [`Home::unspool`](crate::Home::unspool).
    pub unspool: u64,
    /// Calls of [`Home::stage`] and [`Home::copy`] with other bytes than the same name had at this position before: over
    /// several pipes those might arrive after these.
    pub mixed: u64,
    /// Bytes that [`Home::copy`] found.
    pub bytes_copied: u64,
    /// Bytes of files that operations brought.
    pub bytes_written: u64,
}

impl Counters {
    /// All calls together: each is a round trip.
    pub fn calls(&self) -> u64 {
        self.attach
            + self.stat
            + self.list
            + self.confirm
            + self.walk
            + self.read
            + self.readlink
            + self.statfs
            + self.xattrs
            + self.stage
            + self.copy
            + self.apply
    }
}

struct State {
    tree: Tree,
    memo: Memo,
    staged: StagedStore,
    /// The hashes of all that was staged, by name and position.
    named: HashMap<(OpId, u64), blake3::Hash>,
    counters: Counters,
    /// Volumes that were claimed, and whether the agent that runs knows of it.
    claims: HashMap<(u64, u32), bool>,
    keeps_log: bool,
    /// See [`MemoryHome::cut_power`].
    forgot: bool,
    /// When that was.
    booted: Option<crate::Time>,
    /// See [`MemoryHome::cut_power_when_durable`].
    before: Option<Memo>,
    /// The span in which nothing went untold; `None`: nothing is told.
    epoch: Option<u64>,
    /// See [`MemoryHome::set_confirms`].
    confirms: bool,
    /// See [`MemoryHome::set_copies`].
    copies: bool,
    /// See [`MemoryHome::set_spools`].
    spools: bool,
    /// See [`MemoryHome::set_crowded`].
    crowded: bool,
    /// See [`MemoryHome::set_walks`].
    walks: bool,
    /// See [`MemoryHome::set_window`].
    window: Option<u64>,
    /// See [`MemoryHome::set_home_dir`].
    home_dir: HomePath,
    /// Marks of watched directories.
    watched: HashMap<u64, Mark>,
    told: Vec<Changed>,
    token: [u8; 16],
    token_is_new: bool,
    place: Option<[u8; 16]>,
}

impl State {
    fn stage(&mut self, op: OpId, at: u64, data: Bytes) -> Result<()> {
        let hash = blake3::hash(&data);
        self.counters.mixed += u64::from(*self.named.entry((op, at)).or_insert(hash) != hash);
        self.staged.put(op, at, data).map(drop)
    }

    fn find(&self, at: &Loc) -> Result<u64> {
        let ino = self.tree.find(&at.path)?;
        let now = self.tree.attr(ino)?.id;
        match at.id {
            Some(id) if !self.memo.same_object(id, now) => Err(ErrorKind::Stale.into()),
            _ => Ok(ino),
        }
    }

    fn parent(&self, path: &HomePath) -> Result<(u64, Name)> {
        let (dir, name) = path.split().ok_or(ErrorKind::Busy)?;
        Ok((self.tree.find(&dir)?, name))
    }
}

/// A tree in memory; clones are the same one.
#[derive(Clone)]
pub struct MemoryHome {
    state: Arc<Mutex<State>>,
    /// Something was told.
    more: Arc<Notify>,
}

impl Default for MemoryHome {
    fn default() -> Self {
        MemoryHome::new()
    }
}

impl MemoryHome {
    /// An empty tree that belongs to uid and gid 1000, with its home directory at the root.
    pub fn new() -> MemoryHome {
        let state = State {
            tree: Tree::new(),
            memo: Memo::default(),
            staged: StagedStore::default(),
            named: HashMap::new(),
            counters: Counters::default(),
            claims: HashMap::new(),
            keeps_log: false,
            forgot: false,
            booted: None,
            before: None,
            epoch: None,
            confirms: false,
            walks: false,
            window: None,
            home_dir: HomePath::root(),
            copies: false,
            spools: false,
            crowded: false,
            watched: HashMap::new(),
            told: Vec::new(),
            token: *b"a token for test",
            token_is_new: true,
            place: None,
        };
        MemoryHome { state: Arc::new(Mutex::new(state)), more: Arc::default() }
    }

    /// How often it was asked since it was made.
    pub fn counters(&self) -> Counters {
        self.state.lock().counters
    }

    /// Forgets what a killed agent forgets: staged bytes, who claimed what, and without a log the outcomes.
    pub fn restart(&self) {
        let mut state = self.state.lock();
        if !state.keeps_log {
            state.memo = Memo::default();
        }
        if !state.spools {
            state.staged = StagedStore::default();
        }
        state.watched.clear();
        state.epoch = state.epoch.map(|epoch| epoch + 1);
        state.claims.values_mut().for_each(|claimed| *claimed = false);
    }

    /// Its machine is started again: with a log, too, it does not know what was executed before.
    pub fn cut_power(&self) {
        self.restart();
        let mut state = self.state.lock();
        (state.memo, state.forgot) = (Memo::default(), true);
        state.booted = Some(state.tree.now());
    }

    /// The same, after all that was executed had become durable: it is known what that was, and not with which outcomes.
    pub fn cut_power_when_durable(&self) {
        let executed = std::mem::take(&mut self.state.lock().memo);
        self.cut_power();
        self.state.lock().before = Some(executed);
    }

    /// Whether it tells in a claim what was executed, as it does not at first.
    pub fn set_keeps_log(&self, keeps: bool) {
        self.state.lock().keeps_log = keeps;
    }

    /// From now on directories can be watched. What changes is told by [`MemoryHome::tell`] alone.
    pub fn set_watches(&self) {
        self.state.lock().epoch = Some(1);
    }

    /// From now on it can be asked whether what is known of directories is true.
    pub fn set_confirms(&self) {
        self.state.lock().confirms = true;
    }

    /// Where the account is at home.
    pub fn set_home_dir(&self, path: HomePath) {
        self.state.lock().home_dir = path;
    }

    /// From now on it walks.
    pub fn set_walks(&self) {
        self.state.lock().walks = true;
    }

    /// How many bytes the way to it is said to carry.
    pub fn set_window(&self, bytes: u64) {
        self.state.lock().window = Some(bytes);
    }

    /// From now on it is worth looking for bytes that it has, and for those that it need not send.
    pub fn set_copies(&self) {
        self.state.lock().copies = true;
    }

    /// From now on what is staged outlives an agent, as if all of it were on disk.
    pub fn set_spools(&self) {
        self.state.lock().spools = true;
    }

    /// Has no room for what is spooled beside what that is to take the place of.
    pub fn set_crowded(&self) {
        self.state.lock().crowded = true;
    }

    /// Tells of changes in a watched directory: under these names, or of all of it.
    pub fn tell(&self, dir: &HomePath, names: &[&str]) {
        let mut state = self.state.lock();
        let ino = state.tree.find(dir).unwrap();
        let Some(mark) = state.watched.get(&ino).copied() else { return };
        let names: Vec<Name> = names.iter().map(|name| Name::new(name.as_bytes()).unwrap()).collect();
        state.told.push(Changed { mark, all: names.is_empty(), itself: true, names });
        self.more.notify_one();
    }

    /// Changes go untold.
    pub fn lose(&self) {
        let mut state = self.state.lock();
        state.epoch = state.epoch.map(|epoch| epoch + 1);
    }

    /// How many bytes all files together may have; beyond is [`ErrorKind::NoSpace`].
    pub fn set_space(&self, bytes: u64) {
        let tree = &mut self.state.lock().tree;
        (tree.space, tree.told) = (bytes, bytes);
    }

    /// The same, while it tells of as much space as before: a quota that nobody can ask for.
    pub fn set_quota(&self, bytes: u64) {
        self.state.lock().tree.space = bytes;
    }

    /// Whether it keeps extended attributes, as it does at first.
    pub fn set_has_xattrs(&self, has: bool) {
        self.state.lock().tree.has_xattrs = has;
    }

    /// Makes it look like another account.
    pub fn set_token(&self, token: [u8; 16]) {
        self.state.lock().token = token;
    }

    /// Says where the account's home directory is.
    pub fn set_place(&self, place: Option<[u8; 16]>) {
        self.state.lock().place = place;
    }

    /// Another program changes permission bits.
    pub fn chmod_outside(&self, path: &HomePath, mode: u32) {
        let mut state = self.state.lock();
        let now = state.tree.now();
        let ino = state.tree.find(path).unwrap();
        let node = state.tree.node_mut(ino).unwrap();
        (node.mode, node.ctime) = (mode, now);
    }

    /// Another program sets the time of a file's last change back to an earlier one, as `touch -r` and `rsync -t` do.
    pub fn set_mtime_outside(&self, path: &HomePath, mtime: crate::Time) {
        let mut state = self.state.lock();
        let now = state.tree.now();
        let ino = state.tree.find(path).unwrap();
        let node = state.tree.node_mut(ino).unwrap();
        (node.mtime, node.ctime) = (mtime, now);
    }

    /// Another program makes a hard link.
    pub fn link_outside(&self, old: &HomePath, new: &HomePath) {
        let mut state = self.state.lock();
        let ino = state.tree.find(old).unwrap();
        let (dir, name) = state.parent(new).unwrap();
        state.tree.enter(dir, &name, ino).unwrap();
    }
}

#[async_trait::async_trait]
impl Home for MemoryHome {
    fn status(&self) -> Status {
        Status {
            link: Link::Up,
            login: None,
            needs_person: false,
            clock_ahead_s: None,
            class: Some(Class::Posix),
            weaker: Vec::new(),
            watches: self.epoch().is_some(),
            round_trips: self.counters().calls(),
            damaged: 0,
            bytes_in: 0,
            bytes_out: 0,
        }
    }

    async fn attach(&self) -> Result<Hello> {
        let mut state = self.state.lock();
        state.counters.attach += 1;
        Ok(Hello {
            class: Class::Posix,
            stages: true,
            uid: UID,
            gid: GID,
            groups: vec![GID],
            home_dir: state.home_dir.clone(),
            token: Some(state.token),
            token_is_new: std::mem::take(&mut state.token_is_new),
            boot_id: Bytes::from_static(b"memory"),
            clock: state.tree.now(),
            place: state.place,
        })
    }

    async fn stat(&self, at: &Loc) -> Result<Seen> {
        let mut state = self.state.lock();
        state.counters.stat += 1;
        let ino = state.find(at)?;
        Ok(Seen { applied: state.memo.applied(), attr: state.tree.attr(ino)? })
    }

    async fn list(&self, dir: &Loc, after: Option<&Name>, max: u32) -> Result<Page> {
        let mut state = self.state.lock();
        state.counters.list += 1;
        let ino = state.find(dir)?;
        if !state.tree.attr(ino)?.access.read {
            return Err(ErrorKind::Access.into());
        }
        let from = after.map_or(Bound::Unbounded, |a| Bound::Excluded(a.clone()));
        let mut names = state.tree.dir(ino)?.range((from, Bound::Unbounded));
        let max = max.clamp(1, limits::PAGE_MAX) as usize;
        let mut entries = Vec::new();
        let searched = state.tree.attr(ino)?.access.exec;
        for (name, child) in names.by_ref().take(max) {
            if !searched {
                entries.push(Entry { name: name.clone(), attr: None, target: None, bare: false });
                continue;
            }
            let target = match &state.tree.node(*child)?.body {
                Body::Symlink(target) => Some(Bytes::copy_from_slice(target)),
                _ => None,
            };
            let (attr, bare) = (Some(state.tree.attr(*child)?), state.tree.node(*child)?.xattrs.is_empty());
            entries.push(Entry { name: name.clone(), attr, target, bare });
        }
        let more = names.next().is_some();
        Ok(Page { applied: state.memo.applied(), dir: state.tree.attr(ino)?, entries, more })
    }

    async fn watch(&self, dir: &Loc, max: u32, mark: u64) -> Result<Watched> {
        let epoch = {
            let mut state = self.state.lock();
            let ino = state.find(dir)?;
            state.watched.insert(ino, mark.into());
            state.epoch
        };
        Ok(Watched { page: self.list(dir, None, max).await?, epoch })
    }

    async fn walk(&self, from: Vec<Loc>, bytes: u32, _: bool) -> Result<Walked> {
        let (before, mut todo) = (self.counters(), VecDeque::from(from));
        let mut walked = Walked { came: 0, dirs: Vec::new() };
        let (mut left, mut room) = (todo.len(), bytes as usize);
        while let Some(at) = todo.pop_front().filter(|_| room > 0) {
            let found = self.watch(&at, limits::PAGE_MAX, 1).await.ok();
            (walked.came, left) = (walked.came + u32::from(left > 0), left.saturating_sub(1));
            let Some(Watched { page, epoch }) = found.filter(|found| !found.page.more) else { continue };
            self.state.lock().watched.insert(page.dir.id.ino, Mark::Walked(page.dir.id));
            room = room.saturating_sub(page.to_bytes().len());
            todo.extend(page.below(&at.path));
            walked.dirs.push((at.path, Watched { page, epoch }));
        }
        let counters = &mut self.state.lock().counters;
        (counters.list, counters.walk) = (before.list, before.walk + 1);
        counters.walked += walked.dirs.len() as u64;
        Ok(walked)
    }

    fn walks(&self) -> bool {
        self.state.lock().walks
    }

    async fn confirm(&self, dirs: Vec<Believed>, _: bool) -> Result<Vec<Result<Belief>>> {
        self.state.lock().counters.confirm += 1;
        let mut beliefs = Vec::new();
        for Believed { dir, mark, digest } in dirs {
            let listed = self.counters().list;
            let found = self.watch(&dir, limits::PAGE_MAX, mark).await;
            self.state.lock().counters.list = listed;
            beliefs.push(found.map(|Watched { page, epoch }| match page.digest() {
                Some(found) if found == digest => {
                    Belief::True { applied: page.applied, bare: page.bare_bits(), epoch }
                }
                Some(_) => Belief::Other(Watched { page, epoch }),
                None => Belief::Unlike,
            }));
        }
        Ok(beliefs)
    }

    fn confirms(&self) -> bool {
        self.state.lock().confirms
    }

    async fn changes(&self) -> Vec<Changed> {
        loop {
            let told = std::mem::take(&mut self.state.lock().told);
            if !told.is_empty() {
                return told;
            }
            self.more.notified().await;
        }
    }

    fn epoch(&self) -> Option<u64> {
        self.state.lock().epoch
    }

    fn window(&self) -> Option<u64> {
        self.state.lock().window
    }

    async fn read_in(&self, turn: Turn, file: &Loc, at: u64, len: u32) -> Result<Chunk> {
        self.state.lock().counters.read_ahead += u64::from(turn == Turn::Ahead);
        Home::read(self, file, at, len).await
    }

    async fn read(&self, file: &Loc, at: u64, len: u32) -> Result<Chunk> {
        let mut state = self.state.lock();
        state.counters.read += 1;
        let ino = state.find(file)?;
        let data = match &state.tree.node(ino)?.body {
            Body::File(data) => data,
            Body::Dir(_) => return Err(ErrorKind::IsDir.into()),
            _ => return Err(ErrorKind::Invalid.into()),
        };
        let start = at.min(data.len() as u64) as usize;
        let end = start.saturating_add(len.min(limits::READ_MAX) as usize).min(data.len());
        let data = Bytes::copy_from_slice(&data[start..end]);
        state.counters.bytes_read += data.len() as u64;
        Ok(Chunk { attr: state.tree.attr(ino)?, data })
    }

    async fn read_known(&self, file: &Loc, at: u64, len: u32, known: Vec<u64>, _: bool) -> Result<Sparse> {
        let counters = self.state.lock().counters;
        let chunk = Home::read(self, file, at, len).await?;
        let lead = at.min(AROUND as u64);
        let before = Home::read(self, file, at - lead, lead as u32).await?.data;
        let after = Home::read(self, file, at + chunk.data.len() as u64, AROUND as u32).await?.data;
        let sparse = Sparse::of(chunk.attr, &before, &chunk.data, &after, &known);
        let bytes = |part: &SparsePart| if let SparsePart::Bytes(b) = part { b.len() as u64 } else { 0 };
        let mut state = self.state.lock();
        state.counters.read = counters.read + 1;
        state.counters.bytes_read = counters.bytes_read + sparse.parts.iter().map(bytes).sum::<u64>();
        Ok(sparse)
    }

    fn knows(&self) -> bool {
        self.state.lock().copies
    }

    async fn readlink(&self, at: &Loc) -> Result<Bytes> {
        let mut state = self.state.lock();
        state.counters.readlink += 1;
        let ino = state.find(at)?;
        match &state.tree.node(ino)?.body {
            Body::Symlink(target) => Ok(Bytes::copy_from_slice(target)),
            Body::Dir(_) => Err(ErrorKind::IsDir.into()),
            _ => Err(ErrorKind::Invalid.into()),
        }
    }

    async fn statfs(&self, at: &Loc) -> Result<StatFs> {
        let mut state = self.state.lock();
        state.counters.statfs += 1;
        state.find(at)?;
        let (total, used) = (state.tree.told, state.tree.used());
        let free = total.saturating_sub(used);
        Ok(StatFs { total, free, available: free, files: 1 << 32, files_free: 1 << 31 })
    }

    async fn xattrs(&self, at: &Loc, want: Option<&XattrName>) -> Result<Xattrs> {
        let mut state = self.state.lock();
        state.counters.xattrs += 1;
        let ino = state.find(at)?;
        let node = state.tree.node(ino)?;
        if !state.tree.has_xattrs && node.body.may_have_xattrs() {
            return Err(ErrorKind::Unsupported.into());
        }
        let (mut list, mut room) = (Vec::new(), limits::XATTR_TOGETHER);
        for (name, value) in &node.xattrs {
            let together = want == Some(name) || value.len() <= room;
            room = room.saturating_sub(if together { value.len() } else { 0 });
            list.push(Xattr { name: name.clone(), value: together.then(|| value.clone()) });
        }
        Ok(Xattrs { applied: state.memo.applied(), attr: state.tree.attr(ino)?, list })
    }

    async fn stage(&self, op: OpId, at: u64, data: Bytes) -> Result<()> {
        let mut state = self.state.lock();
        state.counters.stage += 1;
        state.counters.bytes_staged += data.len() as u64;
        state.stage(op, at, data)
    }

    async fn spool(&self, op: OpId) -> Result<u64> {
        let mut state = self.state.lock();
        state.counters.spool += 1;
        if !state.spools {
            return Err(ErrorKind::Unsupported.into());
        }
        Ok(state.staged.contiguous(op))
    }

    async fn unspool(&self, op: OpId) -> Result<()> {
        let mut state = self.state.lock();
        state.counters.unspool += 1;
        state.staged.forget(op);
        Ok(())
    }

    fn spools(&self) -> bool {
        self.state.lock().spools
    }

    async fn copy(&self, op: OpId, places: Vec<Loc>, parts: Vec<Copied>) -> Result<()> {
        let mut state = self.state.lock();
        state.counters.copy += 1;
        for part in parts {
            let bytes = |at: &Loc| match &state.tree.node(state.find(at).ok()?).ok()?.body {
                Body::File(data) => {
                    let from = part.from as usize;
                    data.get(from..from.saturating_add(part.len as usize)).map(Bytes::copy_from_slice)
                }
                _ => None,
            };
            let is_it = |data: &Bytes| *blake3::hash(data).as_bytes() == part.hash;
            if let Some(data) = places.iter().filter_map(bytes).find(is_it) {
                state.counters.bytes_copied += data.len() as u64;
                state.stage(op, part.at, data)?;
            }
        }
        Ok(())
    }

    fn copies(&self) -> bool {
        self.state.lock().copies
    }

    async fn claim(&self, gateway: u64, volume: u32, lost: Vec<u64>) -> Result<Option<Claimed>> {
        let mut state = self.state.lock();
        if !state.keeps_log {
            return Ok(None);
        }
        state.claims.insert((gateway, volume), true);
        let since = lost.first().copied().unwrap_or(u64::MAX);
        if std::mem::take(&mut state.forgot) {
            let booted = state.booted;
            let known = state.before.take().unwrap_or_default();
            let begun: Vec<u64> = known.executed((gateway, volume)).filter(|seq| *seq >= since).collect();
            let unknown = lost.into_iter().filter(|seq| !begun.contains(seq)).collect();
            return Ok(Some(Claimed { begun, unknown, restarted: true, booted, ..Claimed::default() }));
        }
        let begun = state.memo.executed((gateway, volume)).filter(|seq| *seq >= since).collect();
        Ok(Some(Claimed { begun, ..Claimed::default() }))
    }

    async fn apply(&self, ops: Vec<Placed>) -> Result<Vec<Outcome>> {
        let mut state = self.state.lock();
        state.counters.apply += 1;
        if ops.iter().any(|one| state.claims.get(&(one.id.gateway, one.id.volume)) == Some(&false)) {
            return Err(ErrorKind::NotClaimed.into());
        }
        if ops.iter().any(|one| carried(&one.op) > limits::agent::BODY_MAX) {
            return Err(Error::new(
                ErrorKind::Invalid,
                "an operation is longer than a frame; stage its data",
            ));
        }
        apply::apply(&mut state, &ops)
    }
}

/// Bytes that an operation brings along; the link to an agent bounds them.
fn carried(op: &Op<Loc, Payload>) -> usize {
    let Op::Write { pieces, .. } = op else { return 0 };
    let bytes = |p: &Piece<Payload>| match p {
        Piece::Data(_, Payload::Inline(bytes)) => bytes.len(),
        _ => 0,
    };
    pieces.iter().map(bytes).sum()
}

impl Outside for MemoryHome {
    fn write(&self, path: &HomePath, data: &[u8]) {
        let mut state = self.state.lock();
        let ino = match state.tree.find(path) {
            Ok(ino) => ino,
            Err(_) => {
                let (dir, name) = state.parent(path).unwrap();
                let ino = state.tree.add(Body::File(Vec::new()), 0o644);
                state.tree.enter(dir, &name, ino).unwrap();
                ino
            }
        };
        let now = state.tree.now();
        let node = state.tree.node_mut(ino).unwrap();
        assert!(matches!(node.body, Body::File(_)), "{path} is no file");
        node.body = Body::File(data.to_vec());
        (node.mtime, node.ctime) = (now, now);
    }

    fn read(&self, path: &HomePath) -> Option<Vec<u8>> {
        let state = self.state.lock();
        match &state.tree.node(state.tree.find(path).ok()?).ok()?.body {
            Body::File(data) => Some(data.clone()),
            _ => None,
        }
    }

    fn mkdir(&self, path: &HomePath) {
        let mut state = self.state.lock();
        let (dir, name) = state.parent(path).unwrap();
        assert!(!state.tree.dir(dir).unwrap().contains_key(&name), "{path} exists");
        let ino = state.tree.add(Body::Dir(BTreeMap::new()), 0o755);
        state.tree.enter(dir, &name, ino).unwrap();
    }

    fn symlink(&self, path: &HomePath, target: &[u8]) {
        let mut state = self.state.lock();
        let (dir, name) = state.parent(path).unwrap();
        assert!(!state.tree.dir(dir).unwrap().contains_key(&name), "{path} exists");
        let ino = state.tree.add(Body::Symlink(target.to_vec()), 0o777);
        state.tree.enter(dir, &name, ino).unwrap();
    }

    fn remove(&self, path: &HomePath) {
        let mut state = self.state.lock();
        let (dir, name) = state.parent(path).unwrap();
        let ino = state.tree.find(path).unwrap();
        assert!(state.tree.dir(ino).map_or(true, BTreeMap::is_empty), "{path} is not empty");
        state.tree.leave(dir, &name).unwrap();
        state.tree.reap(ino);
    }

    fn rename(&self, from: &HomePath, to: &HomePath) {
        let mut state = self.state.lock();
        let (from, to) = (state.parent(from).unwrap(), state.parent(to).unwrap());
        state.tree.rename((from.0, &from.1), (to.0, &to.1)).unwrap();
    }

    fn set_xattr(&self, path: &HomePath, name: &str, value: Option<&[u8]>) -> bool {
        let mut state = self.state.lock();
        let (now, name) = (state.tree.now(), XattrName::new(name.as_bytes()).unwrap());
        let ino = state.tree.find(path).unwrap();
        if !state.tree.has_xattrs {
            return false;
        }
        let node = state.tree.node_mut(ino).unwrap();
        node.ctime = now;
        match value {
            Some(value) => drop(node.xattrs.insert(name, Bytes::copy_from_slice(value))),
            None => drop(node.xattrs.remove(&name)),
        }
        true
    }

    fn xattr(&self, path: &HomePath, name: &str) -> Option<Vec<u8>> {
        let state = self.state.lock();
        let node = state.tree.node(state.tree.find(path).unwrap()).unwrap();
        node.xattrs.get(&XattrName::new(name.as_bytes()).unwrap()).map(|v| v.to_vec())
    }

    fn names(&self, path: &HomePath) -> Vec<Vec<u8>> {
        let state = self.state.lock();
        let ino = state.tree.find(path).unwrap();
        state.tree.dir(ino).unwrap().keys().map(|n| n.as_bytes().to_vec()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attr::Time;
    use crate::op::{Op, Payload, Piece};

    fn write(seq: u64, path: &HomePath, data: &[u8]) -> Placed {
        let pieces = vec![Piece::Data(0, Payload::Inline(Bytes::copy_from_slice(data)))];
        let op = Op::Write { file: Loc { path: path.clone(), id: None }, base: None, pieces };
        let id = OpId { gateway: 1, volume: 1, seq };
        Placed { id, time: Time { sec: 5, nsec: 0 }, plain: false, resent: false, op }
    }

    #[tokio::test]
    async fn space_and_restart_are_as_told() {
        let home = MemoryHome::new();
        let path = HomePath::parse(b"f").unwrap();
        Outside::write(&home, &path, b"12345");
        home.set_space(8);
        let full = home.apply(vec![write(1, &path, b"123456789")]).await.unwrap();
        assert_eq!(full, [Outcome::Refused(ErrorKind::NoSpace)]);
        assert!(matches!(home.apply(vec![write(2, &path, b"abc")]).await.unwrap()[..], [Outcome::Done(_)]));
        let at = Loc { path: path.clone(), id: None };
        assert_eq!(home.stat(&at).await.unwrap().applied, 2);
        home.restart();
        assert_eq!(home.stat(&at).await.unwrap().applied, 0);
        assert_eq!(Outside::read(&home, &path).unwrap(), b"abc45");
        assert_eq!((home.counters().ops, home.counters().calls()), (2, 4));
    }

    #[tokio::test]
    async fn outside_links_and_modes_are_seen() {
        let home = MemoryHome::new();
        let (a, b) = (HomePath::parse(b"a").unwrap(), HomePath::parse(b"b").unwrap());
        Outside::write(&home, &a, b"x");
        home.link_outside(&a, &b);
        home.chmod_outside(&b, 0o400);
        let attr = home.stat(&Loc { path: a, id: None }).await.unwrap().attr;
        assert!((attr.nlink, attr.mode) == (2, 0o400) && !attr.access.may_write());
        home.set_token([7; 16]);
        assert_eq!(home.attach().await.unwrap().token, Some([7; 16]));
    }
}
