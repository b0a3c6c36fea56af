//! The authoritative copy of a tree. Everything else in Trellis is a cache of a [`Home`].
//!
//! # Layout
//! - [`attr`], [`name`], [`error`]: the vocabulary that all layers above share.
//! - [`xattr`]: extended attributes, of one namespace.
//! - [`op`]: a change as a value: built once, journalled, laid over caches, applied here.
//! - [`posix`]: a home on this machine's file systems. [`buffers`]: memory for long reads.
//! - [`cut`]: where content is cut, so that the same bytes are found again elsewhere. [`sparse`]: bytes without those that are known.
//! - [`agent`], [`sftp`]: homes on other machines; [`ssh`] reaches them, [`remote`] keeps them connected.

pub mod agent;
pub mod attr;
pub mod buffers;
pub mod cut;
pub mod error;
pub mod limits;
#[cfg(feature = "testing")]
pub mod memory;
pub mod name;
pub mod op;
pub mod posix;
mod recent;
#[cfg(feature = "client")]
pub mod remote;
#[cfg(feature = "client")]
pub mod sftp;
pub mod sparse;
#[cfg(feature = "client")]
pub mod ssh;
#[cfg(feature = "testing")]
pub mod testing;
pub mod xattr;

pub use attr::{Access, Attr, HomeId, Kind, StatFs, Time, Version, Writable};
pub use error::{Error, ErrorKind, Result, io_text};
pub use name::{HomePath, Name};
pub use op::{
    Claimed, Done, Entered, New, Op, OpId, Outcome, Payload, Piece, Placed, SetAttr, SetTime, Term,
};
pub use xattr::{Xattr, XattrHow, XattrName, Xattrs};
#[cfg(feature = "client")]
pub use {
    agent::deploy::AgentBinaries,
    remote::{RemoteHome, connect},
    ssh::{Account, SshTarget},
};

use bytes::Bytes;
use oncrpc::xdr::{Reader, Writer, Xdr};
use std::collections::VecDeque;
use std::time::Duration;

oncrpc::xdr! {
    /// Where an object lies at its home. The path leads there; the identity, if given, must be found there.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Loc {
        /// Below the root of the home.
        pub path: HomePath,
        /// What must be found at the path; anything else there is [`ErrorKind::Stale`].
        pub id: Option<HomeId>,
    }

    /// An answer, and how much of our own history it already contains.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Seen {
        /// The number of the last operation of the volume that was executed before the answer was taken.
        pub applied: u64,
        /// Attributes of the object.
        pub attr: Attr,
    }

    /// A part of a directory, in the order of the names' bytes.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Page {
        /// The number of the last operation of the volume that was executed before the page was taken.
        pub applied: u64,
        /// The directory itself.
        pub dir: Attr,
        /// Without `.` and `..`.
        pub entries: Vec<Entry>,
        /// Whether names follow after the last entry.
        pub more: bool,
    }

    /// What is believed to be the only page of a directory.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Believed {
        /// The directory.
        pub dir: Loc,
        /// As for [`Home::watch`].
        pub mark: u64,
        /// [`Page::digest`] of the page.
        pub digest: [u8; 16],
    }

    /// What has changed in a watched directory. Each part is told once, until the directory is listed again.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct Changed {
        /// Of which directory.
        pub mark: Mark,
        /// Anything in it, and it is not watched any more.
        pub all: bool,
        /// Its own attributes.
        pub itself: bool,
        /// What these names stand for, or attributes of that.
        pub names: Vec<Name>,
    }

    /// Bytes of a file with the attributes they were read under.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Chunk {
        /// Attributes taken after the bytes: equal versions before and after mean a consistent read.
        pub attr: Attr,
        /// Short only at the end of the file.
        pub data: Bytes,
    }

    /// Bytes of a file at the home that are staged as they are.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Copied {
        /// Position in the staged data.
        pub at: u64,
        /// Offset in the file.
        pub from: u64,
        /// Length in bytes, at most [`limits::READ_MAX`].
        pub len: u32,
        /// BLAKE3 of the bytes.
        pub hash: [u8; 32],
    }

    /// How strong a home is. Promises shown to the user follow from it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Class {
        /// Full POSIX semantics with identities, nanosecond times and exchange.
        Posix = 0,
        /// SFTP: no identities, no hard-link counts, second times, check-then-act instead of exchange.
        Sftp = 1,
    }

    /// What a home says of itself and of the account that we use there.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Hello {
        /// How strong it is.
        pub class: Class,
        /// Whether [`Home::stage`] works.
        pub stages: bool,
        /// The account's uid; home-native.
        pub uid: u32,
        /// The account's primary gid; home-native.
        pub gid: u32,
        /// All groups of the account.
        pub groups: Vec<u32>,
        /// The account's home directory.
        pub home_dir: HomePath,
        /// Random bytes kept in the account's home directory, which tell that it is still the same account;
        /// `None` where they cannot be kept.
        pub token: Option<[u8; 16]>,
        /// Whether the token was made just now.
        pub token_is_new: bool,
        /// Tells two boots and two machines apart.
        pub boot_id: Bytes,
        /// The home's clock.
        pub clock: Time,
        /// Tells the account's home directory from every other one for as long as its machine, or container, runs;
        /// `None` where that is not certain.
        pub place: Option<[u8; 16]>,
    }
}

