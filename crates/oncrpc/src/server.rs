//! Answers the calls of a connection.
//!
//! One task drives one connection. All whole records of one read are decoded, and each request's
//! future is polled once in place; the replies that are ready by then leave together in one vectored
//! write. A request that has to wait joins the connection's set of running requests and is answered
//! when it is ready, in whatever order. There is no task per request: spawning one costs more
//! than answering most calls.
//!
//! A request that has begun is finished even if its connection is lost, because its client will send it
//! again over another one and must then find one outcome.
//!
//! # Layout
//! - this file: [`Service`], what it gets and answers, [`serve`] and [`listen`].
//! - `connection`: the state machine of one connection.
//! - `requests`: running requests, and the storage of their futures.

use crate::limits::Limits;
use crate::msg::{Credential, Refusal};
use crate::xdr::{Reader, Writer, Xdr};
use bytes::Bytes;
use connection::Connection;
use futures_util::FutureExt;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

mod connection;
mod requests;

/// Where calls come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Peer {
    /// The other end of a TCP connection; `None` for other streams.
    pub addr: Option<SocketAddr>,
}

/// One call, not yet executed.
#[derive(Debug, Clone)]
pub struct Call {
    /// Chosen by the client; the same again when it repeats a call.
    pub xid: u32,
    /// Program.
    pub prog: u32,
    /// Version of the program.
    pub vers: u32,
    /// Procedure of the program.
    pub proc: u32,
    /// Who calls, by its own account. [`Credential::Other`] occurs with procedure 0 only.
    pub cred: Credential,
    /// The arguments. Payloads taken from it are slices of the receive buffer and keep it alive:
    /// what stays for long is copied, except for the data of large writes.
    pub args: Reader,
    /// The bytes of the arguments, for a checksum.
    pub raw: Bytes,
    /// Where it comes from.
    pub peer: Peer,
    /// Whether half of what may run at the same time on the connection does ([`Limits::in_flight_max`],
    /// [`Limits::in_flight_bytes_max`]): a call that waits for long should then make room for others.
    pub crowd: watch::Receiver<bool>,
}

/// The results of a call in XDR, or why it was not executed.
pub type Reply = Result<Writer, Refusal>;

/// The reply that carries `value`.
pub fn results(value: &impl Xdr) -> Reply {
    let mut w = Writer::new();
    value.encode(&mut w);
    Ok(w)
}

/// Executes calls.
///
/// ```
/// use oncrpc::{nfs3, server::{Call, Program, Reply, Service, results, route}, xdr::Xdr};
/// struct Nothing;
/// impl Service for Nothing {
///     async fn call(&self, mut call: Call) -> Reply {
///         route(&[Program { prog: nfs3::PROGRAM, vers: 3, procs: 22 }], call.prog, call.vers, call.proc)?;
///         if call.proc == nfs3::procs::NULL {
///             return results(&());
///         }
///         let args = nfs3::GetattrArgs::decode(&mut call.args)?; // else GARBAGE_ARGS
///         let _ = args;
///         results(&nfs3::GetattrRes::Fail(nfs3::NfsStat3::Stale, ()))
///     }
/// }
/// ```
pub trait Service: Send + Sync + 'static {
    /// Executes one call. The future is polled once at once; one that is ready then costs no allocation.
    /// It runs to its end even if the connection is lost, unless the server itself goes away. A panic in
    /// it is answered with [`Refusal::SystemErr`].
    fn call(&self, call: Call) -> impl Future<Output = Reply> + Send;

    /// How many bytes the reply may have, as far as that matters: the count of a READ. It counts
    /// against [`Limits::in_flight_bytes_max`] while the call runs.
    fn reply_hint(&self, call: &Call) -> usize {
        let _ = call;
        0
    }

    /// Whether an address may have any of a listener's connections. Others get
    /// [`Limits::strangers_max`] of them at most, enough to be told that they are refused.
    fn welcomes(&self, addr: SocketAddr) -> bool {
        let _ = addr;
        true
    }
}

/// A version of a program that is served, and how many procedures it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Program {
    /// Program number.
    pub prog: u32,
    /// Version.
    pub vers: u32,
    /// Procedures are `0..procs`.
    pub procs: u32,
}

/// Finds a call in a table of programs: its index, or the refusal that RFC 5531 section 9 asks for.
///
/// ```
/// use oncrpc::{msg::Refusal, server::{Program, route}};
/// let table = [Program { prog: 100_003, vers: 3, procs: 22 }];
/// assert_eq!(route(&table, 100_003, 3, 1), Ok(0));
/// assert_eq!(route(&table, 100_003, 5, 1), Err(Refusal::ProgMismatch { low: 3, high: 3 }));
/// ```
pub fn route(table: &[Program], prog: u32, vers: u32, proc: u32) -> Result<usize, Refusal> {
    if let Some(at) = table.iter().position(|p| p.prog == prog && p.vers == vers) {
        return if proc < table[at].procs { Ok(at) } else { Err(Refusal::ProcUnavail) };
    }
    let versions = || table.iter().filter(|p| p.prog == prog).map(|p| p.vers);
    match (versions().min(), versions().max()) {
        (Some(low), Some(high)) => Err(Refusal::ProgMismatch { low, high }),
        _ => Err(Refusal::ProgUnavail),
    }
}

