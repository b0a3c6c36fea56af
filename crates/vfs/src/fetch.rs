//! IN: the only reader of a home. One question at a time for each thing that is wanted; whoever wants the same
//! waits for the same answer.

mod astray;
mod confirm;
mod sparse;
mod walk;

pub use astray::Way;
pub use walk::{Met, Walks};

use crate::data::Part;
use crate::freshness;
use crate::hold::held;
use crate::inode::{Tree, local};
use crate::limits;
use crate::meta::{self, Asked, Content};
use crate::volume::Volume;
use futures_util::future::{BoxFuture, FutureExt, Shared};
use hashbrown::HashMap;
use home::xattr::may_have;
use home::{
    Changed, Chunk, Error, ErrorKind, Hello, Home, HomePath, Loc, Name, Page, Result, Seen, StatFs, Turn,
    Watched, XattrName,
};
use parking_lot::Mutex;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

/// What a home can be asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Want {
    /// Attributes of an object.
    Attr(u64),
    /// The names of a directory; only a first page where it is not known to be small.
    List(u64, Extent),
    /// One name of a directory.
    Name(u64, Name),
    /// The chunk of a file that begins at this offset.
    Data(u64, u64),
    /// Attributes of a directory, and then one name of it.
    Look(u64, Name),
    /// Where a symbolic link points.
    Target(u64),
    /// Extended attributes of an object; the value of this one however long.
    Xattrs(u64, Option<XattrName>),
    /// A listing or data for somebody who can wait: what others ask for goes before it, even if it is the same.
    Later(Box<Want>),
}

impl Want {
    /// The object that it is about.
    fn about(&self) -> u64 {
        match self {
            Want::Attr(id)
            | Want::List(id, _)
            | Want::Name(id, _)
            | Want::Look(id, _)
            | Want::Data(id, _)
            | Want::Target(id)
            | Want::Xattrs(id, _) => *id,
            Want::Later(want) => want.about(),
        }
    }
}

/// How much of a directory is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Extent {
    /// All of it.
    Whole,
    /// All of it if it is small.
    Small,
}

/// Questions under way.
#[derive(Default)]
pub struct Flights(Mutex<HashMap<Want, Shared<BoxFuture<'static, Result<()>>>>>);

/// Whether what is in the cache now was confirmed, or the home did not answer in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// The home answered.
    Fresh,
    /// It did not; what is in the cache has to do.
    Silent,
}

impl Volume {
    /// Asks the home for something. With `have`, what is in the cache is good enough where the home does not answer
    /// in time. Without, the call is held, then told to come again, and fails once the home has been
    /// out of reach for long. It fails at once where the mode lets nobody be asked.
    pub async fn ask(self: &Arc<Self>, want: Want, have: bool) -> Result<Answer> {
        self.shared.stats.miss();
        if !self.connects() {
            return if have { Ok(Answer::Silent) } else { Err(self.offline()) };
        }
        tracing::debug!(account = %self.account, ?want, have, "the home is asked");
        if !have {
            self.home.wanted();
        }
        let flight = self.flight(want.clone(), Turn::Now);
        if !have {
            return self.insist(want, flight).await;
        }
        if self.is_silent() {
            return Ok(flight.now_or_never().and_then(Result::ok).map_or(Answer::Silent, |()| Answer::Fresh));
        }
        crate::stats::waits();
        let answer = match self.health.beginning.load(Ordering::Relaxed) {
            true => tokio::time::timeout(limits::HOLD, self.certain(want, flight)).await,
            false => tokio::time::timeout(limits::REVALIDATE_WAIT, flight).await,
        };
        match answer {
            Ok(Ok(())) => Ok(Answer::Fresh),
            Ok(Err(e)) if !is_out_of_reach(&e) => Err(e),
            _ => {
                self.unheard();
                Ok(Answer::Silent)
            }
        }
    }

    /// Asks again as long as the home answers and it is not certain what it has executed.
    async fn certain(
        self: &Arc<Self>,
        want: Want,
        mut flight: Shared<BoxFuture<'static, Result<()>>>,
    ) -> Result<()> {
        loop {
            match flight.await {
                Err(e) if e.kind == ErrorKind::Busy => flight = self.flight(want.clone(), Turn::Now),
                answer => return answer,
            }
        }
    }

