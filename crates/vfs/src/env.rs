//! Everything the engine needs from outside: time, randomness, a disk, and threads that may wait for it.
//!
//! The engine reaches them only through an [`Env`], so that a test can hold the clock, replay the
//! randomness of a seed, cut the power and fill the disk. Paths are relative to the state directory and
//! are joined by `/`; the engine makes all of them up, so they are plain ASCII.

mod real;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

pub use real::{RealClock, RealDisk, RealRng, Threads};

use futures_util::future::BoxFuture;
use home::io_text;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// An open file of the state directory. Positional access only; all methods may run concurrently.
pub trait File: Send + Sync {
    /// Fills `buf` from offset `at`; answers how many bytes there were, which is short only at the end.
    fn pread(&self, buf: &mut [u8], at: u64) -> io::Result<usize>;
    /// Writes the concatenation of `parts` at offset `at`, all of it. After an error any part of it may be there.
    fn pwrite_all(&self, parts: &[&[u8]], at: u64) -> io::Result<()>;
    /// Makes all that was written, and the length, survive a power cut: fdatasync(2). After an error nothing is
    /// known of what was written since the last success, and a second call proves nothing.
    fn sync_data(&self) -> io::Result<()>;
    /// Cuts or extends (with zeros) to `len` bytes.
    fn set_len(&self, len: u64) -> io::Result<()>;
    /// Extends to `len` bytes of zeros that have their blocks on disk, so that overwriting them needs no new space.
    /// Where it fails the file may be longer than before.
    fn allocate(&self, len: u64) -> io::Result<()>;
    /// Length in bytes.
    fn len(&self) -> io::Result<u64>;
    /// Whether it has no bytes.
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

/// The state directory.
pub trait Disk: Send + Sync {
    /// Opens an existing file for reading and writing.
    fn open(&self, path: &str) -> io::Result<Arc<dyn File>>;
    /// Makes a new file; fails if the name is taken. The name is durable after [`Disk::sync_dir`] of its directory.
    fn create(&self, path: &str) -> io::Result<Arc<dyn File>>;
    /// The names in a directory, sorted.
    fn list(&self, dir: &str) -> io::Result<Vec<String>>;
    /// Removes a file.
    fn remove(&self, path: &str) -> io::Result<()>;
    /// Renames a file, replacing what the new name stands for.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Makes a directory and those above it; durable when it returns. One that is there already is no error.
    fn create_dir_all(&self, dir: &str) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &str) -> io::Result<()>;
    /// Bytes that this process may still use.
    fn free_space(&self) -> io::Result<u64>;
}

/// Time.
pub trait Clock: Send + Sync {
    /// Wall-clock time.
    fn now(&self) -> home::Time;
    /// Monotonic time since an arbitrary start.
    fn instant(&self) -> Duration;
}

/// Randomness good enough for keys.
pub trait Rng: Send + Sync {
    /// Fills the buffer with random bytes.
    fn fill(&self, buf: &mut [u8]);

    /// A random number.
    fn u64(&self) -> u64 {
        let mut buf = [0; 8];
        self.fill(&mut buf);
        u64::from_le_bytes(buf)
    }
}

/// Work that is done once and may wait for the disk.
pub type Job = Box<dyn FnOnce() + Send>;

/// Where work is done that may wait for the disk. A simulation does it all in one place, so that its order is known.
pub trait Work: Send + Sync {
    /// Does a job beside the caller, who may wait for its end.
    fn run(&self, name: &str, job: Job) -> io::Result<Ended>;
    /// Does work that waits for news, until it ends by itself.
    fn keep(&self, name: &str, work: BoxFuture<'static, ()>) -> io::Result<Ended>;
    /// Does a job for a task of the runtime, which hears of its end from the job itself.
    fn lend(&self, job: Job);
}

/// Work that was begun.
#[derive(Debug)]
pub struct Ended(pub Option<JoinHandle<()>>);

impl Ended {
    /// Waits for its end; fails if it panicked. Work without a thread of its own is not waited for.
    pub fn join(self) -> std::thread::Result<()> {
        self.0.map_or(Ok(()), JoinHandle::join)
    }
}

/// The world as the engine sees it.
#[derive(Clone)]
pub struct Env {
    /// The state directory.
    pub disk: Arc<dyn Disk>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub rng: Arc<dyn Rng>,
    /// Threads.
    pub work: Arc<dyn Work>,
}

impl Env {
    /// The real world, with its state below `root`, which is made if it is not there.
    pub fn real(root: &std::path::Path) -> io::Result<Env> {
        Ok(Env {
            disk: Arc::new(RealDisk::open(root)?),
            clock: Arc::new(RealClock::new()),
            rng: Arc::new(RealRng),
            work: Arc::new(Threads),
        })
    }

    /// Does a job that may wait for the disk, and answers what it says; also when nobody waits for it any more.
    pub async fn lend<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
        let (tell, told) = tokio::sync::oneshot::channel();
        self.work.lend(Box::new(move || drop(tell.send(job()))));
        told.await.map_err(|_| io::Error::other("work on local state panicked"))
    }
}

/// Why local state could not be read or written. Cheap to clone, because one failure is told to many waiters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The disk or the cap of the cache is full. Nothing happened; it may work later.
    #[error("no space for local state: {0}")]
    Full(String),
    /// A write or sync failed earlier. What was not yet synced is not promised, and never will be by this process.
    #[error("the journal stopped after a disk error ({0}); repair the disk and restart")]
    Poisoned(String),
    /// Bytes on disk that were promised are not what was written.
    #[error("local state is damaged: {0}")]
    Corrupt(String),
    /// Bytes on disk are of a later format than this program knows. Nothing was changed.
    #[error(
        "local state is of a later version than this program: {0}; start the version of trellis that wrote it, or a \
         later one; to go back to this one, let that one run `trellis sync`, and give this one another folder by `--state`"
    )]
    Newer(String),
    /// A value exceeds what the format can hold.
    #[error("too big for local state: {0}")]
    TooBig(String),
    /// The disk failed.
    #[error("local disk: {0}")]
    Io(String),
}

/// The result of everything that touches local state.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// From an I/O error with what was being done; out of space becomes [`Error::Full`].
    pub fn io(doing: impl std::fmt::Display, e: &io::Error) -> Error {
        match e.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Error::Full(format!("{doing}: {}", io_text(e)))
            }
            _ => Error::Io(format!("{doing}: {}", io_text(e))),
        }
    }
}

impl From<Error> for home::Error {
    fn from(e: Error) -> home::Error {
        let kind = match e {
            Error::Full(_) => home::ErrorKind::NoSpace,
            Error::TooBig(_) => home::ErrorKind::TooBig,
            Error::Poisoned(_) | Error::Corrupt(_) | Error::Newer(_) | Error::Io(_) => home::ErrorKind::Io,
        };
        home::Error::new(kind, e.to_string())
    }
}
