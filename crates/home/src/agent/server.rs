//! The far end: serves a home on a pair of byte streams, in the agent on its standard input and output.
//!
//! Synchronous, with a handful of threads and no runtime. One thread reads requests, a few answer reads and
//! metadata at the same time, one keeps what is staged, one executes changes in their order, and one writes the answers, the most
//! urgent class first. Thus a read never waits behind a long change, nor a short answer behind a long one.
//! A further one sees to it that reads which never end, as at a dead mount, keep nothing else from being answered.
//! All queues are bounded; when one is full, the thread that would fill it waits.
//!
//! The end of the input is the order to leave: queued requests are dropped, a running operation is finished.

mod jobs;
mod outbox;
#[cfg(test)]
pub(crate) mod tests;

use super::codec::{CODECS, Content, Packer};
use super::frame::{self, Class, Frame, HEADER_LEN, Header, PREAMBLE_LEN, PreambleSearch, Type};
use super::keep::{self, Keeper};
use super::verbs::StatResult;
use super::verbs::{
    Accept, BarePage, ClaimArgs, ClaimtArgs, FEATURES, Failure, ListArgs, News, Offer, Reply, Request,
};
use super::verbs::{
    BOOTS, CHECKS, CheckedChunk, CheckedOps, ConfirmResult, Confirmed, CopyArgs, JOINS, KEEPS, KeepArgs,
    KnownArgs, PLACES, PROGRESS, ReadArgs, WalkArgs, WalkedPage, WalkedPages, WatchArgs, WatchedPage,
};
use crate::limits::agent::{
    BODY_MAX, CHANGES_MAX, CONFIRM_MAX, COPY_BYTES, COPY_PARTS, COPY_PLACES, IN_FLIGHT_MAX, KNOWN_MAX,
    LINGER, LIST_BYTES_MAX, LIST_ENTRIES_MAX, PART_MAX, READ_MAX,
};
use crate::limits::agent::{STATS_MAX, WALK_BYTES, WALK_FROM, WALK_TIME, WATCH_PAUSE, WORKERS};
use crate::posix::{Posix, sys::Sys, watch::Kept};
use crate::sparse::{AROUND, Sparse};
use crate::{
    Believed, Changed, Chunk, Claimed, Copied, Entered, Error, ErrorKind, Hello, Loc, Name, OpId, Outcome,
    Page, Placed, Result, Seen,
};
use crate::{StatFs, Term, XattrName, Xattrs};
use bytes::Bytes;
use jobs::{For, Job, Jobs};
use oncrpc::xdr::{Writer, Xdr};
use outbox::Outbox;
use rustix::fd::OwnedFd;
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::time::Duration;