impl Hello {
    /// Whether it is the account's home directory that `other` tells of, for certain, whatever the tokens are: somebody may
    /// have removed one.
    pub fn is_in_the_same_place(&self, other: &Hello) -> bool {
        self.uid == other.uid && self.place.is_some() && self.place == other.place
    }
}

/// Of which directory changes are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// The number that it was given when it was listed, never 0: [`Home::watch`].
    Given(u64),
    /// The directory itself: [`Home::walk`] came to it.
    Walked(HomeId),
}

impl Default for Mark {
    fn default() -> Self {
        Mark::Walked(HomeId::default())
    }
}

impl From<u64> for Mark {
    fn from(given: u64) -> Mark {
        Mark::Given(given)
    }
}

impl Xdr for Mark {
    fn encode(&self, w: &mut Writer) {
        match self {
            Mark::Given(number) => number.encode(w),
            Mark::Walked(id) => {
                0u64.encode(w);
                id.encode(w);
            }
        }
    }
    fn decode(r: &mut Reader) -> oncrpc::xdr::Result<Self> {
        match u64::decode(r)? {
            0 => HomeId::decode(r).map(Mark::Walked),
            number => Ok(Mark::Given(number)),
        }
    }
}

/// The first page of a directory, and whether its changes are told from now on.
#[derive(Debug, Clone, PartialEq)]
pub struct Watched {
    /// The page.
    pub page: Page,
    /// Everything that changed after the question was asked is told, as long as [`Home::epoch`] is this; `None`: nothing
    /// is told of this directory.
    pub epoch: Option<u64>,
}

/// Directories that a walk came to, in its order.
#[derive(Debug, Clone, PartialEq)]
pub struct Walked {
    /// How many of those that it began with it came to. What of them is not among `dirs` could not be listed, or is large.
    pub came: u32,
    /// Where each of them lies, and the whole of it.
    pub dirs: Vec<(HomePath, Watched)>,
}

/// What a home says of a page that was believed to be that of a directory.
#[derive(Debug, Clone, PartialEq)]
pub enum Belief {
    /// It is. What does not count for the digest comes beside it.
    True {
        /// As [`Page::applied`].
        applied: u64,
        /// As [`Page::bare_bits`].
        bare: Bytes,
        /// As [`Watched::epoch`].
        epoch: Option<u64>,
    },
    /// It is this one.
    Other(Watched),
    /// It is not, and has to be listed.
    Unlike,
}

