//! Our end of the pipe to an agent: many callers, one pipe, answers in any order.
//!
//! A [`Session`] is one connection from greeting to end. Requests wait in one line per class, and the writer
//! takes the most urgent first. Single STATs that wait at the same time leave as one frame. A caller that goes
//! away takes its request along, unless it is a change. When the pipe breaks or stays silent too long, every
//! caller gets [`ErrorKind::Unreachable`]; making a new connection is the business of [`crate::remote`].

mod calls;
mod keep;
mod lists;
#[cfg(test)]
mod older;
mod pages;
mod reads;
mod sane;
mod table;
#[cfg(test)]
mod tests;
mod told;
mod wide;
mod window;
mod wire;

use self::calls::CallGuard;
use self::lists::{batches, in_requests};
use super::codec::{CODECS, Content, Packer};
use super::frame::{self, Class, Frame, HEADER_LEN, Header, PreambleSearch, Type};
use super::verbs::{Accept, CODEC_NONE, FEATURES, Failure, Offer, ReadArgs, Reply, Request, StageArgs};
use super::verbs::{
    BASES, CHECKS, CONFIRMS, COPIES, CheckedOps, CheckedStage, ClaimArgs, CopyArgs, KEEPS, KNOWN, KnownArgs,
    News, ORDERED, SPOOLS, SUMS, UNSPOOLS, WALKS, WATCHES, XATTRS, XattrsArgs,
};
use super::verbs::{ConfirmResult, Confirmed, WatchedPage};
use crate::limits::agent::{COPY_PLACES, KNOWN_MAX, PACK_FROM, READ_MAX, REQUESTS_MAX, STAGE_MAX};
use crate::remote::{Connection, Life, Meter, closed, lost};
use crate::sparse::Sparse;
use crate::ssh;
use crate::{
    Belief, Believed, Changed, Chunk, Claimed, Class as HomeClass, Copied, Entered, Error, ErrorKind, Hello,
    Home, Loc, Name, OpId, Outcome,
};
use crate::{Op, Page, Placed, Result, Seen, StatFs, Status, Term, Turn, Walked, Watched, XattrName, Xattrs};
use bytes::{Bytes, BytesMut};
pub use keep::new_name;
use oncrpc::xdr::Xdr;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use table::{Table, Waiter};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::task::AbortHandle;
pub use told::Told;
use wide::Wide;
pub use wide::{Opener, Opening};
use wire::Wire;

/// One connection to an agent.
pub struct Session {
    shared: Arc<Shared>,
    accept: Accept,
    tasks: Vec<AbortHandle>,
    wide: Option<Wide>,
}

struct Shared {
    life: Life,
    table: Mutex<Table>,
    /// Something waits for the writer.
    work: Arc<Notify>,
    told: Arc<Told>,
    /// Which one it is of those that are told.
    session: u64,
    doubts: keep::Doubts,
    packer: Packer,
    /// Bytes of questions, and of changes, that callers may have waiting: no question waits for the room of changes.
    room: [Arc<Semaphore>; 2],
    /// Why what was staged last without waiting for the answer was not kept.
    unkept: Arc<Mutex<Option<Error>>>,
}