    async fn insist(
        self: &Arc<Self>,
        want: Want,
        first: Shared<BoxFuture<'static, Result<()>>>,
    ) -> Result<Answer> {
        let _awaits = self.awaits();
        let mut why = None;
        let attempts = async {
            let mut flight = first;
            loop {
                match flight.await {
                    Ok(()) => return Ok(Answer::Fresh),
                    Err(e) if e.kind == ErrorKind::Unreachable => why = Some(e.detail),
                    Err(e) => return Err(e),
                }
                self.unheard();
                if self.is_given_up() {
                    return Err(self.out_of_reach(why.take()));
                }
                let pause = self.home.wanted().map_or(limits::ASK_AGAIN, |left| left.min(limits::ASK_AGAIN));
                tokio::time::sleep(pause).await;
                flight = self.flight(want.clone(), Turn::Now);
            }
        };
        let began = self.env.clock.instant();
        match held(limits::HOLD, || self.gives_nothing(began), attempts).await {
            Some(answer) => answer,
            None => {
                self.unheard();
                let kind = if self.is_given_up() { ErrorKind::Io } else { ErrorKind::Busy };
                Err(Error { kind, ..self.out_of_reach(why) })
            }
        }
    }

    /// Whether the home has been out of reach for so long that nobody waits for it any more.
    pub fn is_given_up(&self) -> bool {
        let now = self.env.clock.instant();
        self.health.since.lock().is_some_and(|since| now.saturating_sub(since) > limits::GIVE_UP)
    }

