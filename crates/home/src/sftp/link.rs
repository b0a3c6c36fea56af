//! The pipe to an SFTP server: many requests under way, answers by their ids, and what the server can do.

use super::wire::{self, Answer, Ask, Attrs};
use crate::agent::verbs::printable;
use crate::limits::remote::{SFTP_BATCH, SFTP_BULK, SFTP_IN_FLIGHT, SFTP_PACKET, SFTP_UNIT};
use crate::remote::{Life, Meter, Rounds, closed, lost};
use crate::ssh::{Channel, Child, Far, SshTarget, classify, quote};
use crate::{Error, ErrorKind, Result};
use bytes::{Bytes, BytesMut};
use oncrpc::xdr::{Reader, Writer};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Notify, Semaphore, SemaphorePermit, oneshot};
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// What an answer is delivered to.
type Reply = oneshot::Sender<Result<Answer>>;

/// A connection to an SFTP server.
pub(super) struct Link {
    shared: Arc<Shared>,
    tasks: Vec<AbortHandle>,
    /// What the server can do beyond version 3.
    pub can: Can,
}

/// Extensions of OpenSSH that the server offers, and its limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Can {
    pub posix_rename: bool,
    pub hardlink: bool,
    pub fsync: bool,
    pub statvfs: bool,
    pub lsetstat: bool,
    /// It is OpenSSH's own server, which does one request after the other.
    pub limits: bool,
    /// Bytes of one READ.
    pub read_max: u32,
    /// Bytes of one WRITE.
    pub write_max: u32,
}

struct Shared {
    life: Life,
    table: Mutex<Table>,
    work: Notify,
    window: Semaphore,
    /// Of units of [`SFTP_UNIT`].
    bulk: Semaphore,
}

#[derive(Default)]
struct Table {
    last_id: u32,
    queue: VecDeque<(u32, Bytes)>,
    waiting: HashMap<u32, Waiting>,
    rounds: Rounds,
    /// The shortest time of an answer.
    fastest: Option<Duration>,
    end: Option<Error>,
}

/// A request without an answer.
struct Waiting {
    reply: Option<Reply>,
    round: u64,
    sent: Option<Instant>,
}

/// What lets requests be under way.
pub(super) struct Room<'a> {
    _places: (SemaphorePermit<'a>, SemaphorePermit<'a>),
}

/// A request that was sent.
pub(super) struct Pending(oneshot::Receiver<Result<Answer>>);

impl Pending {
    /// The answer, which may be any STATUS.
    pub async fn raw(self) -> Result<Answer> {
        self.0.await.unwrap_or_else(|_| Err(closed()))
    }

    /// The answer. A STATUS other than OK is an error.
    pub async fn answer(self) -> Result<Answer> {
        match self.raw().await? {
            Answer::Status { code, text } if code != wire::OK => Err(failure(code, &text)),
            answer => Ok(answer),
        }
    }

    pub async fn done(self) -> Result<()> {
        self.answer().await.map(drop)
    }

    pub async fn attrs(self) -> Result<Attrs> {
        match self.answer().await? {
            Answer::Attrs(attrs) => Ok(attrs),
            _ => Err(nonsense()),
        }
    }

    pub async fn handle(self) -> Result<Bytes> {
        match self.answer().await? {
            Answer::Handle(handle) => Ok(handle),
            _ => Err(nonsense()),
        }
    }
}