impl Session {
    /// Greets the agent at the other end of the pipe. `child` is the process that carries the pipe; it ends with
    /// the session.
    pub async fn start<R, W>(
        reader: R,
        writer: W,
        child: Option<ssh::Child>,
        meter: Arc<Meter>,
    ) -> Result<Session>
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let shared = Shared::new(Life::new(meter, child), Arc::new(Told::new(keep::no_name())));
        let mut session = Session::over(shared, reader, writer);
        session.accept = session.greet().await?;
        session.shared.life.greeted();
        Ok(session)
    }

    /// The same, of the sessions in `told`: it goes on with the watches of the one before, if the agent can.
    pub async fn start_again<R, W>(
        reader: R,
        writer: W,
        child: Option<ssh::Child>,
        meter: Arc<Meter>,
        told: Arc<Told>,
    ) -> Result<Session>
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let mut session = Session::over(Shared::new(Life::new(meter, child), told), reader, writer);
        if session.shared.told.is_kept() {
            // It is another agent, which says so, if it does not know the second question.
            let (greeted, goes_on) = tokio::join!(session.greet(), session.shared.keep());
            session.accept = greeted?;
            session.shared.goes_on(goes_on);
        } else {
            session.accept = session.greet().await?;
            session.shared.told.breaks();
            if session.accept.features & KEEPS != 0 {
                session.tasks.push(tokio::spawn(keep::begin(session.shared.clone())).abort_handle());
            }
        }
        session.shared.life.greeted();
        Ok(session)
    }

    /// A session that has not greeted yet.
    fn over<R, W>(shared: Arc<Shared>, reader: R, writer: W) -> Session
    where
        R: AsyncRead + Unpin + Send + 'static,
        W: AsyncWrite + Unpin + Send + 'static,
    {
        let tasks = vec![
            tokio::spawn(run(shared.clone(), |s| write_frames(s, writer))).abort_handle(),
            tokio::spawn(run(shared.clone(), |s| read_frames(s, reader))).abort_handle(),
            tokio::spawn(run(shared.clone(), keep_alive)).abort_handle(),
            tokio::spawn(keep::prove(shared.clone())).abort_handle(),
        ];
        // The tasks end with it if the caller goes away.
        Session { shared, accept: Accept::nothing(), tasks, wide: None }
    }

    /// The same, with further connections for long reads where one carries less than the wire does.
    pub fn widened_by(mut self, opener: Opener) -> Session {
        self.wide = Some(Wide::new(opener));
        self
    }

    /// What it shares with further pipes to the same place.
    fn wire(&self) -> Arc<Wire> {
        self.shared.table.lock().wire()
    }

    /// Shares that of another one, before anything of a weight was asked.
    fn share(&self, wire: &Arc<Wire>) {
        wire.add(&self.shared.work);
        self.shared.table.lock().share(wire.clone());
    }

    /// The shortest time that an answer has taken.
    fn round_trip(&self) -> Duration {
        self.wire().fastest()
    }

    /// Whether bytes take longer on their way than it takes to look which of them need not go.
    fn is_far(&self) -> bool {
        (PACK_FROM..Duration::MAX).contains(&self.round_trip())
    }

    /// What the agent said of itself.
    pub fn accept(&self) -> &Accept {
        &self.accept
    }

    async fn greet(&self) -> Result<Accept> {
        let offer = Offer { codecs: CODECS.to_vec(), features: FEATURES };
        match self.call(Class::Control, Request::Hello(offer)).await? {
            Reply::Hello(accept) if CODECS.contains(&accept.codec) => {
                self.shared.packer.agree(accept.codec);
                Ok(accept)
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Whether the agent knows extended attributes.
    fn has_xattrs(&self) -> bool {
        self.accept.features & XATTRS != 0
    }

    /// A request for the agent to change something.
    fn changing(&self, ops: Vec<Placed>) -> Request {
        match self.accept.features & SUMS != 0 {
            true => Request::Applyc(CheckedOps(Some(ops))),
            false => Request::Apply(ops),
        }
    }

    /// A request for the agent to keep bytes.
    fn staging(&self, args: StageArgs) -> Request {
        match self.accept.features & CHECKS != 0 {
            true => Request::Stagec(CheckedStage::of(args)),
            false => Request::Stage(args),
        }
    }

    async fn stage_part(&self, args: StageArgs) -> Result<()> {
        match &self.wide {
            Some(wide) if self.accept.features & ORDERED != 0 => wide.stage(self, args).await,
            _ => self.stage_on_its_way(args).await,
        }
    }

    /// Until the agent is sure to have it before whatever is sent next over this pipe.
    async fn stage_on_its_way(&self, args: StageArgs) -> Result<()> {
        match self.accept.features & ORDERED != 0 {
            true => self.hand_over(self.staging(args)).await,
            false => self.stage_and_hear(args).await,
        }
    }

    async fn stage_and_hear(&self, args: StageArgs) -> Result<()> {
        match self.call(Class::Bulk, self.staging(args)).await? {
            Reply::Stage(_) | Reply::Stagec(_) => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    /// The same with the reason, if the agent has given one.
    fn not_staged(&self, e: Error) -> Error {
        self.shared.unkept.lock().take().map_or(e, |why| Error::new(ErrorKind::NotStaged, why.to_string()))
    }

    async fn call(&self, class: Class, request: Request) -> Result<Reply> {
        self.call_as(class, Turn::Now, request).await
    }

    /// Of its class, those ahead of somebody go behind those that he waits for.
    async fn call_in(&self, turn: Turn, request: Request) -> Result<Reply> {
        let class = if turn == Turn::Later { Class::Bulk } else { Class::Data };
        self.call_as(class, turn, request).await
    }

    async fn call_as(&self, class: Class, turn: Turn, request: Request) -> Result<Reply> {
        self.shared.call_as(class, turn, request).await
    }

    /// Waits until the pipe has taken what is staged. If the agent does not keep it, the operation tells.
    async fn hand_over(&self, request: Request) -> Result<()> {
        let (body, weight, room) = self.shared.prepared(Class::Bulk, &request).await?;
        let (sender, receiver) = oneshot::channel();
        let unkept = self.shared.unkept.clone();
        let waiter = Waiter::Sent { sent: Some(sender), unkept, _room: room };
        let id = self.shared.push((Class::Bulk, Turn::Now), body, weight, waiter)?;
        let guard = CallGuard { shared: &self.shared, id, change: true };
        let sent = receiver.await.map_err(|_| self.shared.life.over().unwrap_or_else(closed));
        std::mem::forget(guard);
        sent
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
        self.shared.finish(&closed());
    }
}

fn unexpected(reply: &Reply) -> Error {
    let text = match reply {
        Reply::Failed(failure) => return failure.0.clone(),
        _ => "the agent answered something else, or more, than was asked",
    };
    Error::new(ErrorKind::Io, text)
}

impl Accept {
    fn nothing() -> Accept {
        let home = Hello {
            class: HomeClass::Posix,
            stages: false,
            uid: 0,
            gid: 0,
            groups: Vec::new(),
            home_dir: crate::HomePath::root(),
            token: None,
            token_is_new: false,
            boot_id: Bytes::new(),
            clock: crate::Time::default(),
            place: None,
        };
        let (program, platform) = ([0; 32], Bytes::new());
        Accept { codec: CODEC_NONE, features: 0, window: 0, program, pid: 0, platform, home }
    }
}

impl Shared {
    fn new(life: Life, told: Arc<Told>) -> Arc<Shared> {
        let (wire, work) = (Arc::new(Wire::new(life.meter.clone())), Arc::new(Notify::new()));
        wire.add(&work);
        let (session, heard) = told.begin();
        Arc::new(Shared {
            life,
            table: Mutex::new(Table::new(wire)),
            work,
            told,
            session,
            doubts: keep::Doubts::new(heard),
            packer: Packer::default(),
            room: [(); 2].map(|()| Arc::new(Semaphore::new(REQUESTS_MAX))),
            unkept: Arc::default(),
        })
    }

    /// Puts a request into its line.
    fn push(&self, place: (Class, Turn), body: Vec<Bytes>, weight: usize, waiter: Waiter) -> Result<u64> {
        let id = self.table.lock().push(place, body, weight, waiter)?;
        self.work.notify_one();
        Ok(id)
    }

    /// Bytes are not those that were sent: nothing more is believed that goes this way.
    fn damaged(&self, what: &str) -> Error {
        let why = Error::new(ErrorKind::Unreachable, what);
        self.table.lock().wire().meter().damaged.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        tracing::warn!("{what}");
        self.finish(&why);
        why
    }

    /// Ends the session for everybody.
    fn finish(&self, why: &Error) {
        let (waiters, wire) = {
            let mut table = self.table.lock();
            (table.close(why), table.wire())
        };
        wire.wake();
        self.life.finish(why);
        waiters.into_iter().for_each(|w| w.fail(why));
    }
}

async fn run<F: Future<Output = Error>>(shared: Arc<Shared>, task: impl FnOnce(Arc<Shared>) -> F) {
    let why = task(shared.clone()).await;
    let why = shared.life.explain(why).await;
    shared.finish(&why);
}

async fn write_frames(shared: Arc<Shared>, mut writer: impl AsyncWrite + Unpin) -> Error {
    let mut batch = BytesMut::from(&frame::preamble()[..]);
    loop {
        if let Err(e) = writer.write_all(&batch).await {
            return lost(e);
        }
        if let Err(e) = writer.flush().await {
            return lost(e);
        }
        shared.life.count_out(batch.len());
        batch.clear();
        let mut frames = Vec::new();
        let far = loop {
            let taken = shared.table.lock().take_batch(&mut frames);
            match taken {
                Some(fastest) => break fastest >= PACK_FROM,
                None => shared.work.notified().await,
            }
        };
        for frame in frames {
            // What is staged goes in this class, and all else in it is short.
            let content = if frame.header.class == Class::Bulk { Content::Bytes } else { Content::Words };
            let frame = shared.packer.outgoing(frame, content, far);
            batch.extend_from_slice(&frame.header.encode());
            frame.body.iter().for_each(|s| batch.extend_from_slice(s));
        }
    }
}

async fn read_frames(shared: Arc<Shared>, mut reader: impl AsyncRead + Unpin) -> Error {
    let rest = match find_preamble(&shared, &mut reader).await {
        Ok(rest) => rest,
        Err(e) => return e,
    };
    let mut reader = tokio::io::BufReader::with_capacity(64 << 10, std::io::Cursor::new(rest).chain(reader));
    loop {
        let mut head = [0; HEADER_LEN];
        if let Err(e) = reader.read_exact(&mut head).await {
            return lost(e);
        }
        let header = match Header::decode(&head) {
            Ok(header) => header,
            Err(e) => return Error::new(ErrorKind::Unreachable, format!("the agent: {e}")),
        };
        let length = header.length as usize;
        let mut body = BytesMut::with_capacity(length);
        while body.len() < length {
            match (&mut reader).take((length - body.len()) as u64).read_buf(&mut body).await {
                Ok(0) => return lost(std::io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(e) => return lost(e),
            }
        }
        shared.life.count_in(HEADER_LEN + length);
        let body = match shared.packer.unpack(&header, body.freeze()) {
            Ok(body) => body,
            Err(e) => return Error::new(ErrorKind::Unreachable, format!("the agent: {e}")),
        };
        if let Err(e) = deliver(&shared, header, body) {
            return e;
        }
    }
}

async fn find_preamble(shared: &Shared, reader: &mut (impl AsyncRead + Unpin)) -> Result<Bytes> {
    let mut search = PreambleSearch::default();
    let mut buffer = BytesMut::with_capacity(4096);
    loop {
        buffer.clear();
        match reader.read_buf(&mut buffer).await {
            Ok(0) => return Err(lost(std::io::ErrorKind::UnexpectedEof.into())),
            Ok(n) => shared.life.count_in(n),
            Err(e) => return Err(lost(e)),
        }
        match search.push(&buffer) {
            Ok(Some((_version, rest))) => return Ok(rest),
            Ok(None) => {}
            Err(e) => return Err(Error::new(ErrorKind::Unsupported, e.to_string())),
        }
    }
}

fn deliver(shared: &Shared, header: Header, body: Bytes) -> Result<()> {
    if header.kind == Type::News {
        return match News::from_bytes(body) {
            Ok(news) => shared.told.hear(shared.session, news),
            Err(e) => Err(Error::new(ErrorKind::Unreachable, format!("the agent's news make no sense: {e}"))),
        };
    }
    if !matches!(header.kind, Type::Reply | Type::ReplyPart) {
        return Ok(());
    }
    let last = header.kind == Type::Reply;
    let (arrived, wire) = {
        let mut table = shared.table.lock();
        (table.arrived(header.id, body, last)?, table.wire())
    };
    let Some((waiter, body)) = arrived else { return Ok(()) };
    // An answer makes room in the window.
    wire.wake();
    match Reply::from_bytes(body) {
        Ok(Reply::Failed(Failure(e))) if e.kind == ErrorKind::Damaged => {
            let why = shared.damaged("bytes arrived damaged at the agent");
            waiter.fail(&why);
            return Err(why);
        }
        Ok(mut reply) => match sane::nonsense(&mut reply) {
            None => waiter.answer(reply),
            Some(what) => {
                let text = format!("the agent's answer has an impossible {what}");
                waiter.fail(&Error::new(ErrorKind::Io, text));
            }
        },
        Err(e) => waiter.fail(&Error::new(ErrorKind::Io, format!("the agent's answer makes no sense: {e}"))),
    }
    Ok(())
}

async fn keep_alive(shared: Arc<Shared>) -> Error {
    let ping = || {
        shared.table.lock().push_notice(Frame::new(Type::Notice, Class::Control, 1, Vec::new()));
        shared.work.notify_one();
    };
    shared.life.keep_alive(ping).await
}

#[async_trait::async_trait]
impl Connection for Session {
    async fn ended(&self) -> Error {
        self.shared.life.ended().await
    }

    fn is_kept(&self) -> bool {
        self.shared.told.is_kept()
    }
}

#[async_trait::async_trait]
impl Home for Session {
    fn status(&self) -> Status {
        let old =
            (!self.has_xattrs()).then(|| "the agent there is too old for extended attributes".to_owned());
        let weaker = old.into_iter().collect();
        let status = self.shared.life.meter.status(self.shared.life.link(), Some(HomeClass::Posix), weaker);
        Status { watches: self.epoch().is_some(), ..status }
    }

    async fn attach(&self) -> Result<Hello> {
        self.shared.life.over().map_or_else(|| Ok(self.accept.home.clone()), Err)
    }

    async fn stat(&self, at: &Loc) -> Result<Seen> {
        let (sender, receiver) = oneshot::channel();
        self.shared.table.lock().push_stat(at.clone(), sender)?;
        self.shared.work.notify_one();
        receiver.await.unwrap_or_else(|_| Err(closed()))
    }

    async fn look(&self, dir: &Loc, name: &Name) -> Result<(Seen, Result<Seen>)> {
        // In one message, because the agent answers several at the same time.
        let both = vec![dir.clone(), Loc { path: dir.path.join(name), id: None }];
        let results = match self.call(Class::Metadata, Request::Stat(both)).await? {
            Reply::Stat(results) => results,
            other => return Err(unexpected(&other)),
        };
        let mut results = results.into_iter().map(seen);
        match (results.next(), results.next()) {
            (Some(above), Some(named)) => Ok((above?, named)),
            _ => Err(Error::new(ErrorKind::Io, "the agent answered for too few objects")),
        }
    }

    async fn list(&self, dir: &Loc, after: Option<&Name>, max: u32) -> Result<Page> {
        self.list_as(Class::Metadata, dir, after, max).await
    }

    async fn watch(&self, dir: &Loc, max: u32, mark: u64) -> Result<Watched> {
        self.watch_as(Class::Metadata, dir, max, mark).await
    }

    async fn confirm(&self, dirs: Vec<Believed>, later: bool) -> Result<Vec<Result<Belief>>> {
        if !self.confirms() {
            return Err(ErrorKind::Unsupported.into());
        }
        let (asked, before) = (dirs.len(), self.epoch());
        let class = if later { Class::Bulk } else { Class::Metadata };
        let results = match self.call(class, Request::Confirm(dirs)).await? {
            Reply::Confirm(results) if results.len() == asked => results,
            other => return Err(unexpected(&other)),
        };
        // As for WATCH: anything may have gone untold since the question.
        let epoch = |watched| before.filter(|epoch| watched && self.epoch() == Some(*epoch));
        let belief = |result| match result {
            ConfirmResult::Unlike => Ok(Belief::Unlike),
            ConfirmResult::Same(Confirmed { applied, watched, bare }) => {
                Ok(Belief::True { applied, bare, epoch: epoch(watched) })
            }
            ConfirmResult::Page(WatchedPage { page, watched }) => {
                Ok(Belief::Other(Watched { page: page.joined(), epoch: epoch(watched) }))
            }
            ConfirmResult::Failed(failure) => Err(failure.0),
        };
        Ok(results.into_iter().map(belief).collect())
    }

    fn confirms(&self) -> bool {
        let both = XATTRS | WATCHES | CONFIRMS;
        self.accept.features & both == both
    }

    async fn walk(&self, from: Vec<Loc>, bytes: u32, later: bool) -> Result<Walked> {
        self.walk_as(if later { Class::Bulk } else { Class::Data }, from, bytes).await
    }

    fn walks(&self) -> bool {
        let all = XATTRS | WATCHES | WALKS;
        self.accept.features & all == all
    }

    async fn changes(&self) -> Vec<Changed> {
        self.shared.told.changes().await
    }

    fn epoch(&self) -> Option<u64> {
        self.shared.epoch().filter(|_| self.accept.features & WATCHES != 0)
    }

    async fn read(&self, file: &Loc, at: u64, len: u32) -> Result<Chunk> {
        self.read_as(Turn::Now, file, at, len).await
    }

    async fn read_known(
        &self,
        file: &Loc,
        at: u64,
        len: u32,
        mut known: Vec<u64>,
        later: bool,
    ) -> Result<Sparse> {
        if self.accept.features & KNOWN == 0 {
            return Err(ErrorKind::Unsupported.into());
        }
        known.truncate(KNOWN_MAX);
        let read = ReadArgs { file: file.clone(), at, len: len.min(READ_MAX) };
        let class = if later { Class::Bulk } else { Class::Data };
        match self.call(class, Request::Readk(KnownArgs { read, known })).await? {
            Reply::Readk(sparse) => Ok(sparse),
            other => Err(unexpected(&other)),
        }
    }

    fn window(&self) -> Option<u64> {
        self.wire().window()
    }

    fn knows(&self) -> bool {
        self.accept.features & KNOWN != 0 && self.is_far()
    }

    async fn watch_later(&self, dir: &Loc, max: u32, mark: u64) -> Result<Watched> {
        self.watch_as(Class::Bulk, dir, max, mark).await
    }

    async fn read_in(&self, turn: Turn, file: &Loc, at: u64, len: u32) -> Result<Chunk> {
        self.read_as(turn, file, at, len).await
    }

    async fn readlink(&self, at: &Loc) -> Result<Bytes> {
        match self.call(Class::Metadata, Request::Readlink(at.clone())).await? {
            Reply::Readlink(target) => Ok(target),
            other => Err(unexpected(&other)),
        }
    }

    async fn statfs(&self, at: &Loc) -> Result<StatFs> {
        match self.call(Class::Metadata, Request::Statfs(at.clone())).await? {
            Reply::Statfs(space) => Ok(space),
            other => Err(unexpected(&other)),
        }
    }

    async fn xattrs(&self, at: &Loc, want: Option<&XattrName>) -> Result<Xattrs> {
        if !self.has_xattrs() {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "the agent there is too old for extended attributes",
            ));
        }
        let args = XattrsArgs { at: at.clone(), want: want.cloned() };
        match self.call(Class::Metadata, Request::Xattrs(args)).await? {
            Reply::Xattrs(xattrs) => Ok(xattrs),
            other => Err(unexpected(&other)),
        }
    }

    async fn stage(&self, op: OpId, mut at: u64, mut data: Bytes) -> Result<()> {
        let mut waits = Vec::new();
        loop {
            let part = data.split_to(data.len().min(STAGE_MAX));
            let next = at + part.len() as u64;
            waits.push(self.stage_part(StageArgs { op, at, data: part }));
            at = next;
            if data.is_empty() {
                break;
            }
        }
        futures_util::future::try_join_all(waits).await.map(drop)
    }

    async fn copy(&self, op: OpId, places: Vec<Loc>, parts: Vec<Copied>) -> Result<()> {
        if self.accept.features & COPIES == 0 {
            return Err(ErrorKind::Unsupported.into());
        }
        let places: Vec<Loc> = places.into_iter().take(COPY_PLACES).collect();
        let requests = in_requests(parts).into_iter().map(|parts| {
            let request = Request::Copy(CopyArgs { op, places: places.clone(), parts });
            async move {
                match self.accept.features & ORDERED != 0 {
                    true => self.hand_over(request).await,
                    false => match self.call(Class::Bulk, request).await? {
                        Reply::Copy(_) => Ok(()),
                        other => Err(unexpected(&other)),
                    },
                }
            }
        });
        futures_util::future::try_join_all(requests).await.map(drop)
    }

    async fn spool(&self, op: OpId) -> Result<u64> {
        if !self.spools() {
            return Err(ErrorKind::Unsupported.into());
        }
        match self.call(Class::Data, Request::Spool(op)).await? {
            Reply::Spool(held) => Ok(held),
            other => Err(unexpected(&other)),
        }
    }

    fn spools(&self) -> bool {
        self.accept.features & SPOOLS != 0
    }

    async fn unspool(&self, op: OpId) -> Result<()> {
        if !self.spools() || self.accept.features & UNSPOOLS == 0 {
            return Ok(());
        }
        match self.call(Class::Data, Request::Unspool(op)).await? {
            Reply::Unspool(_) => Ok(()),
            other => Err(unexpected(&other)),
        }
    }

    fn copies(&self) -> bool {
        self.accept.features & COPIES != 0 && self.is_far()
    }

    async fn claim(&self, gateway: u64, volume: u32, lost: Vec<u64>) -> Result<Option<Claimed>> {
        Ok(self.claim_with(ClaimArgs { gateway, volume, lost }, None).await?.known)
    }

    async fn claim_in(&self, gateway: u64, volume: u32, lost: Vec<u64>, term: Term) -> Result<Entered> {
        self.claim_with(ClaimArgs { gateway, volume, lost }, Some(term)).await
    }

    async fn apply(&self, ops: Vec<Placed>) -> Result<Vec<Outcome>> {
        let mut outcomes = Vec::new();
        let mut ops = ops;
        if !self.has_xattrs()
            && let Some(first) = ops.iter().position(|p| matches!(p.op, Op::SetXattr { .. }))
        {
            // It would not understand the whole request.
            if first == 0 {
                return Ok(vec![Outcome::Refused(ErrorKind::Unsupported)]);
            }
            ops.truncate(first);
        }
        if self.accept.features & BASES == 0 {
            for placed in &mut ops {
                if let Op::SetAttr { base, .. } = &mut placed.op {
                    *base = None;
                }
            }
        }
        for batch in batches(ops) {
            let asked = batch.len();
            let answer = match self.call(Class::Data, self.changing(batch)).await {
                // Nothing of this message was executed, but what went before it was.
                Err(e) if e.kind == ErrorKind::NotStaged && !outcomes.is_empty() => break,
                Err(e) if e.kind == ErrorKind::NotStaged => return Err(self.not_staged(e)),
                Err(e) => return Err(e),
                Ok(Reply::Apply(answer) | Reply::Applyc(answer))
                    if !answer.is_empty() && answer.len() <= asked =>
                {
                    answer
                }
                Ok(other) => return Err(unexpected(&other)),
            };
            let stopped = answer.len() < asked || !matches!(answer.last(), Some(Outcome::Done(_)));
            outcomes.extend(answer);
            if stopped {
                break;
            }
        }
        Ok(outcomes)
    }
}

type Answer = oneshot::Sender<Result<Reply>>;
type SeenAnswer = oneshot::Sender<Result<Seen>>;

impl Waiter {
    fn fail(self, why: &Error) {
        // A caller that went away needs no answer.
        match self {
            Waiter::One(sender) => drop(sender.send(Err(why.clone()))),
            Waiter::Sent { unkept, .. } => *unkept.lock() = Some(why.clone()),
            Waiter::Stats(senders) => senders.into_iter().for_each(|s| drop(s.send(Err(why.clone())))),
        }
    }

    fn answer(self, reply: Reply) {
        match (self, reply) {
            (Waiter::One(sender), reply) => drop(sender.send(Ok(reply))),
            (Waiter::Sent { .. }, Reply::Stage(_) | Reply::Stagec(_) | Reply::Copy(_)) => {}
            (Waiter::Stats(senders), Reply::Stat(results)) if results.len() == senders.len() => {
                for (sender, result) in senders.into_iter().zip(results) {
                    drop(sender.send(seen(result)));
                }
            }
            (waiter, other) => waiter.fail(&unexpected(&other)),
        }
    }
}

fn seen(result: super::verbs::StatResult) -> Result<Seen> {
    match result {
        super::verbs::StatResult::Seen(seen) => Ok(seen),
        super::verbs::StatResult::Failed(failure) => Err(failure.0),
    }
}
