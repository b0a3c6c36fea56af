//! The command's end of the control socket.

use super::proto::{Reply, Request};
use super::wire;
use crate::state::StateDir;
use crate::{dying, limits};
use bytes::Bytes;
use home::{Error, ErrorKind, Result};
use std::time::Instant;
use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::net::UnixStream;

/// A conversation with the server.
pub struct Client<S = UnixStream> {
    stream: BufReader<S>,
}

impl Client {
    /// Connects to the server of a state directory; `None` if none runs.
    /// One that was killed is waited for until it has ended.
    pub async fn connect(state: &StateDir) -> std::result::Result<Option<Client>, String> {
        let (path, _open) = state.socket_path()?;
        loop {
            let stream = match UnixStream::connect(&path).await {
                Ok(stream) => stream,
                Err(e) => return not_connected(state, &e),
            };
            let peer = stream.peer_cred().ok().and_then(|peer| peer.pid());
            match peer.filter(|pid| dying::is_dying(*pid)) {
                Some(pid) => {
                    drop(stream);
                    state.wait_for_end(pid).await?;
                }
                None => return not_stopped(stream, peer).map(Some),
            }
        }
    }
}

fn not_connected(state: &StateDir, e: &std::io::Error) -> std::result::Result<Option<Client>, String> {
    match e.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused => Ok(None),
        _ => Err(format!("control socket in {}: {e}", state.path().display())),
    }
}

fn not_stopped(stream: UnixStream, peer: Option<i32>) -> std::result::Result<Client, String> {
    match peer.filter(|pid| is_stopped(*pid)) {
        Some(pid) => Err(format!(
            "the server (process {pid}) has been stopped by a signal and answers nobody: let it go on with \
             `kill -CONT {pid}`"
        )),
        None => Ok(Client::over(stream)),
    }
}

/// Whether a process is stopped (state `T` in proc(5) `stat`): whoever asks it waits without end.
fn is_stopped(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    /// Over any stream.
    pub fn over(stream: S) -> Client<S> {
        Client { stream: BufReader::new(stream) }
    }

    /// The stream itself, for a request after which it carries something else.
    pub fn into_stream(self) -> BufReader<S> {
        self.stream
    }

    /// Asks without payload, and expects none.
    pub async fn ask(&mut self, request: Request) -> Result<Reply> {
        Ok(self.call(request, b"").await?.0)
    }

    /// Asks; what the server is not ready for yet ([`ErrorKind::Busy`]) is repeated for a while, because
    /// nothing happened then.
    pub async fn call(&mut self, request: Request, payload: &[u8]) -> Result<(Reply, Bytes)> {
        let until = Instant::now() + limits::RETRY_FOR;
        loop {
            let stopping = matches!(request, Request::Stop { .. });
            match self.call_once(request.clone(), payload).await {
                Err(e) if e.kind == ErrorKind::Busy && !stopping && Instant::now() < until => {
                    tokio::time::sleep(limits::RETRY_PAUSE).await;
                }
                done => return done,
            }
        }
    }

    async fn call_once(&mut self, request: Request, payload: &[u8]) -> Result<(Reply, Bytes)> {
        let lost = |e: std::io::Error| Error::new(ErrorKind::Io, format!("the server does not answer: {e}"));
        wire::send(&mut self.stream, request, payload).await.map_err(lost)?;
        match wire::receive(&mut self.stream).await.map_err(lost)? {
            Some((Reply::Failed { kind, detail }, _)) => Err(Error::new(kind, detail)),
            Some(answer) => Ok(answer),
            None => Err(Error::new(
                ErrorKind::Io,
                "the server closed the control connection: it stopped, or belongs to another user",
            )),
        }
    }
}

/// The error for an answer that does not fit the question.
pub fn unexpected() -> Error {
    Error::new(
        ErrorKind::Io,
        "the server answered something else than was asked: restart it with this binary",
    )
}