impl Link {
    /// Logs in and greets. [`ErrorKind::Unsupported`] where the account has no SFTP.
    pub async fn open(target: &SshTarget, meter: Arc<Meter>) -> Result<Link> {
        let Channel { child, stdin, mut stdout } = Channel::open(target, Far::Subsystem("sftp"))?;
        let mut stdin = stdin;
        let greeting = async {
            stdin.write_all(&wire::init()).await.map_err(lost)?;
            read_packet(&mut stdout).await
        };
        let packet = match greeting.await {
            Ok(packet) => packet,
            Err(_) => return Err(no_greeting(child).await),
        };
        let foreign =
            |_| Error::new(ErrorKind::Unsupported, format!("what answers at {target} is no SFTP server"));
        let (version, extensions) = wire::version(packet).map_err(foreign)?;
        if version != 3 {
            let text = format!("{target} speaks version {version} of SFTP, we speak 3");
            return Err(Error::new(ErrorKind::Unsupported, text));
        }
        let shared = Arc::new(Shared {
            life: Life::new(meter, Some(child)),
            table: Mutex::default(),
            work: Notify::new(),
            window: Semaphore::new(SFTP_IN_FLIGHT),
            bulk: Semaphore::new(SFTP_BULK / SFTP_UNIT),
        });
        let tasks = vec![
            tokio::spawn(run(shared.clone(), |s| write_requests(s, stdin))).abort_handle(),
            tokio::spawn(run(shared.clone(), |s| read_answers(s, stdout))).abort_handle(),
            tokio::spawn(run(shared.clone(), keep_alive)).abort_handle(),
        ];
        let mut link = Link { shared, tasks, can: Can::from(&extensions) };
        if link.can.limits {
            link.ask_limits().await?;
        }
        link.shared.life.greeted();
        Ok(link)
    }

    pub fn life(&self) -> &Life {
        &self.shared.life
    }

    /// The shortest time of an answer so far.
    pub fn round_trip(&self) -> Duration {
        self.shared.table.lock().fastest.unwrap_or_default()
    }

    /// Waits until `requests` may be under way that ask for, or bring, so many bytes together. Who has room waits for no
    /// other one of the same link.
    pub async fn room(&self, requests: usize, bytes: usize) -> Result<Room<'_>> {
        let shared = &self.shared;
        let units = bytes.min(SFTP_BULK).div_ceil(SFTP_UNIT) as u32;
        let bulk = shared.bulk.acquire_many(units).await.map_err(|_| closed())?;
        let requests = requests.min(SFTP_IN_FLIGHT) as u32;
        let window = shared.window.acquire_many(requests).await.map_err(|_| closed())?;
        Ok(Room { _places: (bulk, window) })
    }

    /// Sends a request behind those that were sent before, without waiting; there must be [`Link::room`] for it.
    pub fn send(&self, ask: Ask, body: impl FnOnce(&mut Writer)) -> Result<Pending> {
        let (sender, receiver) = oneshot::channel();
        self.shared.push(ask, body, Some(sender))?;
        Ok(Pending(receiver))
    }

    /// The same with a request about a path or a handle alone.
    pub fn send_about(&self, ask: Ask, what: &[u8]) -> Result<Pending> {
        self.send(ask, |w| wire::put_string(w, what))
    }

    /// The same with a request of OpenSSH's.
    pub fn send_extended(&self, name: &str, body: impl FnOnce(&mut Writer)) -> Result<Pending> {
        let body = |w: &mut Writer| {
            wire::put_string(w, name.as_bytes());
            body(w);
        };
        self.send(Ask::Extended, body)
    }

    /// One request and its answer. A STATUS other than OK is an error.
    pub async fn ask(&self, ask: Ask, body: impl FnOnce(&mut Writer)) -> Result<Answer> {
        let _room = self.room(1, 0).await?;
        self.send(ask, body)?.answer().await
    }

    /// One request whose answer may be any STATUS, and has up to so many bytes.
    pub async fn ask_raw(&self, ask: Ask, bytes: usize, body: impl FnOnce(&mut Writer)) -> Result<Answer> {
        let _room = self.room(1, bytes).await?;
        self.send(ask, body)?.raw().await
    }

    /// Closes a handle without waiting.
    pub fn close_later(&self, handle: Bytes) {
        // Fails if the connection has ended, and the handle with it.
        let _ = self.shared.push(Ask::Close, |w| wire::put_string(w, &handle), None);
    }

    pub async fn attrs(&self, ask: Ask, what: &[u8]) -> Result<Attrs> {
        let _room = self.room(1, 0).await?;
        self.send_about(ask, what)?.attrs().await
    }

    pub async fn handle(&self, ask: Ask, body: impl FnOnce(&mut Writer)) -> Result<Bytes> {
        let _room = self.room(1, 0).await?;
        self.send(ask, body)?.handle().await
    }

    /// A path or link target: the first name of the answer.
    pub async fn name(&self, ask: Ask, path: &[u8]) -> Result<Bytes> {
        match self.ask(ask, |w| wire::put_string(w, path)).await? {
            Answer::Names(names) if names.len() == 1 => Ok(names[0].0.clone()),
            _ => Err(nonsense()),
        }
    }

    /// A request of OpenSSH's, and its answer.
    pub async fn extended(&self, name: &str, body: impl FnOnce(&mut Writer)) -> Result<Answer> {
        let _room = self.room(1, 0).await?;
        self.send_extended(name, body)?.answer().await
    }

    async fn ask_limits(&mut self) -> Result<()> {
        let Ok(Answer::Extended(body)) = self.extended("limits@openssh.com", |_| {}).await else {
            return Ok(());
        };
        let mut r = Reader::new(body);
        let (_packet, read, write) = (r.u64(), r.u64(), r.u64());
        // Room for the rest of the packet; zero means that the server names no limit.
        let bound = |limit, old| match limit {
            Ok(1..) => u64::min(limit.unwrap_or(0), SFTP_PACKET as u64 - 1024) as u32,
            _ => old,
        };
        self.can.read_max = bound(read, self.can.read_max);
        self.can.write_max = bound(write, self.can.write_max);
        Ok(())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
        self.shared.finish(&closed());
    }
}