impl Page {
    /// One bit for each entry, the first one the lowest of the first byte: [`Entry::bare`].
    pub fn bare_bits(&self) -> Bytes {
        let mut bare = vec![0u8; self.entries.len().div_ceil(8)];
        for (i, _) in self.entries.iter().enumerate().filter(|(_, e)| e.bare) {
            bare[i / 8] |= 1 << (i % 8);
        }
        bare.into()
    }

    /// Takes in what [`Page::bare_bits`] told.
    pub fn set_bare(&mut self, bits: &[u8]) {
        for (i, entry) in self.entries.iter_mut().enumerate() {
            entry.bare = bits.get(i / 8).is_some_and(|byte| byte >> (i % 8) & 1 == 1);
        }
    }

    /// The directories in it, which lies at `path`, to which [`Home::walk`] goes on.
    pub fn below<'a>(&'a self, path: &'a HomePath) -> impl Iterator<Item = Loc> + 'a {
        let goes = |attr: &&Attr| {
            let may = attr.access.read && attr.access.exec;
            attr.kind == Kind::Dir && may && attr.size > 0 && attr.id.fs == self.dir.id.fs
        };
        let known =
            self.entries.iter().filter_map(move |entry| Some((entry, entry.attr.as_ref().filter(goes)?)));
        known.map(|(entry, attr)| Loc { path: path.join(&entry.name), id: Some(attr.id) })
    }

    /// Stands for the page in which a directory is as a whole: 16 bytes of the BLAKE3 of its XDR, without times of access and
    /// operations that were executed. `None` where more names follow.
    pub fn digest(&self) -> Option<[u8; 16]> {
        if self.more {
            return None;
        }
        let still = |attr: &Attr| Attr { atime: Time::default(), ..*attr };
        let mut w = Writer::new();
        still(&self.dir).encode(&mut w);
        for entry in &self.entries {
            entry.name.encode(&mut w);
            entry.attr.as_ref().map(still).encode(&mut w);
            entry.target.encode(&mut w);
        }
        let mut hasher = blake3::Hasher::new();
        w.into_segments().iter().for_each(|part| {
            hasher.update(part);
        });
        let mut digest = [0; 16];
        digest.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        Some(digest)
    }
}

impl Watched {
    /// A page of a directory that is not watched.
    pub fn not(page: Page) -> Watched {
        Watched { page, epoch: None }
    }
}

/// One name of a directory.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The name.
    pub name: Name,
    /// Its object; `None` where the home may list but not look.
    pub attr: Option<Attr>,
    /// Where a symbolic link points.
    pub target: Option<Bytes>,
    /// The object certainly had no extended attributes when `attr` was taken. Stands beside the entry on the wire,
    /// where both ends know of it.
    pub bare: bool,
}

impl Xdr for Entry {
    fn encode(&self, w: &mut Writer) {
        self.name.encode(w);
        self.attr.encode(w);
        self.target.encode(w);
    }
    fn decode(r: &mut Reader) -> oncrpc::xdr::Result<Self> {
        let (name, attr, target) = (Name::decode(r)?, Option::decode(r)?, Option::decode(r)?);
        Ok(Entry { name, attr, target, bare: false })
    }
}

/// When a question goes to a home.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// As soon as may be: somebody waits.
    Now,
    /// Behind those that somebody waits for; this one he may want next.
    Ahead,
    /// Behind all others.
    Later,
}

/// The connection to a home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Link {
    /// Never tried, or closed for want of use.
    Idle,
    /// Being made.
    Connecting,
    /// Works.
    Up,
    /// Does not work; the text says why and what to do.
    Down(String),
}

