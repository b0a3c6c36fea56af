//! The machine's own disk, clock, randomness and threads.

use super::{Clock, Disk, Ended, File, Job, Rng, Work};
use futures_util::future::BoxFuture;
use rustix::fd::OwnedFd;
use rustix::fs::{self, AtFlags, Mode, OFlags};
use rustix::time::{ClockId, clock_gettime};
use std::io::{self, IoSlice};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How many zeros are written at once.
const ZEROS: usize = 1 << 20;

/// A state directory: directories 0700, files 0600.
pub struct RealDisk {
    root: OwnedFd,
}

impl RealDisk {
    /// Opens `root`, making it (but not its parent) if it is not there.
    pub fn open(root: &Path) -> io::Result<RealDisk> {
        match fs::mkdir(root, Mode::RWXU) {
            Err(e) if e != rustix::io::Errno::EXIST => return Err(e.into()),
            _ => {}
        }
        Ok(RealDisk { root: fs::open(root, dir_flags(), Mode::empty())? })
    }

    fn open_with(&self, path: &str, extra: OFlags) -> io::Result<Arc<dyn File>> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | extra;
        let fd = fs::openat(&self.root, path, flags, Mode::RUSR | Mode::WUSR)?;
        Ok(Arc::new(RealFile { fd }))
    }
}

fn dir_flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC
}

impl Disk for RealDisk {
    fn open(&self, path: &str) -> io::Result<Arc<dyn File>> {
        self.open_with(path, OFlags::empty())
    }

    fn create(&self, path: &str) -> io::Result<Arc<dyn File>> {
        self.open_with(path, OFlags::CREATE | OFlags::EXCL)
    }

    fn list(&self, dir: &str) -> io::Result<Vec<String>> {
        let fd = fs::openat(&self.root, dir, dir_flags(), Mode::empty())?;
        let mut names = Vec::new();
        for entry in fs::Dir::new(fd)? {
            if let Ok(name) = entry?.file_name().to_str()
                && name != "."
                && name != ".."
            {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        Ok(fs::unlinkat(&self.root, path, AtFlags::empty())?)
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(fs::renameat(&self.root, from, &self.root, to)?)
    }

    fn create_dir_all(&self, dir: &str) -> io::Result<()> {
        let ends = dir.match_indices('/').map(|(at, _)| at).chain([dir.len()]);
        let mut above = ".";
        for end in ends {
            match fs::mkdirat(&self.root, &dir[..end], Mode::RWXU) {
                Ok(()) => self.sync_dir(above)?,
                Err(e) if e == rustix::io::Errno::EXIST => {}
                Err(e) => return Err(e.into()),
            }
            above = &dir[..end];
        }
        Ok(())
    }

    fn sync_dir(&self, dir: &str) -> io::Result<()> {
        let fd = fs::openat(&self.root, dir, dir_flags(), Mode::empty())?;
        Ok(fs::fsync(fd)?)
    }

    fn free_space(&self) -> io::Result<u64> {
        let s = fs::fstatvfs(&self.root)?;
        Ok(s.f_bavail.saturating_mul(s.f_frsize))
    }
}

struct RealFile {
    fd: OwnedFd,
}

impl File for RealFile {
    fn pread(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match rustix::io::pread(&self.fd, &mut buf[done..], at + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e == rustix::io::Errno::INTR => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(done)
    }

    fn pwrite_all(&self, parts: &[&[u8]], at: u64) -> io::Result<()> {
        let mut slices: Vec<IoSlice> = parts.iter().map(|p| IoSlice::new(p)).collect();
        let mut rest = &mut slices[..];
        let mut at = at;
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            // The kernel takes at most 1024 slices at once (IOV_MAX).
            let batch = rest.len().min(1024);
            match rustix::io::pwritev(&self.fd, &rest[..batch], at) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => {
                    at += n as u64;
                    IoSlice::advance_slices(&mut rest, n);
                }
                Err(e) if e == rustix::io::Errno::INTR => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(fs::fdatasync(&self.fd)?)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        Ok(fs::ftruncate(&self.fd, len)?)
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        loop {
            match fs::fallocate(&self.fd, fs::FallocateFlags::empty(), 0, len) {
                Err(e) if e == rustix::io::Errno::INTR => {}
                Err(e) if e == rustix::io::Errno::OPNOTSUPP || e == rustix::io::Errno::NOSYS => break,
                done => return Ok(done?),
            }
        }
        let zeros = vec![0; ZEROS];
        let mut at = self.len()?;
        while at < len {
            let n = (len - at).min(ZEROS as u64);
            self.pwrite_all(&[&zeros[..n as usize]], at)?;
            at += n;
        }
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(fs::fstat(&self.fd)?.st_size as u64)
    }
}

/// The machine's clocks.
pub struct RealClock {
    start: Duration,
}

impl RealClock {
    /// Monotonic time starts now.
    pub fn new() -> RealClock {
        RealClock { start: since_boot() }
    }
}

impl Default for RealClock {
    fn default() -> Self {
        RealClock::new()
    }
}

impl Clock for RealClock {
    #[allow(clippy::disallowed_methods, reason = "the one place where the engine's time comes from")]
    fn now(&self) -> home::Time {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(t) => home::Time { sec: t.as_secs() as i64, nsec: t.subsec_nanos() },
            // A clock before 1970 is an unset one.
            Err(_) => home::Time::default(),
        }
    }

    fn instant(&self) -> Duration {
        since_boot().saturating_sub(self.start)
    }
}

/// Goes on while the machine sleeps: what is cached grows old meanwhile.
fn since_boot() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
}

/// The system's randomness.
pub struct RealRng;

impl Rng for RealRng {
    #[allow(clippy::disallowed_methods, reason = "the one place where the engine's randomness comes from")]
    fn fill(&self, buf: &mut [u8]) {
        rand::RngCore::fill_bytes(&mut rand::rng(), buf);
    }
}

/// The machine's threads.
pub struct Threads;

impl Work for Threads {
    fn run(&self, name: &str, job: Job) -> io::Result<Ended> {
        std::thread::Builder::new().name(name.into()).spawn(job).map(|t| Ended(Some(t)))
    }

    fn keep(&self, name: &str, work: BoxFuture<'static, ()>) -> io::Result<Ended> {
        // Of its own, so that it goes on while others block theirs.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
        self.run(name, Box::new(move || runtime.block_on(work)))
    }

    fn lend(&self, job: Job) {
        drop(tokio::task::spawn_blocking(job));
    }
}
