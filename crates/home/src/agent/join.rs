//! Further pipes into an agent that runs: a channel of ssh carries only so much in a round trip.
//!
//! Another process of the program, started over a channel of its own with `--join PID`, passes its standard input
//! and output on to the agent of that number, over a socket in the abstract namespace (unix(7)), which needs no file and
//! vanishes with the agent. Both ends look whose process the other one is.

use super::server::{self, Program, Serve};
use crate::limits::agent::JOINED_MAX;
use rustix::net::sockopt::socket_peercred;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

fn address(pid: u32) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("trellis-agent-{pid}"))
}

/// Whether the process at the other end is this account's. Anybody on this machine may connect, or take the name.
fn is_own(stream: &UnixStream) -> bool {
    socket_peercred(stream).is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}

/// Serves `home` also to those who join this process, in threads that end with it.
pub fn listen<S: Serve>(home: Arc<S>, program: Program) -> io::Result<()> {
    let listener = UnixListener::bind_addr(&address(std::process::id())?)?;
    let joined = Arc::new(AtomicUsize::new(0));
    server::spawn("joins", move || {
        for stream in listener.incoming() {
            let Ok(stream) = stream else { return };
            if !is_own(&stream) || joined.load(Ordering::Relaxed) >= JOINED_MAX {
                continue;
            }
            joined.fetch_add(1, Ordering::Relaxed);
            let (home, program, joined) = (home.clone(), program.clone(), joined.clone());
            // Whoever is not served sees the end of the pipe.
            let counted = joined.clone();
            let served = server::spawn("joined", move || {
                if let Ok(output) = stream.try_clone() {
                    let _ = server::serve_joined(home, program, stream, output);
                }
                joined.fetch_sub(1, Ordering::Relaxed);
            });
            if served.is_err() {
                counted.fetch_sub(1, Ordering::Relaxed);
            }
        }
    })
}

/// Passes on between standard input and output and the agent of this number until either ends. The caller is expected
/// to end the process then.
pub fn relay(
    pid: u32,
    mut input: impl io::Read + Send + 'static,
    mut output: impl io::Write,
) -> io::Result<()> {
    let stream = UnixStream::connect_addr(&address(pid)?)?;
    if !is_own(&stream) {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let mut there = stream.try_clone()?;
    server::spawn("there", move || {
        let _ = pass_on(&mut input, &mut there);
        // The agent's answer to that is the end of what it says.
        let _ = there.shutdown(std::net::Shutdown::Both);
    })?;
    let mut back = stream;
    pass_on(&mut back, &mut output)
}

/// Each piece as it comes. `io::copy` would splice(2), and bytes were seen to stay in the pipe for as long as no others came.
fn pass_on(from: &mut impl io::Read, to: &mut impl io::Write) -> io::Result<()> {
    let mut buffer = vec![0; 256 << 10];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(len) => to.write_all(&buffer[..len])?,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

#[cfg(all(test, feature = "client"))]
mod tests {
    use super::server::Beside;
    use super::*;
    use crate::agent::client::Session;
    use crate::op::Staged;
    use crate::posix::Posix;
    use crate::{ErrorKind, Home, HomePath, Loc, Op, OpId, Payload, Piece, Placed, Time};
    use bytes::Bytes;

    async fn session(stream: UnixStream) -> Session {
        stream.set_nonblocking(true).unwrap();
        let (reader, writer) = tokio::net::UnixStream::from_std(stream).unwrap().into_split();
        Session::start(reader, writer, None, Arc::default()).await.unwrap()
    }

    #[tokio::test]
    async fn what_is_staged_over_a_joined_pipe_is_used_by_the_first_one() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("f"), b"").unwrap();
        let root = std::os::unix::ffi::OsStrExt::as_bytes(dir.path().as_os_str());
        let home = Arc::new(Posix::open(root).unwrap().with_home_dir(root));
        let program = Program { hash: [9; 32], platform: "test-cpu".into() };
        listen(home.clone(), program.clone()).unwrap();
        let pipe = |run: fn(UnixStream, UnixStream, Arc<Posix>, Program)| {
            let (ours, theirs) = UnixStream::pair().unwrap();
            let (output, home, program) = (theirs.try_clone().unwrap(), home.clone(), program.clone());
            std::thread::spawn(move || run(theirs, output, home, program));
            session(ours)
        };
        let first = pipe(|i, o, home, program| {
            server::serve(home, program, Beside { joins: true, keeper: None }, i, o).unwrap()
        })
        .await;
        let joined = pipe(|i, o, _, _| relay(std::process::id(), i, o).unwrap()).await;
        assert_eq!(first.accept().pid, joined.accept().pid);

        let file = Loc { path: HomePath::parse(b"f").unwrap(), id: None };
        let id = OpId { gateway: 1, volume: 1, seq: 1 };
        let staged = Payload::Staged(Staged { op: id, at: 0, len: 5 });
        let op = Op::Write { file: file.clone(), base: None, pieces: vec![Piece::Data(0, staged)] };
        let write = Placed { id, time: Time::default(), plain: true, resent: false, op };
        joined.stage(id, 0, Bytes::from_static(b"bytes")).await.unwrap();
        assert_eq!(joined.apply(vec![write.clone()]).await.unwrap_err().kind, ErrorKind::Unsupported);
        assert_eq!(std::fs::read(dir.path().join("f")).unwrap(), b"");
        first.claim(1, 1, Vec::new()).await.unwrap();
        first.apply(vec![write]).await.unwrap();
        assert_eq!(std::fs::read(dir.path().join("f")).unwrap(), b"bytes");
        assert_eq!(&joined.read(&file, 1, 3).await.unwrap().data[..], b"yte");
    }

    #[test]
    fn what_does_not_run_is_not_joined() {
        // No process has this number.
        assert!(relay(u32::MAX, io::empty(), io::sink()).is_err());
    }
}