    /// Starts a question, or joins the one that is under way. It goes on even if nobody waits any more, so that a
    /// call that comes again finds the answer.
    fn flight(self: &Arc<Self>, want: Want, turn: Turn) -> Shared<BoxFuture<'static, Result<()>>> {
        let mut flights = self.flights.0.lock();
        if let Some(flight) = flights.get(&want) {
            return flight.clone();
        }
        let (volume, key) = (self.clone(), want.clone());
        let task = tokio::spawn(async move {
            tracing::trace!(account = %volume.account, want = ?key, ?turn, "a question");
            let answer = volume.fetch(&key, turn).await;
            tracing::trace!(account = %volume.account, want = ?key, ok = answer.is_ok(), "its answer");
            volume.flights.0.lock().remove(&key);
            answer
        });
        let flight = task
            .map(|r| {
                r.unwrap_or_else(|_| Err(Error::new(ErrorKind::Io, "a question to the home was given up")))
            })
            .boxed()
            .shared();
        flights.insert(want, flight.clone());
        flight
    }

    async fn fetch(self: &Arc<Self>, want: &Want, turn: Turn) -> Result<()> {
        self.greeted().await?;
        let want = if let Want::Later(want) = want { want } else { want };
        for _ in 0..limits::QUESTIONS {
            let answer = self.persist(want.about(), || self.put(want, turn)).await;
            let Err(e) = &answer else {
                self.note_astray(want, false);
                return answer;
            };
            if !is_missing(e) {
                return answer;
            }
            match self.way_to(want.about()).await? {
                Way::Found => {}
                Way::Lost => return self.make_do(want, answer),
                Way::There => {
                    self.forget_attributes(want);
                    return answer;
                }
            }
        }
        Err(moved())
    }

    async fn put(self: &Arc<Self>, want: &Want, turn: Turn) -> Result<()> {
        match want {
            Want::Attr(id) => self.fetch_attr(*id).await,
            Want::List(dir, extent) => self.fetch_listing(*dir, *extent, turn).await,
            Want::Name(dir, name) => self.fetch_name(*dir, name).await,
            Want::Look(dir, name) => self.fetch_look(*dir, name).await,
            Want::Data(id, at) => self.fetch_data(*id, *at, turn).await,
            Want::Target(id) => self.fetch_target(*id).await,
            Want::Xattrs(id, name) => self.fetch_xattrs(*id, name.as_ref()).await,
            Want::Later(_) => Err(ErrorKind::Invalid.into()),
        }
    }

    /// Asks about an object, and asks again where our own operations moved it, or gave it another identity, while the
    /// question was under way, or may have.
    async fn persist<T, F>(&self, id: u64, ask: impl Fn() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        let mut outcomes = self.outcomes.subscribe();
        for _ in 0..limits::QUESTIONS {
            outcomes.borrow_and_update();
            let place = self.tree.lock().home_path(id).ok();
            let doubtful = self.is_in_doubt();
            let answer = ask().await;
            match &answer {
                Err(e) if is_out_of_reach(e) => self.suspect(e),
                _ => {
                    self.heard();
                    let certain = !doubtful && !self.is_in_doubt();
                    self.health.beginning.fetch_and(!certain, Ordering::Relaxed);
                }
            }
            let again = match &answer {
                // It was moved meanwhile, or the home is busy.
                Err(e) if e.kind == ErrorKind::Busy => true,
                Err(e) if is_missing(e) => {
                    let mut tree = self.tree.lock();
                    let moved = place.is_some_and(|place| has_moved(&mut tree, id, &place))
                        || tree.queue.is_writing(id);
                    let doubtful = doubtful || tree.queue.is_in_doubt();
                    // Another program has given its name to another one, at which nobody has looked yet.
                    if !moved && !doubtful && meta::look_elsewhere(&mut tree, id)? {
                        continue;
                    }
                    moved || doubtful
                }
                _ => false,
            };
            if !again {
                return answer;
            }
            // Either an outcome came in, or one is to come.
            let _ = tokio::time::timeout(limits::REVALIDATE_WAIT, outcomes.changed()).await;
        }
        Err(in_doubt())
    }

    /// Whether operations may have been executed whose answers are not known: the home may have moved what we look
    /// for to where they put it.
    fn is_in_doubt(&self) -> bool {
        self.tree.lock().queue.is_in_doubt()
    }

    /// A home that does not let us in any more may answer as another account next time.
    pub fn suspect(&self, e: &Error) {
        if e.kind.needs_person() {
            self.health.estranged.store(true, Ordering::Relaxed);
        }
    }

    /// What the home says of itself; connects at the first call and checks that it is the right account.
    pub async fn greeted(self: &Arc<Self>) -> Result<Hello> {
        let known = self.hello.lock().clone();
        if let Some(hello) = known.filter(|_| !self.health.estranged.load(Ordering::Relaxed)) {
            return Ok(hello);
        }
        if !self.connects() {
            return Err(self.offline());
        }
        let hello = self.home.attach().await?;
        self.recognise(&hello)?;
        // Before anybody goes on: where nothing may be changed.
        let guard = crate::guard::Guard::learn(self, &hello).await?;
        guard.keep(&*self.shared.store, self.id, &self.policy.options.protect)?;
        *self.guard.lock() = Arc::new(guard);
        self.is_greeted(&hello);
        Ok(hello)
    }

    /// What the home says of itself, or where it does not answer in time what it said to an earlier process.
    pub async fn introduced(self: &Arc<Self>) -> Result<Hello> {
        let known = self.hello.lock().clone();
        let Some(known) = known.filter(|_| self.health.estranged.load(Ordering::Relaxed)) else {
            return self.greeted().await;
        };
        if !self.connects() {
            return Ok(known);
        }
        let volume = self.clone();
        // It goes on when nobody waits any more, so that the next call finds the home greeted.
        let greeting = tokio::spawn(async move { volume.greeted().await });
        match tokio::time::timeout(limits::REVALIDATE_WAIT, greeting).await {
            Ok(Ok(Err(e))) if !is_out_of_reach(&e) => Err(e),
            Ok(Ok(Ok(hello))) => Ok(hello),
            _ => {
                self.unheard();
                Ok(known)
            }
        }
    }

    /// A question that is asked now.
    pub(crate) fn asked(&self, tree: &Tree) -> Asked {
        let (at, heard) = (self.env.clock.instant(), self.env.clock.now());
        Asked { at, tick: tree.tick, applied: 0, heard }
    }

    /// The same, answered now with what operations up to `applied` left.
    fn answered(&self, asked: Asked, applied: u64) -> Asked {
        Asked { applied, heard: self.env.clock.now(), ..asked }
    }

    async fn fetch_attr(&self, id: u64) -> Result<()> {
        let (asked, here, elsewhere) = {
            let mut tree = self.tree.lock();
            let asked = self.asked(&tree);
            let here = Self::loc(&mut tree, id)?;
            (asked, here, tree.local_path(id).ok())
        };
        let seen = match self.home.stat(&here).await {
            // While a rename is unsent the home may know the object by either name.
            Err(e) if is_missing(&e) => match elsewhere.filter(|p| *p != here.path) {
                Some(path) => self.home.stat(&Loc { path, id: here.id }).await,
                None => Err(e),
            },
            seen => seen,
        };
        self.take_attr(&mut self.tree.lock(), id, seen, (asked, &here.path))
    }

    /// Takes in what the home said of the object that it had at `place`.
    fn take_attr(
        &self,
        tree: &mut Tree,
        id: u64,
        seen: Result<Seen>,
        (asked, place): (Asked, &HomePath),
    ) -> Result<()> {
        match seen {
            Ok(seen) => {
                let asked = self.answered(asked, seen.applied);
                if tree.get(id)?.kind != seen.attr.kind {
                    return Err(ErrorKind::Stale.into());
                }
                let content = meta::observe(tree, id, &seen.attr, asked)?;
                self.content(tree, id, content);
                Ok(())
            }
            Err(e) if is_missing(&e) && tree.get(id).is_ok_and(|n| n.pending > 0) => Ok(()),
            Err(e) if is_missing(&e) && has_moved(tree, id, place) => Err(moved()),
            Err(e) if is_missing(&e) => Err(Error::new(ErrorKind::Stale, e.detail)),
            Err(e) => Err(e),
        }
    }

    async fn fetch_listing(self: &Arc<Self>, dir: u64, extent: Extent, turn: Turn) -> Result<()> {
        match self.confirm_listing(dir, turn == Turn::Later).await? {
            true => Ok(()),
            false => self.fetch_list(dir, extent, turn).await,
        }
    }

    async fn fetch_list(&self, dir: u64, extent: Extent, turn: Turn) -> Result<()> {
        let (asked, at, wants_told) = {
            let mut tree = self.tree.lock();
            (self.asked(&tree), Self::loc(&mut tree, dir)?, self.wants_told(&mut tree, dir))
        };
        let page_size = if extent == Extent::Small { limits::SMALL_DIR_ENTRIES } else { limits::LIST_PAGE };
        let (mut after, mut names, mut applied) = (None, 0, u64::MAX);
        loop {
            let Watched { page, epoch } = match &after {
                None if wants_told && turn == Turn::Later => {
                    self.home.watch_later(&at, page_size, dir).await?
                }
                None if wants_told => self.home.watch(&at, page_size, dir).await?,
                after => Watched::not(self.home.list(&at, after.as_ref(), page_size).await?),
            };
            if are_names_alone(&page) {
                return Err(Error::new(ErrorKind::Access, format!("{} may not be searched", at.path)));
            }
            let last = page.entries.last().map(|e| e.name.clone());
            names += page.entries.len();
            // A home that goes round in circles is not followed.
            if page.more && last <= after || names > limits::DIR_ENTRIES_MAX {
                return Err(Error::new(ErrorKind::TooBig, format!("{} has too many names", at.path)));
            }
            let more = page.more;
            applied = applied.min(page.applied);
            // One page at a time, so that other calls get at the tree in between.
            let mut tree = self.tree.lock();
            if has_moved(&mut tree, dir, &at.path) {
                return Err(moved());
            }
            if let Some(epoch) = epoch {
                tree.names_mut(dir)?.told.begins(epoch, asked.at);
            }
            let asked = self.answered(asked, applied);
            let changed = meta::with_names(&mut tree, dir, |tree| {
                let changed = meta::merge_page(tree, dir, page, asked)?;
                if !more {
                    meta::finish_listing(tree, dir, asked)?;
                }
                Ok(changed)
            })?;
            changed.into_iter().for_each(|id| self.content(&tree, id, Content::Changed));
            self.log_bindings_if_room(&mut tree)?;
            if !more {
                return Ok(());
            }
            if extent == Extent::Small {
                tree.names_mut(dir)?.big = true;
                return Ok(());
            }
            after = last;
        }
    }

    async fn fetch_name(&self, dir: u64, name: &Name) -> Result<()> {
        let (asked, place) = {
            let mut tree = self.tree.lock();
            (self.asked(&tree), tree.home_path(dir)?)
        };
        let seen = self.home.stat(&Loc { path: place.join(name), id: None }).await;
        let mut tree = self.tree.lock();
        meta::with_names(&mut tree, dir, |tree| self.take_name(tree, (dir, name), seen, (asked, &place)))?;
        self.log_bindings_if_room(&mut tree)
    }

    /// The directory's attributes, and then the name, in one question.
    async fn fetch_look(&self, dir: u64, name: &Name) -> Result<()> {
        let (asked, at) = {
            let mut tree = self.tree.lock();
            (self.asked(&tree), Self::loc(&mut tree, dir)?)
        };
        match self.home.look(&at, name).await {
            Ok((above, named)) => {
                let mut tree = self.tree.lock();
                meta::with_names(&mut tree, dir, |tree| {
                    self.take_attr(tree, dir, Ok(above), (asked, &at.path))?;
                    self.take_name(tree, (dir, name), named, (asked, &at.path))
                })?;
                self.log_bindings_if_room(&mut tree)
            }
            // It may be found elsewhere.
            Err(e) if is_missing(&e) => self.fetch_attr(dir).await,
            Err(e) => Err(e),
        }
    }

    /// Takes in what the home said of a name in the directory that it had at `place`.
    fn take_name(
        &self,
        tree: &mut Tree,
        (dir, name): (u64, &Name),
        seen: Result<Seen>,
        (asked, place): (Asked, &HomePath),
    ) -> Result<()> {
        let missing = matches!(&seen, Err(e) if e.kind == ErrorKind::NotFound);
        if missing && tree.queue.is_in_doubt() || has_moved(tree, dir, place) {
            return Err(moved());
        }
        let (attr, applied) = match &seen {
            Ok(seen) => (Some(&seen.attr), seen.applied),
            Err(e) if e.kind == ErrorKind::NotFound => (None, 0),
            Err(e) => return Err(e.clone()),
        };
        let asked = self.answered(asked, applied);
        if let Some((id, content)) = meta::merge_name(tree, dir, name, attr, asked)? {
            self.content(tree, id, content);
        }
        Ok(())
    }

    async fn fetch_target(&self, id: u64) -> Result<()> {
        let at = Self::loc(&mut self.tree.lock(), id)?;
        let target = self.home.readlink(&at).await?;
        self.tree.lock().get(id)?.target = Some(target);
        Ok(())
    }

    async fn fetch_xattrs(&self, id: u64, name: Option<&XattrName>) -> Result<()> {
        let (asked, at) = {
            let mut tree = self.tree.lock();
            (self.asked(&tree), Self::loc(&mut tree, id)?)
        };
        let answer = self.home.xattrs(&at, name).await;
        let mut tree = self.tree.lock();
        let fs = tree.get(id)?.home_id.fs;
        match answer {
            Ok(answer) => {
                if may_have(answer.attr.kind) {
                    tree.note_xattrs(fs, true, asked.at);
                }
                let asked = self.answered(asked, answer.applied);
                let content = meta::merge_xattrs(&mut tree, id, answer, asked)?;
                self.content(&tree, id, content);
                Ok(())
            }
            Err(e) if e.kind == ErrorKind::Unsupported => {
                tree.note_xattrs(fs, false, asked.at);
                Ok(())
            }
            Err(e) => Err(gone(e)),
        }
    }

    async fn fetch_data(&self, id: u64, at: u64, turn: Turn) -> Result<()> {
        let (asked, loc, len) = {
            let mut tree = self.tree.lock();
            // What is more than the file is known to have is not reckoned with on the way.
            let left = tree.get(id)?.base_len.saturating_sub(at);
            if turn == Turn::Ahead && self.data.gaps(id, at, left.min(limits::FETCH_CHUNK)).is_empty() {
                // Somebody else's question has brought it meanwhile.
                return Ok(());
            }
            let len = left.next_multiple_of(limits::FETCH_MIN);
            (self.asked(&tree), Self::loc(&mut tree, id)?, len.clamp(limits::FETCH_MIN, limits::FETCH_CHUNK))
        };
        let chunk = match self.fetch_sparse(id, &loc, (at, len), turn == Turn::Later).await {
            Some(chunk) => chunk,
            None => self.home.read_in(turn, &loc, at, len as u32).await,
        };
        let chunk = chunk.map_err(gone)?;
        self.keep_chunk(id, at, &chunk, asked)
    }

    /// Puts fetched bytes into the gaps of the cache, if they belong to the version that the cache holds.
    fn keep_chunk(&self, id: u64, at: u64, chunk: &Chunk, asked: Asked) -> Result<()> {
        let mut tree = self.tree.lock();
        let version = chunk.attr.version();
        let content = meta::observe(&mut tree, id, &chunk.attr, self.answered(asked, asked.applied))?;
        self.content(&tree, id, content);
        let inode = tree.get(id)?;
        self.alike.touch(id, inode.base_len);
        if inode.pending > 0 && inode.base.is_some_and(|b| !b.same_content(&version)) {
            // The base that our changes stand on is gone; the conflict shows when they are sent. Until then
            // what the home has now is the best answer for bytes that we never saw.
            tracing::warn!(account = %self.account, id, "a file changed at the home under unsent changes");
        }
        if inode.pending == 0 && inode.base.is_some_and(|b| b != version) {
            // A younger answer has told of another version: these bytes may be of the one before.
            return Ok(());
        }
        let end = inode.base_len.min(at + chunk.data.len() as u64);
        if self.data.version(id) != inode.base {
            if inode.pending == 0 {
                self.data.drop_object(id);
            }
            if let Some(base) = inode.base {
                self.data.set_version(id, base);
            }
        }
        for (gap, len) in self.data.gaps(id, at, end.saturating_sub(at)) {
            let from = (gap - at) as usize;
            let bytes = chunk.data.slice(from..from + len as usize);
            match self.data.put(id, gap, &[bytes], crate::data::Pin::Clean) {
                Ok(_) => {}
                Err(crate::env::Error::Full(_)) => break,
                Err(e) => return Err(local(e)),
            }
        }
        Ok(())
    }

    /// Reads bytes around the cache, where the cache cannot take them; of whatever version the home has now.
    pub async fn read_through(&self, id: u64, at: u64, len: u32) -> Result<Chunk> {
        if !self.connects() {
            return Err(self.offline());
        }
        self.persist(id, || self.read_home(id, at, len)).await
    }

    async fn read_home(&self, id: u64, at: u64, len: u32) -> Result<Chunk> {
        let (asked, loc) = {
            let mut tree = self.tree.lock();
            (self.asked(&tree), Self::loc(&mut tree, id)?)
        };
        let chunk = self.home.read(&loc, at, len).await.map_err(gone)?;
        let mut tree = self.tree.lock();
        let content = meta::observe(&mut tree, id, &chunk.attr, self.answered(asked, asked.applied))?;
        self.content(&tree, id, content);
        Ok(chunk)
    }

    /// Space of the file system of an object, as the home says now.
    pub async fn fetch_statfs(self: &Arc<Self>, id: u64) -> Result<StatFs> {
        if !self.connects() {
            return Err(self.offline());
        }
        self.greeted().await?;
        let at = self.place_at_home(id)?;
        let (fs, settled) = {
            let mut tree = self.tree.lock();
            let fs = tree.get(id)?.home_id.fs;
            (fs, tree.queue.demands().of(fs).settled)
        };
        crate::stats::waits();
        tracing::debug!(account = %self.account, id, "the home is asked for its space");
        let space = self.home.statfs(&at).await?;
        Ok(self.has_space(fs, space, settled))
    }

    /// The object, or the nearest directory above it that the home has: what it does not have yet will lie there.
    pub fn place_at_home(&self, id: u64) -> Result<Loc> {
        let mut tree = self.tree.lock();
        let places: Vec<u64> = std::iter::once(id).chain(tree.ancestors(id)).collect();
        let known = places.into_iter().find_map(|place| Self::loc(&mut tree, place).ok());
        known.ok_or_else(|| Error::from(ErrorKind::Stale))
    }

    /// Identity and attributes of a path, past all caches.
    pub async fn probe(&self, path: HomePath) -> Result<home::Attr> {
        Ok(self.home.stat(&Loc { path, id: None }).await?.attr)
    }

    /// Asks for something that nobody waits for yet.
    pub fn ask_ahead(self: &Arc<Self>, want: Want) {
        if self.connects() {
            drop(self.flight(want, Turn::Ahead));
        }
    }

    /// Asks for a listing or data that no call waits for, however long that takes, until the home is given up.
    pub async fn ask_later(self: &Arc<Self>, want: Want) -> Result<()> {
        let want = if self.is_asked(&want) { want } else { Want::Later(Box::new(want)) };
        let mut moved = 0;
        while self.connects() {
            match self.flight(want.clone(), Turn::Later).await {
                Err(e) if e.kind == ErrorKind::Unreachable => {
                    self.unheard();
                    if self.is_given_up() {
                        return Err(e);
                    }
                }
                Err(e) if e.kind == ErrorKind::Busy && moved < limits::QUESTIONS => moved += 1,
                answer => return answer,
            }
            let _awaits = self.awaits();
            let pause = self.home.wanted().map_or(limits::ASK_AGAIN, |left| left.min(limits::ASK_AGAIN));
            tokio::time::sleep(pause).await;
        }
        Err(self.offline())
    }

    /// Whether the home has been asked for this and not answered yet.
    pub fn is_asked(&self, want: &Want) -> bool {
        self.flights.0.lock().contains_key(want)
    }

    /// Drops cached bytes that belong to another version; what is unsent stays.
    pub(crate) fn content(&self, tree: &Tree, id: u64, content: Content) {
        if content == Content::Changed {
            self.relay(tree, id);
        }
    }

    /// Where the home has an object.
    pub fn loc(tree: &mut Tree, id: u64) -> Result<Loc> {
        let path = tree.home_path(id)?;
        let home_id = tree.get(id)?.home_id;
        Ok(Loc { path, id: (home_id.ino != 0).then_some(home_id) })
    }
}

