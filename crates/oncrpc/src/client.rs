//! Sends calls over one connection.
//!
//! Calls of many callers travel together: what was queued since the last write leaves in one
//! vectored write, and replies find their callers by xid in whatever order they come. A [`Client`] is a
//! handle that can be cloned; one task drives the connection and ends with the last handle.

use crate::limits::{CLIENT_QUEUE, RECORD_MAX};
use crate::msg::{CallHeader, Credential, Refusal, decode_reply};
use crate::outbox::Outbox;
use crate::record::Records;
use crate::xdr::{Reader, Writer, Xdr, XdrError};
use bytes::Bytes;
use std::collections::{HashMap, hash_map::Entry};
use std::future::{Future, poll_fn};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream, ToSocketAddrs};
use tokio::sync::{mpsc, oneshot};

/// Why a call has no results.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The server did not execute it.
    #[error("the server refused the call: {0}")]
    Refused(#[from] Refusal),
    /// The connection is closed; whether the call was executed is unknown.
    #[error("the connection is closed: {0}")]
    Closed(Arc<str>),
    /// The results cannot be decoded.
    #[error("the reply cannot be understood: {0}")]
    Malformed(#[from] XdrError),
}

/// A handle of a connection to a server.
#[derive(Debug, Clone)]
pub struct Client {
    queue: mpsc::Sender<Send>,
    next_xid: Arc<AtomicU32>,
    closed: Arc<OnceLock<Arc<str>>>,
}

#[derive(Debug)]
struct Send {
    xid: u32,
    message: Writer,
    answer: oneshot::Sender<Answer>,
}

type Answer = Result<Reader, Refusal>;

impl Client {
    /// Connects over TCP, with TCP_NODELAY.
    pub async fn connect(addr: impl ToSocketAddrs) -> io::Result<Client> {
        let stream = TcpStream::connect(addr).await?;
        stream.set_nodelay(true)?;
        Ok(Client::with_stream(stream))
    }

    /// Connects over TCP from a given local address; a port below 1024 takes privilege.
    pub async fn connect_from(local: std::net::SocketAddr, addr: std::net::SocketAddr) -> io::Result<Client> {
        let socket = if addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_reuseaddr(true)?;
        socket.bind(local)?;
        let stream = socket.connect(addr).await?;
        stream.set_nodelay(true)?;
        Ok(Client::with_stream(stream))
    }

    /// Uses a stream. Must be called inside a tokio runtime.
    pub fn with_stream<IO>(stream: IO) -> Client
    where
        IO: AsyncRead + AsyncWrite + Unpin + std::marker::Send + 'static,
    {
        let (queue, commands) = mpsc::channel(CLIENT_QUEUE);
        let closed = Arc::new(OnceLock::new());
        let mut driver = Driver::new(stream, commands);
        let reason = closed.clone();
        tokio::spawn(async move {
            let ended = poll_fn(|cx| driver.poll(cx)).await;
            let why = ended.err().map_or("by the server".into(), |error| error.to_string());
            // The reason is there before waiting callers learn that their answers will not come.
            reason.get_or_init(|| why.into());
        });
        let xid = RandomState::new().build_hasher().finish() as u32;
        Client { queue, next_xid: Arc::new(AtomicU32::new(xid)), closed }
    }

    /// Calls a procedure and waits for its results. Calls of one client that run at the same time share the
    /// connection; dropping the future forgets the reply, not the call. Long payloads written by
    /// `args` are not copied.
    pub async fn call(
        &self,
        prog: u32,
        vers: u32,
        proc: u32,
        cred: &Credential,
        args: impl FnOnce(&mut Writer),
    ) -> Result<Reader, CallError> {
        let xid = self.next_xid();
        self.call_with_xid(xid, prog, vers, proc, cred, args).await
    }

    /// As [`Client::call`], with arguments and results of known types. Nothing may follow the results.
    ///
    /// ```no_run
    /// # async fn f(client: oncrpc::client::Client, object: oncrpc::nfs3::NfsFh3) -> Result<(), Box<dyn std::error::Error>> {
    /// use oncrpc::{msg::Credential, nfs3::{self, GetattrArgs, GetattrRes, procs}};
    /// let cred = Credential::sys(1000, 1000, &[]);
    /// let args = GetattrArgs { object };
    /// let res: GetattrRes = client.ask(nfs3::PROGRAM, nfs3::VERSION, procs::GETATTR, &cred, &args).await?;
    /// # Ok(()) }
    /// ```
    pub async fn ask<T: Xdr>(
        &self,
        prog: u32,
        vers: u32,
        proc: u32,
        cred: &Credential,
        args: &impl Xdr,
    ) -> Result<T, CallError> {
        let mut reply = self.call(prog, vers, proc, cred, |w| args.encode(w)).await?;
        let results = T::decode(&mut reply)?;
        reply.finish()?;
        Ok(results)
    }

    /// An xid that [`Client::call`] will not use.
    pub fn next_xid(&self) -> u32 {
        self.next_xid.fetch_add(1, Ordering::Relaxed)
    }

    /// As [`Client::call`], with an xid of the caller's choice: the same one twice is a retransmission.
    /// Callers that wait with one xid are answered in the order of their calls.
    pub async fn call_with_xid(
        &self,
        xid: u32,
        prog: u32,
        vers: u32,
        proc: u32,
        cred: &Credential,
        args: impl FnOnce(&mut Writer),
    ) -> Result<Reader, CallError> {
        let mut message = Writer::new();
        CallHeader { xid, prog, vers, proc, cred: cred.clone() }.encode(&mut message);
        args(&mut message);
        self.send_record(xid, message).await
    }

    /// Sends a whole record as it is, right or wrong, and waits for a reply that bears `xid`.
    pub async fn send_record(&self, xid: u32, message: Writer) -> Result<Reader, CallError> {
        let (answer, answered) = oneshot::channel();
        self.queue.send(Send { xid, message, answer }).await.map_err(|_| self.closed_error())?;
        Ok(answered.await.map_err(|_| self.closed_error())??)
    }

    fn closed_error(&self) -> CallError {
        CallError::Closed(self.closed.get().cloned().unwrap_or_else(|| "by the server".into()))
    }
}

/// Callers that wait with one xid, first come first served. More than one is a retransmission.
#[derive(Debug)]
struct Waiting {
    first: oneshot::Sender<Answer>,
    later: Vec<oneshot::Sender<Answer>>,
}

struct Driver<IO> {
    stream: IO,
    commands: mpsc::Receiver<Send>,
    waiting: HashMap<u32, Waiting>,
    records: Records,
    out: Outbox,
}

/// What callers are up to.
enum Callers {
    /// None wants to send; the driver is woken when one does.
    Silent,
    /// They have to wait until the stream has taken more.
    Held,
    /// There are none left.
    Gone,
}

/// While this many bytes wait to be sent, no further calls are taken.
const OUT_MAX: usize = 8 << 20;

impl<IO: AsyncRead + AsyncWrite + Unpin> Driver<IO> {
    fn new(stream: IO, commands: mpsc::Receiver<Send>) -> Self {
        let records = Records::new(RECORD_MAX);
        Self { stream, commands, waiting: HashMap::new(), records, out: Outbox::default() }
    }

    /// Ready when the connection or the last handle is gone.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            let callers = self.take_calls(cx);
            self.write(cx)?;
            match callers {
                Callers::Gone if self.out.is_empty() => return Poll::Ready(Ok(())),
                Callers::Held if self.out.len() < OUT_MAX => continue,
                _ => (),
            }
            if ready!(pin!(self.stream.read_buf(self.records.buffer())).poll(cx))? == 0 {
                return Poll::Ready(Ok(()));
            }
            while let Some(record) = self.records.next_record().map_err(invalid)? {
                self.deliver(record)?;
            }
        }
    }

    /// Queues what callers want to send.
    fn take_calls(&mut self, cx: &mut Context<'_>) -> Callers {
        while self.out.len() < OUT_MAX {
            match self.commands.poll_recv(cx) {
                Poll::Ready(Some(command)) => self.accept(command),
                Poll::Ready(None) => return Callers::Gone,
                Poll::Pending => return Callers::Silent,
            }
        }
        Callers::Held
    }

    fn write(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while !self.out.is_empty() {
            match self.out.poll_write(cx, &mut self.stream) {
                Poll::Ready(sent) => drop(sent?),
                Poll::Pending => break,
            }
        }
        Ok(())
    }

    fn accept(&mut self, Send { xid, message, answer }: Send) {
        match self.waiting.entry(xid) {
            Entry::Occupied(mut waiting) => waiting.get_mut().later.push(answer),
            Entry::Vacant(free) => drop(free.insert(Waiting { first: answer, later: Vec::new() })),
        }
        self.out.push(message.len(), |w| w.append(message));
    }

    fn deliver(&mut self, record: Bytes) -> io::Result<()> {
        let (xid, answer) = decode_reply(record).map_err(invalid)?;
        let Entry::Occupied(mut waiting) = self.waiting.entry(xid) else { return Ok(()) };
        let caller = if waiting.get().later.is_empty() {
            waiting.remove().first
        } else {
            let waiting = waiting.get_mut();
            let next = waiting.later.remove(0);
            std::mem::replace(&mut waiting.first, next)
        };
        // A caller that has gone no longer cares.
        drop(caller.send(answer));
        Ok(())
    }
}

fn invalid(error: impl Into<Box<dyn std::error::Error + std::marker::Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests;
