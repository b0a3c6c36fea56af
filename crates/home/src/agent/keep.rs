//! Watches outlive a lost connection, so that who comes back hears what has happened meanwhile.
//!
//! The client gives its watches a name that nobody can guess. The agent listens under it, in the abstract namespace
//! (unix(7)), and passes the watches on to the next agent that is told the same name. One that ends leaves a process of the
//! program behind, which does nothing but hold them and listen, for [`KEPT_FOR`] at most: what happens gathers in the
//! kernel. Both ends look whose process the other one is.

use super::server::{self, Serve};
use crate::limits::agent::{KEPT_BYTES, KEPT_FOR, KEPT_WAIT};
use crate::posix::watch::Kept;
use oncrpc::xdr::Xdr;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::FileExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Under which watches are kept.
pub type KeepName = [u8; 16];

/// Passes on the watches of this process.
#[derive(Debug, Default)]
pub struct Keeper {
    /// Where it listens, until they are passed on.
    listener: Mutex<Option<UnixListener>>,
}

impl Keeper {
    /// From now on whoever asks under this name gets the watches of `home`.
    pub fn listen<S: Serve>(self: &Arc<Self>, home: Arc<S>, name: &KeepName) -> io::Result<()> {
        let listener = UnixListener::bind_addr(&address(name)?)?;
        *self.slot() = Some(listener.try_clone()?);
        let keeper = self.clone();
        server::spawn("keeps", move || {
            while let Ok((stream, _)) = listener.accept() {
                if !is_own(&stream) || keeper.slot().take().is_none() {
                    continue;
                }
                // Whoever gets them listens under the same name.
                drop(listener);
                let given =
                    home.give_watches().and_then(|(watches, kept)| Some((watches, written(&kept).ok()?)));
                if let Some((watches, kept)) = given {
                    let _ = send(&stream, watches.as_fd(), kept.as_fd());
                }
                return;
            }
        })
    }

    /// Leaves a process behind that holds the watches, where there are any. The caller is expected to end this one.
    pub fn rest<S: Serve>(&self, home: &S) -> io::Result<()> {
        let Some(listener) = self.slot().take() else { return Ok(()) };
        let Some((watches, kept)) = home.give_watches() else { return Ok(()) };
        let kept = written(&kept)?;
        // By its name, for who looks at a list of processes, if it still has that.
        let named = std::env::current_exe().ok().filter(|path| path.exists());
        Command::new(named.unwrap_or_else(|| "/proc/self/exe".into()))
            .arg("--keep")
            .current_dir("/")
            .stdin(Stdio::from(OwnedFd::from(listener)))
            .stdout(Stdio::from(watches))
            .stderr(Stdio::from(kept))
            .process_group(0)
            .spawn()
            .map(drop)
    }

    fn slot(&self) -> std::sync::MutexGuard<'_, Option<UnixListener>> {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The process that is left behind: its standard input listens, its standard output is the watches, and its standard error
/// what belongs to them. Ends when it has passed them on, or nobody came for [`KEPT_FOR`].
pub fn hold() -> io::Result<()> {
    let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
    let listener = UnixListener::from(stdin.as_fd().try_clone_to_owned()?);
    let until = Instant::now() + KEPT_FOR;
    while wait(&listener, until.saturating_duration_since(Instant::now()))? {
        let (stream, _) = listener.accept()?;
        if is_own(&stream) {
            return send(&stream, stdout.as_fd(), stderr.as_fd());
        }
    }
    Ok(())
}

/// The watches that are kept under a name, if there are any; nobody else gets them then, and the name is free.
pub fn fetch(name: &KeepName) -> Option<(OwnedFd, Kept)> {
    let until = Instant::now() + KEPT_WAIT;
    loop {
        let stream = UnixStream::connect_addr(&address(name).ok()?).ok().filter(is_own)?;
        match receive(stream, until.saturating_duration_since(Instant::now())) {
            Ok((watches, kept)) => return read(kept).map(|kept| (watches, kept)),
            // An agent was about to leave them to another process.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof && Instant::now() < until => {
                std::thread::sleep(KEPT_WAIT / 100);
            }
            Err(_) => return None,
        }
    }
}

fn address(name: &KeepName) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("trellis-watches-{:032x}", u128::from_be_bytes(*name)))
}

fn is_own(stream: &UnixStream) -> bool {
    socket_peercred(stream).is_ok_and(|peer| peer.uid == rustix::process::geteuid())
}

/// Whether somebody comes within this time.
fn wait(listener: &UnixListener, most: Duration) -> io::Result<bool> {
    let most = Timespec { tv_sec: most.as_secs() as i64, tv_nsec: most.subsec_nanos().into() };
    Ok(poll(&mut [PollFd::new(listener, PollFlags::IN)], Some(&most))? > 0)
}

/// A file in memory of what belongs to watches.
fn written(kept: &Kept) -> io::Result<File> {
    let mut file = File::from(memfd_create(c"watches", MemfdFlags::CLOEXEC)?);
    file.write_all(&kept.to_bytes())?;
    Ok(file)
}

fn read(file: OwnedFd) -> Option<Kept> {
    let file = File::from(file);
    let len = file.metadata().ok()?.len();
    let mut bytes = vec![0; usize::try_from(len).ok().filter(|_| len <= KEPT_BYTES)?];
    file.read_exact_at(&mut bytes, 0).ok()?;
    Kept::from_bytes(bytes.into()).ok()
}

fn send(stream: &UnixStream, watches: BorrowedFd<'_>, kept: BorrowedFd<'_>) -> io::Result<()> {
    let fds = [watches, kept];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&fds));
    sendmsg(stream, &[IoSlice::new(b"!")], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Both descriptors, once the other end is closed.
fn receive(mut stream: UnixStream, most: Duration) -> io::Result<(OwnedFd, OwnedFd)> {
    stream.set_read_timeout(Some(most.max(Duration::from_millis(1))))?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(&stream, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let mut fds = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => fds.collect::<Vec<_>>(),
        _ => Vec::new(),
    });
    let both = fds.next().zip(fds.next()).ok_or(io::ErrorKind::UnexpectedEof)?;
    let _ = stream.read(&mut byte);
    Ok(both)
}