/// A home as `trellis status` shows it.
#[derive(Debug, Clone)]
pub struct Status {
    /// The connection.
    pub link: Link,
    /// The command that a person has to run, where the home is down because a login there asks something.
    pub login: Option<String>,
    /// The home is down until a person does something, be it a login or not: waiting is of no use.
    pub needs_person: bool,
    /// By how many seconds the home's clock was ahead of ours when it was last connected, behind where negative; `None`
    /// where the home tells no clock.
    pub clock_ahead_s: Option<f64>,
    /// How strong the home is, once known.
    pub class: Option<Class>,
    /// What is weaker than the full promise, for a person to read.
    pub weaker: Vec<String>,
    /// Whether changes there are told: [`Home::epoch`].
    pub watches: bool,
    /// Sequential waits for the home since the start.
    pub round_trips: u64,
    /// Answers, and changes on their way, since the start whose bytes were not those that were sent. None of them was used.
    pub damaged: u64,
    /// Bytes received from the home since the start.
    pub bytes_in: u64,
    /// Bytes sent to the home since the start.
    pub bytes_out: u64,
}

impl Status {
    /// Of a home that was not asked for anything yet.
    pub fn new(link: Link, class: Option<Class>) -> Status {
        Status {
            link,
            login: None,
            needs_person: false,
            clock_ahead_s: None,
            class,
            weaker: Vec::new(),
            watches: false,
            round_trips: 0,
            damaged: 0,
            bytes_in: 0,
            bytes_out: 0,
        }
    }
}

/// The authoritative copy.
///
/// Calls may run concurrently. [`ErrorKind::Unreachable`] means that it is unknown whether anything
/// happened; every call may then be repeated, because reads change nothing and changes are
/// idempotent by their [`OpId`].
#[async_trait::async_trait]
pub trait Home: Send + Sync {
    /// The state of the connection, without using it.
    fn status(&self) -> Status;

    /// Tells what it has shown itself to be to an earlier process. It has to be that again: another class would change
    /// the identity of every object.
    fn expect(&self, class: Class) {
        let _ = class;
    }

    /// Lets the next call connect even if a pause is on: a person has done something about the reason.
    fn retry_now(&self) {}

    /// Somebody waits for the home: a pause after a lost connection ends soon, but for one after a refused login. Answers
    /// how long calls go on failing without an attempt to connect; `None` where there is or will be a connection.
    fn wanted(&self) -> Option<Duration> {
        None
    }

    /// A person asks for the home: any pause ends soon, even one after a refused login.
    fn asked(&self) {}

    /// Connects if need be. Every other call does so too.
    async fn attach(&self) -> Result<Hello>;

    /// Attributes of one object; a symbolic link is not followed.
    async fn stat(&self, at: &Loc) -> Result<Seen>;

    /// Attributes of a directory, and behind them, so that they are never newer, those of what has a name in it.
    async fn look(&self, dir: &Loc, name: &Name) -> Result<(Seen, Result<Seen>)> {
        let above = self.stat(dir).await?;
        Ok((above, self.stat(&Loc { path: dir.path.join(name), id: None }).await))
    }

    /// At most `max` entries that follow the name `after`.
    async fn list(&self, dir: &Loc, after: Option<&Name>, max: u32) -> Result<Page>;

    /// The first page of a directory, as [`Home::list`]. Where the home can, the directory is watched from before it was
    /// read: [`Home::changes`] tells of it under the number `mark`, of which a directory has only the last one.
    async fn watch(&self, dir: &Loc, max: u32, mark: u64) -> Result<Watched>;

    /// The same as [`Home::watch`] of several directories, at most [`limits::agent::CONFIRM_MAX`], each of at most
    /// [`limits::agent::LIST_ENTRIES_MAX`] entries whose page may be known: it need not come then. In the order of the
    /// question. `later`: for somebody who can wait. [`ErrorKind::Unsupported`] where the home cannot.
    async fn confirm(&self, dirs: Vec<Believed>, later: bool) -> Result<Vec<Result<Belief>>> {
        let _ = (dirs, later);
        Err(ErrorKind::Unsupported.into())
    }

    /// Whether [`Home::confirm`] works, as far as is known without using the connection.
    fn confirms(&self) -> bool {
        false
    }