/// Takes in what the home tells of changes, as long as the volume lives.
pub async fn listen(volume: Weak<Volume>, home: Arc<dyn Home>) {
    loop {
        let changes = home.changes().await;
        let Some(volume) = volume.upgrade() else { return };
        let now = volume.env.clock.instant();
        for some in changes.chunks(limits::TOLD_AT_ONCE) {
            let new = {
                let mut tree = volume.tree.lock();
                let mut told: Vec<(u64, &Changed)> = Vec::with_capacity(some.len());
                for changed in some {
                    told.extend(volume.told_of(&mut tree, changed.mark).map(|dir| (dir, changed)));
                }
                told.iter().for_each(|(dir, changed)| freshness::hear(&mut tree, *dir, changed, now));
                new_names(&mut tree, &told)
            };
            // Each may be one more of a file that is known, which then has another link count and is told of no more.
            new.into_iter().for_each(|(dir, name)| volume.ask_ahead(Want::Name(dir, name)));
        }
    }
}

/// Names that were told to have changed and that nothing was known by.
fn new_names(tree: &mut Tree, changes: &[(u64, &Changed)]) -> Vec<(u64, Name)> {
    let mut new = Vec::new();
    for (dir, changed) in changes {
        let Ok(node) = tree.names(*dir) else { continue };
        let free =
            |name: &&Name| node.slot(name).is_none_or(|slot| slot.child.is_none() && slot.pending == 0);
        new.extend(changed.names.iter().filter(free).map(|name| (*dir, name.clone())));
    }
    new
}