/// A home as the server needs it: [`crate::Home`] without a runtime. Calls come from several threads.
pub trait Serve: Send + Sync + 'static {
    /// See [`crate::Home::attach`].
    fn hello(&self) -> Result<Hello>;
    /// Monotonic time since an arbitrary start.
    fn instant(&self) -> Duration;
    /// See [`crate::Home::stat`].
    fn stat(&self, at: &Loc) -> Result<Seen>;
    /// See [`crate::Home::list`].
    fn list(&self, dir: &Loc, after: Option<&Name>, max: u32) -> Result<Page>;
    /// See [`Posix::watch`].
    fn watch(&self, dir: &Loc, max: u32, mark: Option<u64>) -> Result<(Page, bool)>;
    /// See [`Posix::changes`].
    fn changes(&self) -> Result<crate::posix::watch::News>;
    /// See [`crate::Home::read`].
    fn read(&self, file: &Loc, at: u64, len: u32) -> Result<Chunk>;
    /// See [`crate::Home::readlink`].
    fn readlink(&self, at: &Loc) -> Result<Bytes>;
    /// See [`crate::Home::statfs`].
    fn statfs(&self, at: &Loc) -> Result<StatFs>;
    /// See [`crate::Home::xattrs`].
    fn xattrs(&self, at: &Loc, want: Option<&XattrName>) -> Result<Xattrs>;
    /// See [`crate::Home::stage`]. Only one runs at a time.
    fn stage(&self, op: OpId, at: u64, data: Bytes) -> Result<u64>;
    /// See [`crate::Home::spool`]. Never runs beside `stage`.
    fn spool(&self, op: OpId) -> Result<u64> {
        let _ = op;
        Err(ErrorKind::Unsupported.into())
    }
    /// See [`crate::Home::unspool`]. Never runs beside `stage`. Answers whether there was anything.
    fn unspool(&self, op: OpId) -> bool {
        let _ = op;
        false
    }
    /// See [`crate::Home::copy`]. Never runs beside `stage`. Answers as that does.
    fn copy(&self, op: OpId, places: &[Loc], parts: &[Copied]) -> Result<u64>;
    /// See [`crate::Home::apply`]. Only one runs at a time.
    fn apply(&self, ops: Vec<Placed>) -> Result<Vec<Outcome>>;
    /// See [`crate::Home::claim`]. Never runs beside `apply`.
    fn claim(&self, gateway: u64, volume: u32, lost: Vec<u64>) -> Result<Option<Claimed>>;
    /// See [`crate::Home::claim_in`]. Never runs beside `apply`.
    fn claim_in(&self, gateway: u64, volume: u32, lost: Vec<u64>, term: &Term) -> Result<Entered>;
    /// No operation begins from now on, not even one of a batch that runs: whoever sent it has gone, looks for what was
    /// done of it, and sends the rest by another agent.
    fn leave(&self) {}
    /// See [`Posix::give_watches`].
    fn give_watches(&self) -> Option<(OwnedFd, Kept)> {
        None
    }
    /// See [`Posix::take_watches`].
    fn take_watches(&self, watches: OwnedFd, kept: Kept, heard: u64) -> Option<Vec<Changed>> {
        let _ = (watches, kept, heard);
        None
    }
    /// See [`Posix::tells`].
    fn tells(&self) -> bool {
        false
    }
}

impl<S: Sys> Serve for Posix<S> {
    fn hello(&self) -> Result<Hello> {
        self.hello()
    }
    fn instant(&self) -> Duration {
        self.instant()
    }
    fn stat(&self, at: &Loc) -> Result<Seen> {
        self.stat(at)
    }
    fn list(&self, dir: &Loc, after: Option<&Name>, max: u32) -> Result<Page> {
        self.list(dir, after, max)
    }
    fn watch(&self, dir: &Loc, max: u32, mark: Option<u64>) -> Result<(Page, bool)> {
        self.watch(dir, max, mark)
    }
    fn changes(&self) -> Result<crate::posix::watch::News> {
        self.changes()
    }
    fn give_watches(&self) -> Option<(OwnedFd, Kept)> {
        self.give_watches()
    }
    fn take_watches(&self, watches: OwnedFd, kept: Kept, heard: u64) -> Option<Vec<Changed>> {
        self.take_watches(watches, kept, heard)
    }
    fn tells(&self) -> bool {
        self.tells()
    }
    fn read(&self, file: &Loc, at: u64, len: u32) -> Result<Chunk> {
        self.read(file, at, len)
    }
    fn readlink(&self, at: &Loc) -> Result<Bytes> {
        self.readlink(at)
    }
    fn statfs(&self, at: &Loc) -> Result<StatFs> {
        self.statfs(at)
    }
    fn xattrs(&self, at: &Loc, want: Option<&XattrName>) -> Result<Xattrs> {
        self.xattrs(at, want)
    }
    fn stage(&self, op: OpId, at: u64, data: Bytes) -> Result<u64> {
        self.stage(op, at, data)
    }
    fn copy(&self, op: OpId, places: &[Loc], parts: &[Copied]) -> Result<u64> {
        self.copy(op, places, parts)
    }
    fn spool(&self, op: OpId) -> Result<u64> {
        self.spool(op)
    }
    fn unspool(&self, op: OpId) -> bool {
        self.unspool(op)
    }
    fn apply(&self, ops: Vec<Placed>) -> Result<Vec<Outcome>> {
        self.apply(ops)
    }
    fn claim(&self, gateway: u64, volume: u32, lost: Vec<u64>) -> Result<Option<Claimed>> {
        self.claim(gateway, volume, lost)
    }
    fn claim_in(&self, gateway: u64, volume: u32, lost: Vec<u64>, term: &Term) -> Result<Entered> {
        self.claim_in(gateway, volume, lost, term)
    }
    fn leave(&self) {
        self.leave();
    }
}