/// Serves one connection over any stream until the peer closes it and everything is answered.
///
/// Fails if the peer sends what is no call, or a record beyond the bound, if it takes no replies, or if the
/// stream breaks; requests that had begun are finished before that.
pub async fn serve<IO, S>(stream: IO, peer: Peer, service: Arc<S>, limits: Limits) -> io::Result<()>
where
    IO: AsyncRead + AsyncWrite + Unpin + Send,
    S: Service,
{
    drive(stream, peer, &*service, &limits, |_| (), std::future::pending()).await
}

/// Serves the connections of a listener until `stop` is ready; then takes no more calls, answers
/// those that have come, and returns when all connections are closed. Dropping the future ends all
/// of them at once.
pub async fn listen<S: Service>(
    listener: TcpListener,
    service: Arc<S>,
    limits: Limits,
    stop: impl Future<Output = ()>,
) {
    let mut stop = pin!(stop);
    let (stopping, stopped) = watch::channel(());
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = &mut stop => break,
            Some(ended) = connections.join_next() => report(ended),
            accepted = listener.accept() => match accepted {
                Ok((stream, addr)) if connections.len() < limits.connections_for(service.welcomes(addr)) => {
                    let (service, limits, stopped) = (service.clone(), limits.clone(), stopped.clone());
                    connections.spawn(serve_tcp(stream, addr, service, limits, stopped));
                }
                Ok((_, addr)) => tracing::warn!(%addr, "too many connections; this one is closed"),
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop((listener, stopping));
    while let Some(ended) = connections.join_next().await {
        report(ended);
    }
}

/// How long to wait before the next try when accepting failed, most likely for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// A silent peer is asked for a sign of life after this time, and then every [`KEEPALIVE_INTERVAL`].
const KEEPALIVE_TIME: Duration = Duration::from_secs(60);
/// Distance of questions for a sign of life.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);

fn report(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "a connection ended by a panic");
    }
}

async fn serve_tcp<S: Service>(
    stream: TcpStream,
    addr: SocketAddr,
    service: Arc<S>,
    limits: Limits,
    mut stopped: watch::Receiver<()>,
) {
    tune(&stream).unwrap_or_else(|error| tracing::debug!(%addr, %error, "cannot set options of a socket"));
    // The sender never sends: a change is an error, and means that the listener stops.
    let stop = async move { drop(stopped.changed().await) };
    let peer = Peer { addr: Some(addr) };
    if let Err(error) = drive(stream, peer, &*service, &limits, quick_ack, stop).await {
        tracing::debug!(%addr, %error, "connection closed");
    }
}

fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE_TIME).with_interval(KEEPALIVE_INTERVAL);
    socket2::SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

/// Sends a delayed acknowledgement now. A client that waits for it before it sends the last short
/// piece of a request (Nagle) would lose 40 ms each time. Linux forgets the option by itself, so that it is
/// set again each time.
fn quick_ack(stream: &TcpStream) {
    #[cfg(target_os = "linux")]
    if let Err(error) = socket2::SockRef::from(stream).set_tcp_quickack(true) {
        tracing::trace!(%error, "cannot ask for a quick acknowledgement");
    }
    #[cfg(not(target_os = "linux"))]
    let _ = stream;
}

async fn drive<IO, S: Service>(
    stream: IO,
    peer: Peer,
    service: &S,
    limits: &Limits,
    quick_ack: fn(&IO),
    stop: impl Future<Output = ()>,
) -> io::Result<()>
where
    IO: AsyncRead + AsyncWrite + Unpin + Send,
{
    let hint = |call: &Call| service.reply_hint(call);
    let start = |call: Call| async move {
        let (prog, vers, proc) = (call.prog, call.vers, call.proc);
        // The service may panic before it has made its future, hence the block.
        let answer = AssertUnwindSafe(async { service.call(call).await }).catch_unwind();
        answer.await.unwrap_or_else(|_| {
            tracing::error!(prog, vers, proc, "a request panicked; this is a bug");
            Err(Refusal::SystemErr)
        })
    };
    let mut connection = Connection::new(stream, peer, limits, quick_ack, hint, start);
    let mut stop = pin!(stop.fuse());
    poll_fn(|cx| {
        if stop.as_mut().poll(cx).is_ready() {
            connection.stop_reading();
        }
        connection.poll(cx)
    })
    .await
}

#[cfg(test)]
mod tests;