/// Whether every byte is there.
pub fn is_whole(parts: &[Part]) -> bool {
    parts.iter().all(|p| matches!(p, Part::Have(_)))
}

/// Whether an answer for what the home had at `place` may be about another object, or none: what we asked for was moved
/// since by an operation of ours, or may have been by one that has no answer yet.
fn has_moved(tree: &mut Tree, id: u64, place: &HomePath) -> bool {
    tree.home_path(id).as_ref() != Ok(place) || tree.is_moving(id)
}

/// What was asked may be about another object: to be asked again.
fn moved() -> Error {
    Error::new(ErrorKind::Busy, "it was moved while it was asked for")
}

fn in_doubt() -> Error {
    Error::new(ErrorKind::Busy, "it is not known yet which changes have arrived")
}

/// What the home says of an object that it does not have any more where it was.
fn gone(e: Error) -> Error {
    match e.kind {
        ErrorKind::NotFound => Error::new(ErrorKind::Stale, e.detail),
        _ => e,
    }
}

pub fn is_missing(e: &Error) -> bool {
    matches!(e.kind, ErrorKind::NotFound | ErrorKind::Stale | ErrorKind::NotDir)
}

/// Whether a directory may not be searched: names alone would be taken for no names.
fn are_names_alone(page: &Page) -> bool {
    !page.entries.is_empty() && page.entries.iter().all(|e| e.attr.is_none())
}

/// Whether an error says more about the way to the home than about the home.
pub fn is_out_of_reach(e: &Error) -> bool {
    e.kind.is_of_the_way() || e.kind == ErrorKind::Busy
}