/// The program that serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// BLAKE3 of its file; zero where it cannot be read.
    pub hash: [u8; 32],
    /// Operating system and processor, as `linux-x86_64`.
    pub platform: String,
}

impl Program {
    /// The running one.
    pub fn myself() -> Program {
        let hash =
            std::fs::read("/proc/self/exe").map(|exe| *blake3::hash(&exe).as_bytes()).unwrap_or_default();
        Program { hash, platform: format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH) }
    }

    /// The line that `--probe` prints: whoever can run the program and read this line knows that it is whole.
    pub fn probe_line(&self) -> String {
        let hex = blake3::Hash::from_bytes(self.hash).to_hex();
        format!("trellis-agent {} {} {hex}", frame::VERSION_MAX, self.platform)
    }
}

struct Server<S> {
    home: Arc<S>,
    program: Program,
    /// Those that a client may have.
    features: u64,
    beside: Beside,
    /// Whether watches are kept.
    kept: OnceLock<()>,
    /// Those that the client has.
    agreed: AtomicU64,
    jobs: Jobs,
    outbox: Outbox,
    packer: Packer,
    /// Whether a thread tells of changes, once there are any to tell.
    tells: OnceLock<bool>,
}

/// What the process does beside a pipe.
#[derive(Debug, Clone, Default)]
pub struct Beside {
    /// [`super::join`] listens.
    pub joins: bool,
    /// Passes on watches when the pipe has ended.
    pub keeper: Option<Arc<Keeper>>,
}

impl Beside {
    /// What a client may have.
    fn features(&self) -> u64 {
        let without = |has: bool, feature| if has { 0 } else { feature };
        FEATURES & !without(self.joins, JOINS) & !without(self.keeper.is_some(), KEEPS)
    }
}

/// Threads of this process that answer reads in place of others that are stuck, and may be so for longer than their pipe is open.
static MORE: AtomicUsize = AtomicUsize::new(0);

/// What a client of a joined pipe may have: the rest belongs to the one pipe that the agent was started for.
const JOINED: u64 = JOINS | CHECKS;

/// Serves `home` until the end of `input`, or until `output` breaks.
///
/// Threads that are in the middle of a slow read are left behind: the caller is expected to end the process.
pub fn serve<S: Serve>(
    home: Arc<S>,
    program: Program,
    beside: Beside,
    mut input: impl Read,
    output: impl Write + Send + 'static,
) -> io::Result<()> {
    let server = Server::start(home, program, (beside.features(), beside), output)?;
    let (finished, changes_end) = mpsc::channel::<()>();
    let worker = server.clone();
    spawn("changes", move || {
        worker.work(For::Change);
        drop(finished);
    })?;
    let end = server.read_requests(&mut input);
    server.home.leave();
    server.jobs.close();
    // Fails because the sender is dropped, or because a change takes too long; both mean to leave.
    let _ = changes_end.recv_timeout(LINGER);
    server.outbox.close();
    end
}

/// The same over a further pipe: only what is read and what is staged.
pub(super) fn serve_joined<S: Serve>(
    home: Arc<S>,
    program: Program,
    mut input: impl Read,
    output: impl Write + Send + 'static,
) -> io::Result<()> {
    let server = Server::start(home, program, (JOINED, Beside::default()), output)?;
    let end = server.read_requests(&mut input);
    server.jobs.close();
    server.outbox.close();
    end
}

pub(super) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name.into()).spawn(run).map(drop)
}

impl<S: Serve> Server<S> {
    /// The threads that read, stage and answer.
    fn start(
        home: Arc<S>,
        program: Program,
        (features, beside): (u64, Beside),
        output: impl Write + Send + 'static,
    ) -> io::Result<Arc<Self>> {
        let (jobs, outbox, packer, tells) =
            (Jobs::new(&MORE), Outbox::new(), Packer::default(), OnceLock::new());
        let (agreed, kept) = (AtomicU64::new(0), OnceLock::new());
        let server = Server { home, program, features, beside, kept, agreed, jobs, outbox, packer, tells };
        let server = Arc::new(server);
        let writer = server.clone();
        spawn("writer", move || writer.outbox.write_to(output))?;
        for _ in 0..WORKERS {
            server.start_worker()?;
        }
        let guard = server.clone();
        spawn("guard", move || guard.jobs.keep_going(|| guard.start_worker().is_ok()))?;
        let worker = server.clone();
        spawn("staged", move || worker.work(For::Staged))?;
        Ok(server)
    }

