//! The command's end of the control socket.

use super::proto::{Reply, Request};
use super::wire;
use crate::state::StateDir;
use crate::{dying, limits};
use bytes::Bytes;
use home::io_text;
use home::{Error, ErrorKind, Result};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::net::UnixStream;

/// A conversation with the server.
pub struct Client<S = UnixStream> {
    stream: BufReader<S>,
    /// The server's process, where it is one of this machine.
    server: Option<i32>,
    /// It has answered at once, and is to go on with that ([`Client::greet`]).
    prompt: bool,
    /// An answer was not waited for any more: what comes now belongs to another question.
    given_up: bool,
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

impl Client {
    /// The same; a server that is starting is waited for.
    pub async fn reach(state: &StateDir) -> std::result::Result<Option<Client>, String> {
        let until = Instant::now() + limits::START_WAIT;
        loop {
            let locked = state.is_locked_here();
            match Client::connect(state).await? {
                None if locked && Instant::now() < until => tokio::time::sleep(limits::START_POLL).await,
                client => return Ok(client),
            }
        }
    }
}

fn not_connected(state: &StateDir, e: &std::io::Error) -> std::result::Result<Option<Client>, String> {
    match e.kind() {
        std::io::ErrorKind::NotFound | std::io::ErrorKind::ConnectionRefused => Ok(None),
        _ => Err(format!("control socket in {}: {e}", state.path().display(), e = io_text(e))),
    }
}

fn not_stopped(stream: UnixStream, peer: Option<i32>) -> std::result::Result<Client, String> {
    match peer.filter(|pid| is_stopped(*pid)) {
        Some(pid) => Err(stopped(pid)),
        None => Ok(Client { server: peer, ..Client::over(stream) }),
    }
}

fn stopped(pid: i32) -> String {
    format!(
        "the server (process {pid}) has been stopped by a signal and answers nobody: let it go on with `kill -CONT {pid}`"
    )
}

/// Whether a process is stopped (state `T` in proc(5) `stat`): whoever asks it waits without end.
fn is_stopped(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}

impl<S: AsyncRead + AsyncWrite + Unpin> Client<S> {
    /// Over any stream.
    pub fn over(stream: S) -> Client<S> {
        Client { stream: BufReader::new(stream), server: None, prompt: false, given_up: false }
    }

    /// The stream itself, for a request after which it carries something else.
    pub fn into_stream(self) -> BufReader<S> {
        self.stream
    }

    /// Waits until the server has answered a question that costs it nothing, for [`limits::CONTROL_ANSWER`]. From then on
    /// what waits for homes may take long, and nothing else. A server that is busy with as many commands as it takes fails
    /// this, so that it is not for commands that run by the dozen.
    pub async fn greet(&mut self) -> Result<()> {
        self.prompt = true;
        self.ask(Request::Names).await.map(drop)
    }

    /// Asks without payload, and expects none.
    pub async fn ask(&mut self, request: Request) -> Result<Reply> {
        Ok(self.call(request, b"").await?.0)
    }

    /// Asks; what the server is not ready for yet ([`ErrorKind::may_pass`]) is repeated for a while, because
    /// nothing happened then.
    pub async fn call(&mut self, request: Request, payload: &[u8]) -> Result<(Reply, Bytes)> {
        let until = Instant::now() + limits::RETRY_FOR;
        loop {
            let stopping = matches!(request, Request::Stop { .. });
            match self.call_once(request.clone(), payload).await {
                Err(e) if e.kind.may_pass() && !stopping && Instant::now() < until => {
                    tokio::time::sleep(limits::RETRY_PAUSE).await;
                }
                done => return done,
            }
        }
    }