    /// The same as [`Home::watch`] of several directories, at most [`limits::agent::WALK_FROM`], one after the other, and then
    /// of those in them, and so on, until about so many bytes of names and attributes have come together, at most
    /// [`limits::agent::WALK_BYTES`], or until it has taken long and something is found. It stays on the file system that a
    /// directory is on, follows no symbolic link, and leaves alone what says that it has no size: to list it might mount
    /// something. Told of by [`Mark::Walked`].
    /// `later`: for somebody who can wait. [`ErrorKind::Unsupported`] where the home cannot.
    async fn walk(&self, from: Vec<Loc>, bytes: u32, later: bool) -> Result<Walked> {
        let _ = later;
        let (mut room, mut left) = (bytes as usize, from.len());
        let mut walked = Walked { came: 0, dirs: Vec::new() };
        let mut todo = VecDeque::from(from);
        while room > 0
            && let Some(at) = todo.pop_front()
        {
            let page = match self.list(&at, None, limits::agent::LIST_ENTRIES_MAX).await {
                Err(e) if e.kind.is_of_the_way() => return Err(e),
                page => page.ok().filter(|page| !page.more),
            };
            walked.came += u32::from(left > 0);
            left = left.saturating_sub(1);
            if let Some(page) = page {
                room = room.saturating_sub(page.to_bytes().len());
                todo.extend(page.below(&at.path));
                walked.dirs.push((at.path, Watched::not(page)));
            }
        }
        Ok(walked)
    }

    /// Whether [`Home::walk`] takes one question, as far as is known without using the connection.
    fn walks(&self) -> bool {
        false
    }

    /// Waits for changes in watched directories, made by anybody but through this very connection. For one caller at a time.
    async fn changes(&self) -> Vec<Changed>;

    /// Which span this is, of those in which no change of a watched directory went untold; without using the connection.
    /// `None` while nothing is told: the home cannot, or is not connected, or silent. No span has the number of an
    /// earlier one.
    fn epoch(&self) -> Option<u64>;

    /// At most `len` bytes at offset `at`, and of [`limits::READ_MAX`], with the attributes of a moment after it.
    async fn read(&self, file: &Loc, at: u64, len: u32) -> Result<Chunk>;

    /// The same as [`Home::watch`] for somebody who can wait: what others ask for goes before it.
    async fn watch_later(&self, dir: &Loc, max: u32, mark: u64) -> Result<Watched> {
        self.watch(dir, max, mark).await
    }

    /// The same as [`Home::read`], in this turn.
    async fn read_in(&self, turn: Turn, file: &Loc, at: u64, len: u32) -> Result<Chunk> {
        let _ = turn;
        self.read(file, at, len).await
    }

    /// Bytes of reads that may be under way at once without a queue on the way there, as far as it has told, and without
    /// using the connection: more is asked for in vain. `None` where nothing is known of it.
    fn window(&self) -> Option<u64> {
        None
    }

    /// The same as [`Home::read`], without bytes that are in chunks with these names, at most
    /// [`limits::agent::KNOWN_MAX`]: see [`sparse`]. `later`: for somebody who can wait. [`ErrorKind::Unsupported`] where the
    /// home cannot.
    async fn read_known(
        &self,
        file: &Loc,
        at: u64,
        len: u32,
        known: Vec<u64>,
        later: bool,
    ) -> Result<sparse::Sparse> {
        let _ = (file, at, len, known, later);
        Err(ErrorKind::Unsupported.into())
    }

    /// Whether [`Home::read_known`] works, as far as is known without using the connection, and the home is so far that it
    /// is worth it.
    fn knows(&self) -> bool {
        false
    }

    /// Where a symbolic link points.
    async fn readlink(&self, at: &Loc) -> Result<Bytes>;

    /// Space of the file system that holds the object.
    async fn statfs(&self, at: &Loc) -> Result<StatFs>;