impl Can {
    fn from(extensions: &[(Bytes, Bytes)]) -> Can {
        let has = |name: &str| extensions.iter().any(|(n, _)| n == name.as_bytes());
        Can {
            posix_rename: has("posix-rename@openssh.com"),
            hardlink: has("hardlink@openssh.com"),
            fsync: has("fsync@openssh.com"),
            statvfs: has("statvfs@openssh.com"),
            lsetstat: has("lsetstat@openssh.com"),
            limits: has("limits@openssh.com"),
            read_max: wire::DATA_DEFAULT,
            write_max: wire::DATA_DEFAULT,
        }
    }
}

impl Shared {
    fn push(&self, ask: Ask, body: impl FnOnce(&mut Writer), reply: Option<Reply>) -> Result<()> {
        let mut table = self.table.lock();
        if let Some(end) = &table.end {
            return Err(end.clone());
        }
        // An id may only be used again when its answer has come; there are far fewer than 2^32 under way.
        let id = table.last_id.wrapping_add(1);
        table.last_id = id;
        let packet = wire::request(ask, id, body);
        if packet.len() > SFTP_PACKET {
            return Err(Error::new(ErrorKind::NameTooLong, "the path is too long for SFTP"));
        }
        table.queue.push_back((id, packet));
        table.waiting.insert(id, Waiting { reply, round: 0, sent: None });
        drop(table);
        self.work.notify_one();
        Ok(())
    }

    fn finish(&self, why: &Error) {
        let mut table = self.table.lock();
        table.end.get_or_insert_with(|| why.clone());
        let waiting: Vec<_> = table.waiting.drain().collect();
        table.queue.clear();
        drop(table);
        self.life.finish(why);
        for reply in waiting.into_iter().filter_map(|(_, waiting)| waiting.reply) {
            // A caller that went away needs no answer.
            let _ = reply.send(Err(why.clone()));
        }
    }
}

impl Table {
    /// Appends requests to `batch`; answers whether there were any.
    fn take_batch(&mut self, batch: &mut BytesMut, meter: &Meter) -> bool {
        while batch.len() < SFTP_BATCH {
            let Some((id, packet)) = self.queue.pop_front() else { break };
            batch.extend_from_slice(&packet);
            let round = self.rounds.sent(meter);
            if let Some(waiting) = self.waiting.get_mut(&id) {
                (waiting.round, waiting.sent) = (round, Some(Instant::now()));
            }
        }
        !batch.is_empty()
    }
}