    async fn call_once(&mut self, request: Request, payload: &[u8]) -> Result<(Reply, Bytes)> {
        if self.given_up {
            return Err(Error::new(
                ErrorKind::Io,
                "the server has left an earlier question without an answer",
            ));
        }
        let (server, patience) = (self.server, request.patience().filter(|_| self.prompt));
        let exchange = async {
            wire::send(&mut self.stream, request, payload).await?;
            wire::receive(&mut self.stream).await
        };
        let answer = tokio::select! {
            answer = exchange => Some(answer),
            () = silence(server, patience) => None,
        };
        let Some(answer) = answer else {
            self.given_up = true;
            return Err(Error::new(ErrorKind::Io, silent(server)));
        };
        match answer {
            Ok(Some((Reply::Failed { kind, detail }, _))) => Err(Error::new(kind, detail)),
            Ok(Some(answer)) => Ok(answer),
            Ok(None) => Err(Error::new(
                ErrorKind::Io,
                "the server closed the control connection: it stopped, or belongs to another user",
            )),
            Err(e) => Err(Error::new(ErrorKind::Io, format!("the server does not answer: {}", io_text(&e)))),
        }
    }
}

/// Waits for as long as an answer may take, or until the server cannot give one.
async fn silence(server: Option<i32>, patience: Option<Duration>) {
    let begun = tokio::time::Instant::now();
    let mut able = begun;
    loop {
        tokio::time::sleep(limits::CONTROL_LOOK).await;
        let now = tokio::time::Instant::now();
        if !server.is_some_and(|pid| is_stopped(pid) || dying::is_dying(pid)) {
            able = now;
        }
        if now - able >= limits::CONTROL_ANSWER || patience.is_some_and(|p| now - begun >= p) {
            return;
        }
    }
}

/// What a person can do about a server that does not answer.
fn silent(server: Option<i32>) -> String {
    match server {
        Some(pid) if is_stopped(pid) => stopped(pid),
        Some(pid) => format!(
            "the server (process {pid}) does not answer: it may be starting, or busy with {} other commands; if it hangs, \
             `kill -9 {pid}` ends it, and `trellis mount` or `trellis serve` goes on from its journal",
            limits::CONTROL_CLIENTS
        ),
        None => "the server does not answer: see on its machine with `trellis status`".into(),
    }
}

/// The error for an answer that does not fit the question.
pub fn unexpected() -> Error {
    Error::new(
        ErrorKind::Io,
        "the server answered something else than was asked: restart it with this binary",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, Signal, kill_process};

    #[tokio::test(start_paused = true)]
    async fn who_never_answers_is_not_waited_for() {
        for request in [Request::Status, Request::Names, Request::Umount { dir: None, lazy: false }] {
            let (ours, _theirs) = tokio::io::duplex(1 << 16);
            let mut client = Client { prompt: true, ..Client::over(ours) };
            let error = client.ask(request).await.unwrap_err();
            assert!(error.detail.contains("does not answer"), "{}", error.detail);
            let again = client.ask(Request::Names).await.unwrap_err();
            assert!(again.detail.contains("earlier question"), "{}", again.detail);
        }
        let (ours, _theirs) = tokio::io::duplex(1 << 16);
        let silent = Client::over(ours).greet().await;
        assert!(silent.is_err_and(|e| e.detail.contains("does not answer")));
    }

    #[tokio::test(start_paused = true)]
    async fn what_takes_long_is_waited_for_while_the_server_can_answer() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let (pid, raw) = (Pid::from_child(&child), child.id().cast_signed());
        let (ours, _theirs) = tokio::io::duplex(1 << 16);
        let mut client = Client { server: Some(raw), ..Client::over(ours) };
        let mut waiting = std::pin::pin!(client.ask(Request::Sync { path: None, timeout_s: 600.0 }));
        let early = tokio::time::timeout(limits::CONTROL_ANSWER * 20, &mut waiting).await;
        assert!(early.is_err(), "it lives");
        kill_process(pid, Signal::STOP).unwrap();
        // The clock of the test runs ahead of the machine's.
        while !is_stopped(raw) {
            std::thread::yield_now();
        }
        let began = tokio::time::Instant::now();
        let error = waiting.await.unwrap_err();
        assert!(error.detail.contains(&format!("kill -CONT {raw}")), "{}", error.detail);
        assert!(began.elapsed() < limits::CONTROL_ANSWER * 2);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