    /// Extended attributes of one object; none for what is neither file nor directory. Values stand in the answer while
    /// they are together not longer than [`limits::XATTR_TOGETHER`], that of `want` in any case.
    /// [`ErrorKind::Unsupported`] where the home, or the file system of the object, keeps none.
    async fn xattrs(&self, at: &Loc, want: Option<&XattrName>) -> Result<Xattrs> {
        let _ = want;
        Err(Error::new(ErrorKind::Unsupported, format!("{}: the home keeps no extended attributes", at.path)))
    }

    /// Hands over bytes that a later operation refers to as [`Payload::Staged`], so that the operation itself stays
    /// small. `op` names what is staged, and `at` is their position in it. An operation that is sent after this returned
    /// comes behind them. They may be lost or forgotten before: it then fails with [`ErrorKind::NotStaged`] and has no
    /// effect. What nobody waits for any more may still arrive: who stages other bytes takes another name.
    async fn stage(&self, op: OpId, at: u64, data: Bytes) -> Result<()>;

    /// Holds on disk what is staged as `op` from now on, if [`Home::spools`]: as much as there is room for, and also after the connection is lost,
    /// until the volume is claimed over another one before this is asked there again. Answers how many bytes are held from the start without a gap; with these
    /// it may go on. Operations refer to it as [`Payload::Spooled`].
    ///
    /// # Errors
    /// What kept bytes from being held that were staged since; `Unsupported` where there are no spools.
    async fn spool(&self, op: OpId) -> Result<u64> {
        let _ = op;
        Err(ErrorKind::Unsupported.into())
    }

    /// Holds nothing any more of what it was asked to hold as `op`: no operation will refer to it. Who gets no answer need not ask again: the
    /// next claim removes it as well.
    async fn unspool(&self, op: OpId) -> Result<()> {
        let _ = op;
        Ok(())
    }

    /// Whether there are spools, as the home said when it was connected last.
    fn spools(&self) -> bool {
        false
    }

    /// The same as [`Home::stage`] with bytes that the home has already: those of a file that lies at one of these places,
    /// which are tried in their order for each part. What is not there, or has another hash, is not staged.
    /// [`ErrorKind::Unsupported`] where the home cannot.
    async fn copy(&self, op: OpId, places: Vec<Loc>, parts: Vec<Copied>) -> Result<()> {
        let _ = (op, places, parts);
        Err(ErrorKind::Unsupported.into())
    }

    /// Whether [`Home::copy`] works, as far as is known without using the connection, and the home is so far that it is
    /// worth the look for such bytes.
    fn copies(&self) -> bool {
        false
    }

    /// Takes over the changes of a volume of a gateway: from then on nothing has an effect that was sent before, however
    /// late it arrives. `lost`: the numbers of those that were sent and whose outcomes are not known, ascending, at most
    /// [`limits::BEGUN_MAX`]. Answers what is known of the operations from the first of these on, or `None`: nothing, so
    /// that they have to be looked for.
    ///
    /// Who has claimed once has to do so again when an operation fails with [`ErrorKind::NotClaimed`], which means that
    /// nothing happened: the connection is another one, or somebody else has taken over.
    async fn claim(&self, gateway: u64, volume: u32, lost: Vec<u64>) -> Result<Option<Claimed>>;

    /// The same by a gateway that shows that its state directory is not behind the home. A home that can keep no such word goes
    /// on without.
    ///
    /// # Errors
    /// [`ErrorKind::Superseded`] where the home has the word of a claim that the gateway does not know, or has executed what that
    /// has not sent yet: nothing happened. There is nothing to be tried again.
    async fn claim_in(&self, gateway: u64, volume: u32, lost: Vec<u64>, term: Term) -> Result<Entered> {
        let _ = term;
        Ok(Entered { kept: false, known: self.claim(gateway, volume, lost).await? })
    }

    /// Executes operations in order and makes them durable. Stops after the first outcome that is not
    /// [`Outcome::Done`], so that the answer is a prefix of the request. An operation that was executed
    /// before has its first outcome again.
    async fn apply(&self, ops: Vec<Placed>) -> Result<Vec<Outcome>>;
}