    fn start_worker(self: &Arc<Self>) -> io::Result<()> {
        let worker = self.clone();
        spawn("reads", move || worker.work(For::Read))
    }

    fn read_requests(&self, input: &mut impl Read) -> io::Result<()> {
        let mut input = self.greet(input)?;
        let mut greeted = false;
        while let Some(header) = read_header(&mut input)? {
            let mut body = vec![0; header.length as usize];
            input.read_exact(&mut body)?;
            // This costs no more than to read it.
            let body = self.packer.unpack(&header, body.into()).map_err(io::Error::other)?;
            match header.kind {
                Type::Request => self.accept(header, body, &mut greeted)?,
                Type::Cancel => self.jobs.cancel(header.id),
                Type::Notice if header.id != 0 => {
                    self.outbox.push(vec![Frame::new(Type::Notice, Class::Control, 0, Vec::new())]);
                }
                Type::Notice | Type::Credit | Type::Reply | Type::ReplyPart | Type::News => {}
            }
        }
        Ok(())
    }

    /// Exchanges preambles; answers the input behind the other side's.
    fn greet<'a, R: Read>(&self, input: &'a mut R) -> io::Result<impl Read + use<'a, R, S>> {
        self.outbox.push_raw(Bytes::copy_from_slice(&frame::preamble()));
        let mut search = PreambleSearch::default();
        let mut buffer = [0; PREAMBLE_LEN];
        loop {
            let n = input.read(&mut buffer)?;
            if n == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Some((_version, rest)) = search.push(&buffer[..n]).map_err(io::Error::other)? {
                return Ok(io::Read::chain(io::Cursor::new(rest), input));
            }
        }
    }

    fn accept(&self, header: Header, body: Bytes, greeted: &mut bool) -> io::Result<()> {
        let size = body.len();
        let reply = match Request::from_bytes(body) {
            Ok(Request::Hello(offer)) => {
                *greeted = true;
                self.hello(offer)
            }
            Ok(request) if *greeted && !self.answers(&request) => {
                Err(Error::new(ErrorKind::Unsupported, "a further pipe is for READ and STAGE"))
            }
            Ok(request) if *greeted => {
                let line = match request {
                    Request::Apply(_) | Request::Applyc(_) => For::Change,
                    Request::Claim(_) | Request::Claimt(_) => For::Change,
                    Request::Stage(_) | Request::Stagec(_) | Request::Copy(_) => For::Staged,
                    Request::Spool(_) | Request::Unspool(_) => For::Staged,
                    _ => For::Read,
                };
                let pack = self.packer.may_answer_packed(&header);
                if self.jobs.push(Job { id: header.id, class: header.class, pack, request, size }, line) {
                    return Ok(());
                }
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            Ok(_) => Err(Error::new(ErrorKind::Invalid, "the first request must be HELLO")),
            Err(e) => Err(Error::new(
                ErrorKind::Unsupported,
                format!("the agent does not understand a request: {e}"),
            )),
        };
        self.answer(header.class, header.id, false, reply);
        Ok(())
    }

    fn answers(&self, request: &Request) -> bool {
        let plain = matches!(request, Request::Read(_) | Request::Stage(_));
        self.features != JOINED || plain || matches!(request, Request::Readc(_) | Request::Stagec(_))
    }

    fn work(self: &Arc<Self>, line: For) {
        let mut had = None;
        while let Some(job) = self.jobs.next(line, had) {
            had = Some(job.class);
            let reply = self.execute(job.id, job.request);
            self.jobs.done(line, job.class, job.id, job.size);
            self.answer(job.class, job.id, job.pack, reply);
        }
    }

    fn answer(&self, class: Class, id: u64, pack: bool, reply: Result<Reply>) {
        let reply = reply.unwrap_or_else(|e| Reply::Failed(Failure(e)));
        let mut w = Writer::new();
        reply.encode(&mut w);
        if w.len() > BODY_MAX {
            w = Writer::new();
            Reply::Failed(Failure(Error::new(ErrorKind::TooBig, "the answer is too long"))).encode(&mut w);
        }
        let mut frames = frame::answer(class, id, w.into_segments(), PART_MAX);
        if pack {
            let content = if matches!(reply, Reply::Read(_) | Reply::Readc(_) | Reply::Readk(_)) {
                Content::Bytes
            } else {
                Content::Words
            };
            frames = frames.into_iter().map(|frame| self.packer.pack(frame, content)).collect();
        }
        self.outbox.push(frames);
    }

    fn hello(&self, offer: Offer) -> Result<Reply> {
        let Some(codec) = offer.codecs.into_iter().find(|codec| CODECS.contains(codec)) else {
            return Err(Error::new(ErrorKind::Unsupported, "the agent knows none of the offered codecs"));
        };
        self.packer.agree(codec);
        let features = offer.features & self.features;
        self.agreed.store(features, Ordering::Relaxed);
        Ok(Reply::Hello(Accept {
            codec,
            features,
            window: IN_FLIGHT_MAX as u32,
            program: self.program.hash,
            pid: std::process::id(),
            platform: Bytes::copy_from_slice(self.program.platform.as_bytes()),
            home: self.home.hello()?,
        }))
    }

    fn claim(&self, a: ClaimArgs) -> Result<Option<Claimed>> {
        Ok(self.told(self.home.claim(a.gateway, a.volume, a.lost)?))
    }

    fn claim_in(&self, ClaimtArgs { claim: a, term }: ClaimtArgs) -> Result<Entered> {
        let Entered { kept, known } = self.home.claim_in(a.gateway, a.volume, a.lost, &term)?;
        Ok(Entered { kept, known: self.told(known) })
    }

    /// An older client would not understand all of it: one that does not know how far the operations came looks for all of them.
    fn told(&self, claimed: Option<Claimed>) -> Option<Claimed> {
        let agreed = |feature| self.agreed.load(Ordering::Relaxed) & feature != 0;
        claimed.map(|claimed| Claimed {
            ran: if agreed(PROGRESS) { claimed.ran } else { 0 },
            booted: claimed.booted.filter(|_| agreed(BOOTS)),
            ran_on: claimed.ran_on.filter(|_| agreed(PLACES)),
            ..claimed
        })
    }

    fn execute(self: &Arc<Self>, id: u64, request: Request) -> Result<Reply> {
        let home = &self.home;
        Ok(match request {
            Request::Hello(offer) => self.hello(offer)?,
            Request::Stat(locs) => Reply::Stat(self.stat(&locs)?),
            Request::List(args) => Reply::List(self.list(&args)?),
            Request::Listx(args) => Reply::Listx(BarePage::of(self.list(&args)?)),
            Request::Xattrs(a) => Reply::Xattrs(home.xattrs(&a.at, a.want.as_ref())?),
            Request::Read(a) => Reply::Read(home.read(&a.file, a.at, a.len.min(READ_MAX))?),
            Request::Readlink(at) => Reply::Readlink(home.readlink(&at)?),
            Request::Statfs(at) => Reply::Statfs(home.statfs(&at)?),
            Request::Stage(a) => Reply::Stage(home.stage(a.op, a.at, a.data)?),
            Request::Copy(a) => Reply::Copy(self.copy(&a)?),
            Request::Spool(op) => Reply::Spool(home.spool(op)?),
            Request::Unspool(op) => Reply::Unspool(home.unspool(op)),
            Request::Readc(a) => {
                Reply::Readc(CheckedChunk::of(home.read(&a.file, a.at, a.len.min(READ_MAX))?))
            }
            Request::Readk(a) => Reply::Readk(self.read_known(&a)?),
            Request::Stagec(a) => {
                let a = a.checked().ok_or(ErrorKind::Damaged)?;
                Reply::Stagec(home.stage(a.op, a.at, a.data)?)
            }
            Request::Claim(a) => Reply::Claim(self.claim(a)?),
            Request::Claimt(a) => Reply::Claimt(self.claim_in(a)?),
            Request::Apply(ops) => Reply::Apply(home.apply(ops)?),
            Request::Applyc(CheckedOps(ops)) => Reply::Applyc(home.apply(ops.ok_or(ErrorKind::Damaged)?)?),
            Request::Watch(WatchArgs { dir, max, mark }) => {
                Reply::Watch(self.watch(&dir, max, Some(mark))?)
            }
            Request::Walk(args) => Reply::Walk(self.walk(id, args)?),
            Request::Confirm(dirs) => Reply::Confirm(self.confirm(dirs)?),
            Request::Keep(args) => Reply::Keep(self.keep(&args)?),
        })
    }

    fn read_known(
        &self,
        KnownArgs { read: ReadArgs { file, at, len }, known }: &KnownArgs,
    ) -> Result<Sparse> {
        if known.len() > KNOWN_MAX {
            return Err(Error::new(ErrorKind::Invalid, "too many chunks in one READK"));
        }
        let chunk = self.home.read(file, *at, (*len).min(READ_MAX))?;
        // What is around may be of another version, and cut off: it only helps to find chunks.
        let around = |at, len: u64| self.home.read(file, at, len as u32).map(|c| c.data).unwrap_or_default();
        let lead = (*at).min(AROUND as u64);
        let end = at.saturating_add(chunk.data.len() as u64);
        let (before, after) = (around(at - lead, lead), around(end, AROUND as u64));
        let before = if before.len() as u64 == lead { &before[..] } else { &[] };
        Ok(Sparse::of(chunk.attr, before, &chunk.data, &after, known))
    }

    fn copy(&self, CopyArgs { op, places, parts }: &CopyArgs) -> Result<u64> {
        let bytes: u64 = parts.iter().map(|part| u64::from(part.len)).sum();
        if places.len() > COPY_PLACES || parts.len() > COPY_PARTS || bytes > COPY_BYTES {
            return Err(Error::new(ErrorKind::Invalid, "too much in one COPY"));
        }
        self.home.copy(*op, places, parts)
    }

    fn confirm(self: &Arc<Self>, dirs: Vec<Believed>) -> Result<Vec<ConfirmResult>> {
        if dirs.len() > CONFIRM_MAX {
            return Err(Error::new(ErrorKind::Invalid, "too many directories in one CONFIRM"));
        }
        let mut room = LIST_BYTES_MAX;
        let mut one = |Believed { dir, mark, digest }| {
            let WatchedPage { page, watched } = self.watch(&dir, LIST_ENTRIES_MAX, Some(mark))?;
            let BarePage { page: Page { applied, .. }, bare } = &page;
            let found = page.page.digest();
            if found == Some(digest) {
                let same = Confirmed { applied: *applied, watched, bare: bare.clone() };
                return Ok(ConfirmResult::Same(same));
            }
            let mut w = Writer::new();
            page.encode(&mut w);
            if found.is_none() || w.len() > room {
                return Ok(ConfirmResult::Unlike);
            }
            room -= w.len();
            Ok(ConfirmResult::Page(WatchedPage { page, watched }))
        };
        let one = |dir| one(dir).unwrap_or_else(|e: Error| ConfirmResult::Failed(Failure(e)));
        Ok(dirs.into_iter().map(one).collect())
    }

    /// Whole directories, those that it begins with before those below them, until there is no room for the next one,
    /// or no time.
    fn walk(self: &Arc<Self>, id: u64, WalkArgs { from, bytes }: WalkArgs) -> Result<WalkedPages> {
        if from.len() > WALK_FROM {
            return Err(Error::new(ErrorKind::Invalid, "too many directories in one WALK"));
        }
        let begun = self.home.instant();
        let most = WALK_BYTES.min(bytes as usize);
        let (mut room, mut left) = (most, from.len());
        let mut walked = WalkedPages { came: 0, pages: Vec::new() };
        let mut todo: VecDeque<Loc> = from.into();
        while room > 0
            && (walked.pages.is_empty() || self.home.instant().saturating_sub(begun) < WALK_TIME)
            && let Some(dir) = todo.pop_front()
        {
            if !self.jobs.is_wanted(id) {
                return Err(Error::new(ErrorKind::Busy, "nobody waits for this WALK"));
            }
            let page = self.watch(&dir, LIST_ENTRIES_MAX, None);
            let page = page.map(|page| WalkedPage { path: dir.path, page });
            let len = page.as_ref().map_or(0, |page| page.to_bytes().len());
            let fits = page.as_ref().is_ok_and(|page| !page.page.page.page.more && len <= most);
            if fits && len > room {
                break;
            }
            // What does not come was read, too.
            room = room.saturating_sub(len);
            walked.came += u32::from(left > 0);
            left = left.saturating_sub(1);
            if let Some(page) = page.ok().filter(|_| fits) {
                todo.extend(page.page.page.page.below(&page.path));
                walked.pages.push(page);
            }
        }
        Ok(walked)
    }

    fn watch(self: &Arc<Self>, dir: &Loc, max: u32, mark: Option<u64>) -> Result<WatchedPage> {
        let (page, watched) = self.home.watch(dir, max.clamp(1, LIST_ENTRIES_MAX), mark)?;
        Ok(WatchedPage { page: BarePage::of(bounded(page)), watched: watched && self.starts_to_tell() })
    }

    fn starts_to_tell(self: &Arc<Self>) -> bool {
        *self.tells.get_or_init(|| {
            let teller = self.clone();
            spawn("news", move || teller.tell()).is_ok()
        })
    }

    /// Goes on with the watches that are kept under this name, and keeps those of this process.
    fn keep(self: &Arc<Self>, KeepArgs { name, heard }: &KeepArgs) -> Result<bool> {
        let Some(keeper) = &self.beside.keeper else { return Err(ErrorKind::Unsupported.into()) };
        if self.kept.set(()).is_err() {
            return Ok(self.home.tells());
        }
        let kept = keep::fetch(name);
        let missed = kept.and_then(|(watches, kept)| self.home.take_watches(watches, kept, *heard));
        // Without it they do not outlive this process.
        let _ = keeper.listen(self.home.clone(), name);
        let Some(missed) = missed else { return Ok(false) };
        missed.chunks(CHANGES_MAX).for_each(|part| self.say(&News::Changed(part.to_vec())));
        Ok(self.starts_to_tell())
    }

    /// Tells of changes until there are none any more.
    fn tell(&self) {
        loop {
            let news = self.home.changes();
            let over = news.is_err();
            match news.unwrap_or(None) {
                Some(changed) => {
                    for part in changed.chunks(CHANGES_MAX) {
                        self.say(&News::Changed(part.to_vec()));
                    }
                }
                None => self.say(&News::Lost),
            }
            if over {
                return;
            }
            std::thread::sleep(WATCH_PAUSE);
        }
    }

    /// Behind the answers of this class that are ready, which are older.
    fn say(&self, news: &News) {
        self.outbox.push(vec![Frame::new(Type::News, Class::Metadata, 0, vec![news.to_bytes()])]);
    }

    fn list(&self, ListArgs { dir, after, max }: &ListArgs) -> Result<Page> {
        Ok(bounded(self.home.list(dir, after.as_ref(), (*max).clamp(1, LIST_ENTRIES_MAX))?))
    }

    fn stat(&self, locs: &[Loc]) -> Result<Vec<StatResult>> {
        if locs.len() > STATS_MAX {
            return Err(Error::new(ErrorKind::Invalid, "too many objects in one STAT"));
        }
        let one = |at| match self.home.stat(at) {
            Ok(seen) => StatResult::Seen(seen),
            Err(e) => StatResult::Failed(Failure(e)),
        };
        Ok(locs.iter().map(one).collect())
    }
}

/// The page without the entries that would make it longer than [`LIST_BYTES_MAX`].
fn bounded(mut page: Page) -> Page {
    let mut w = Writer::new();
    let fits = page.entries.iter().position(|entry| {
        entry.encode(&mut w);
        w.len() > LIST_BYTES_MAX
    });
    if let Some(n) = fits {
        page.entries.truncate(n.max(1));
        page.more = true;
    }
    page
}

/// The next header; `None` at the end of the input.
fn read_header(input: &mut impl Read) -> io::Result<Option<Header>> {
    let mut head = [0; HEADER_LEN];
    let mut have = 0;
    while have < HEADER_LEN {
        match input.read(&mut head[have..]) {
            Ok(0) if have == 0 => return Ok(None),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => have += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Header::decode(&head).map(Some).map_err(io::Error::other)
}