async fn run<F: Future<Output = Error>>(shared: Arc<Shared>, task: impl FnOnce(Arc<Shared>) -> F) {
    let why = task(shared.clone()).await;
    let why = shared.life.explain(why).await;
    shared.finish(&why);
}

async fn write_requests(shared: Arc<Shared>, mut writer: impl AsyncWrite + Unpin) -> Error {
    let mut batch = BytesMut::new();
    loop {
        batch.clear();
        while !shared.table.lock().take_batch(&mut batch, &shared.life.meter) {
            shared.work.notified().await;
        }
        if let Err(e) = writer.write_all(&batch).await {
            return lost(e);
        }
        shared.life.count_out(batch.len());
    }
}

async fn read_answers(shared: Arc<Shared>, reader: impl AsyncRead + Unpin) -> Error {
    let mut reader = tokio::io::BufReader::with_capacity(64 << 10, reader);
    loop {
        let packet = match read_packet(&mut reader).await {
            Ok(packet) => packet,
            Err(e) => return e,
        };
        shared.life.count_in(packet.len() + 4);
        let Ok((id, answer)) = wire::answer(packet) else { return nonsense() };
        let mut table = shared.table.lock();
        let Some(Waiting { reply, round, sent }) = table.waiting.remove(&id) else { continue };
        table.rounds.answered(round);
        let took = sent.map(|sent| sent.elapsed());
        table.fastest = table.fastest.into_iter().chain(took).min();
        drop(table);
        if let Some(reply) = reply {
            // A caller that went away needs no answer.
            let _ = reply.send(Ok(answer));
        }
    }
}

async fn read_packet(reader: &mut (impl AsyncRead + Unpin)) -> Result<Bytes> {
    let len = reader.read_u32().await.map_err(lost)? as usize;
    if len > SFTP_PACKET {
        return Err(nonsense());
    }
    let mut packet = vec![0; len];
    reader.read_exact(&mut packet).await.map_err(lost)?;
    Ok(packet.into())
}

/// Asks for a path that every server knows.
async fn keep_alive(shared: Arc<Shared>) -> Error {
    let ping = || {
        // Fails if the connection has ended, which the caller learns anyway.
        let _ = shared.push(Ask::Realpath, |w| wire::put_string(w, b"."), None);
    };
    shared.life.keep_alive(ping).await
}

/// Why nothing answered as an SFTP server.
async fn no_greeting(child: Child) -> Error {
    let target = child.target().clone();
    let farewell = child.farewell().await;
    classify(&target, &farewell).unwrap_or_else(|| match farewell.is_refusal() {
        true => Error::new(ErrorKind::Unsupported, format!("{target} lets us in, but has no SFTP server")),
        false => {
            let text = format!("{target} ended before its SFTP server answered: {}", quote(&farewell.said));
            Error::new(ErrorKind::Unreachable, text)
        }
    })
}

/// The server breaks the protocol: nothing that it says can be trusted any more.
pub(super) fn nonsense() -> Error {
    Error::new(ErrorKind::Unreachable, "the SFTP server breaks the protocol")
}

/// The error of a STATUS.
fn failure(code: u32, text: &[u8]) -> Error {
    let kind = match code {
        wire::NO_SUCH_FILE => ErrorKind::NotFound,
        wire::PERMISSION_DENIED => ErrorKind::Access,
        wire::OP_UNSUPPORTED => ErrorKind::Unsupported,
        wire::BAD_MESSAGE => ErrorKind::Invalid,
        wire::FILE_ALREADY_EXISTS => ErrorKind::Exists,
        wire::WRITE_PROTECT => ErrorKind::ReadOnly,
        wire::NO_SPACE => ErrorKind::NoSpace,
        wire::QUOTA => ErrorKind::Quota,
        wire::DIR_NOT_EMPTY => ErrorKind::NotEmpty,
        _ => ErrorKind::Io,
    };
    let text = printable(&text[..text.len().min(crate::limits::agent::TEXT_MAX)]);
    Error::new(kind, format!("the SFTP server says: {text} (code {code})"))
}
