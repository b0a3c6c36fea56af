//! The gate before every remote home: how often we log in, and where we must not go.
//!
//! - [`Turnstile`]: at most one attempt to connect a second over all hosts, with a burst
//!   ([`limits::CONNECT_BURST`]), of which hosts that stay away take a part only, one login per host at a time, and a bound
//!   on connected homes: the one that was not needed for the longest time leaves.
//! - [`Gate`]: a home on this very machine may contain a mount of our own tree. Going down there would go in
//!   circles, so that everything below such a mount is refused.

use crate::limits;
use crate::mounts::OwnMounts;
use crate::rate::Bucket;
use bytes::Bytes;
use home::remote::{Connection, Connector, Meter, RemoteHome};
use home::sparse::Sparse;
use home::{
    Belief, Believed, Changed, Chunk, Claimed, Class, Copied, Entered, Error, ErrorKind, Hello, Home,
    HomePath, Link, Loc, Name, OpId, Outcome, Page, Placed, Result, Seen, StatFs, Status, Term, Turn, Walked,
    Watched, XattrName, Xattrs,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// What all gates of a server share.
pub struct Door {
    bucket: Mutex<Bucket>,
    mounts: OwnMounts,
    homes: Mutex<Vec<Weak<Inner>>>,
    connected_max: usize,
}

/// One login at a time goes to a host.
pub type HostLock = Arc<tokio::sync::Mutex<()>>;

/// A home behind the gate.
#[derive(Clone)]
pub struct Gate {
    inner: Arc<Inner>,
}

struct Inner {
    home: Arc<RemoteHome>,
    door: Arc<Door>,
    /// The home is on this machine and in this boot.
    here: AtomicBool,
    /// The host has a name of this machine; decides where the home tells no boot (SFTP).
    named_here: bool,
    use_: Mutex<Use>,
}

/// Who needs a home, and when somebody last did.
struct Use {
    calls: usize,
    last: Instant,
}

/// A call under way.
struct Calling<'a>(&'a Inner);

impl Drop for Calling<'_> {
    fn drop(&mut self) {
        let mut used = locked(&self.0.use_);
        used.calls -= 1;
        used.last = Instant::now();
    }
}

impl Door {
    /// A door that lets a burst through.
    pub fn new(mounts: OwnMounts) -> Arc<Door> {
        Door::with_bound(mounts, limits::HOMES_CONNECTED)
    }

    fn with_bound(mounts: OwnMounts, connected_max: usize) -> Arc<Door> {
        let bucket = Mutex::new(Bucket::new(limits::CONNECT_BURST, limits::CONNECT_EVERY));
        Arc::new(Door { bucket, mounts, homes: Mutex::default(), connected_max })
    }

    /// Waits for a turn, and leaves so many for others.
    async fn turn(&self, left: u32) -> Result<()> {
        let until = Instant::now() + limits::CONNECT_WAIT;
        loop {
            let wait = match locked(&self.bucket).take(Instant::now(), left) {
                Ok(()) => return Ok(()),
                Err(wait) => wait,
            };
            if Instant::now() + wait > until {
                return Err(Error::new(ErrorKind::Busy, "too many hosts are being connected; try again"));
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// Closes, from now on, what nobody needed for a while: other users of a login node need its memory.
    pub async fn close_idle(self: Arc<Door>) {
        loop {
            tokio::time::sleep(limits::HOME_IDLE_LOOK).await;
            self.close_unused(limits::HOME_IDLE);
        }
    }

    fn close_unused(&self, span: Duration) {
        let mut homes = locked(&self.homes);
        homes.retain(|h| h.strong_count() > 0);
        for home in homes.iter().filter_map(Weak::upgrade) {
            let unused = {
                let used = locked(&home.use_);
                used.calls == 0 && used.last.elapsed() >= span
            };
            if unused && home.home.status().link == Link::Up {
                home.home.close();
            }
        }
    }

    /// Closes the home that nobody needed for the longest time if too many are connected.
    fn make_room(&self) -> Result<()> {
        let mut homes = locked(&self.homes);
        homes.retain(|h| h.strong_count() > 0);
        let up: Vec<_> =
            homes.iter().filter_map(Weak::upgrade).filter(|h| h.home.status().link == Link::Up).collect();
        if up.len() < self.connected_max {
            return Ok(());
        }
        let idle = up.iter().filter(|h| locked(&h.use_).calls == 0);
        match idle.min_by_key(|h| locked(&h.use_).last) {
            Some(longest) => {
                longest.home.close();
                Ok(())
            }
            None => Err(Error::new(ErrorKind::Busy, "too many homes are in use at the same time; try again")),
        }
    }
}

/// Connections in turn.
pub struct Turnstile {
    connector: Arc<dyn Connector>,
    door: Arc<Door>,
    host: HostLock,
    /// The last attempt came to nothing.
    away: AtomicBool,
}

#[async_trait::async_trait]
impl Connector for Turnstile {
    async fn connect(&self, class: Option<Class>, meter: &Arc<Meter>) -> Result<Arc<dyn Connection>> {
        let _one_login = self.host.lock().await;
        let left = if self.away.load(Ordering::Relaxed) { limits::CONNECT_KEPT } else { 0 };
        self.door.turn(left).await?;
        self.door.make_room()?;
        let made = self.connector.connect(class, meter).await;
        self.away.store(made.is_err(), Ordering::Relaxed);
        made
    }

    fn login_for(&self, why: &Error) -> Option<String> {
        self.connector.login_for(why)
    }
}

impl Gate {
    /// A home over connections that are made in turn. `named_here`: see [`is_this_machine`].
    pub fn new(connector: Arc<dyn Connector>, door: Arc<Door>, host: HostLock, named_here: bool) -> Gate {
        let turnstile = Turnstile { connector, door: Arc::clone(&door), host, away: AtomicBool::new(false) };
        let home = RemoteHome::new(Arc::new(turnstile));
        let use_ = Mutex::new(Use { calls: 0, last: Instant::now() });
        let inner = Arc::new(Inner { home, door, here: AtomicBool::new(named_here), named_here, use_ });
        locked(&inner.door.homes).push(Arc::downgrade(&inner));
        Gate { inner }
    }

    fn call(&self) -> Calling<'_> {
        locked(&self.inner.use_).calls += 1;
        Calling(&self.inner)
    }

    /// Begins a call, unless the path leads into our own tree.
    fn call_at(&self, path: &HomePath) -> Result<Calling<'_>> {
        match self.inner.here.load(Ordering::Relaxed) && self.inner.door.mounts.holds(path) {
            true => Err(Error::new(
                ErrorKind::Access,
                format!("{path} is a mount of a tree of Trellis, this one or another"),
            )),
            false => Ok(self.call()),
        }
    }
}

/// Whether `HOST:PORT`, as ssh resolved it, is surely this machine: loopback, or its own name.
pub fn is_this_machine(host: &str) -> bool {
    let name = host.rsplit_once(':').map_or(host, |(name, _)| name).trim_matches(['[', ']']);
    let own = rustix::system::uname().nodename().to_string_lossy().to_ascii_lowercase();
    name == "localhost" || name == own || name.parse().is_ok_and(|a: std::net::IpAddr| a.is_loopback())
}

impl Inner {
    fn greet(&self, hello: &Hello) {
        let boot = crate::state::boot_id();
        let here = match hello.boot_id.is_empty() {
            true => self.named_here,
            false => !boot.is_empty() && hello.boot_id.windows(boot.len()).any(|w| w == boot.as_bytes()),
        };
        self.here.store(here, Ordering::Relaxed);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait::async_trait]
impl Home for Gate {
    fn status(&self) -> Status {
        self.inner.home.status()
    }

    fn expect(&self, class: home::Class) {
        self.inner.home.expect(class);
    }

    fn retry_now(&self) {
        self.inner.home.retry_now();
    }

    fn wanted(&self) -> Option<Duration> {
        self.inner.home.wanted()
    }

    fn asked(&self) {
        self.inner.home.asked();
    }

    async fn attach(&self) -> Result<Hello> {
        let _call = self.call();
        let hello = self.inner.home.attach().await?;
        self.inner.greet(&hello);
        Ok(hello)
    }

    async fn stat(&self, at: &Loc) -> Result<Seen> {
        // The mount point itself may be looked at: its attributes come from our own memory.
        let dir = at.path.split().map(|(dir, _)| dir).unwrap_or_default();
        let _call = self.call_at(&dir)?;
        self.inner.home.stat(at).await
    }

    async fn look(&self, dir: &Loc, name: &Name) -> Result<(Seen, Result<Seen>)> {
        let _call = self.call_at(&dir.path)?;
        self.inner.home.look(dir, name).await
    }

    async fn list(&self, dir: &Loc, after: Option<&Name>, max: u32) -> Result<Page> {
        let _call = self.call_at(&dir.path)?;
        self.inner.home.list(dir, after, max).await
    }

    async fn watch(&self, dir: &Loc, max: u32, mark: u64) -> Result<Watched> {
        let _call = self.call_at(&dir.path)?;
        self.inner.home.watch(dir, max, mark).await
    }

    async fn confirm(&self, dirs: Vec<Believed>, later: bool) -> Result<Vec<Result<Belief>>> {
        let calls: Result<Vec<_>> = dirs.iter().map(|one| self.call_at(&one.dir.path)).collect();
        // Of one that may not be asked for the answer to the others says nothing: each is asked for by itself then.
        let _calls = calls.map_err(|_| Error::from(ErrorKind::Unsupported))?;
        self.inner.home.confirm(dirs, later).await
    }

    fn confirms(&self) -> bool {
        self.inner.home.confirms()
    }

    async fn walk(&self, from: Vec<Loc>, bytes: u32, later: bool) -> Result<Walked> {
        let calls: Result<Vec<_>> = from.iter().map(|dir| self.call_at(&dir.path)).collect();
        // As for `confirm`. The walk does not come to what is mounted, which is on another file system.
        let _calls = calls.map_err(|_| Error::from(ErrorKind::Unsupported))?;
        self.inner.home.walk(from, bytes, later).await
    }

    fn walks(&self) -> bool {
        self.inner.home.walks()
    }

    fn window(&self) -> Option<u64> {
        self.inner.home.window()
    }

    async fn changes(&self) -> Vec<Changed> {
        self.inner.home.changes().await
    }

    /// Whoever asks for it is about to use what the home told: it is needed.
    fn epoch(&self) -> Option<u64> {
        locked(&self.inner.use_).last = Instant::now();
        self.inner.home.epoch()
    }

    async fn read(&self, file: &Loc, at: u64, len: u32) -> Result<Chunk> {
        let _call = self.call_at(&file.path)?;
        self.inner.home.read(file, at, len).await
    }

    async fn read_known(
        &self,
        file: &Loc,
        at: u64,
        len: u32,
        known: Vec<u64>,
        later: bool,
    ) -> Result<Sparse> {
        let _call = self.call_at(&file.path)?;
        self.inner.home.read_known(file, at, len, known, later).await
    }

    fn knows(&self) -> bool {
        self.inner.home.knows()
    }

    async fn watch_later(&self, dir: &Loc, max: u32, mark: u64) -> Result<Watched> {
        let _call = self.call_at(&dir.path)?;
        self.inner.home.watch_later(dir, max, mark).await
    }

    async fn read_in(&self, turn: Turn, file: &Loc, at: u64, len: u32) -> Result<Chunk> {
        let _call = self.call_at(&file.path)?;
        self.inner.home.read_in(turn, file, at, len).await
    }

    async fn readlink(&self, at: &Loc) -> Result<Bytes> {
        let _call = self.call_at(&at.path)?;
        self.inner.home.readlink(at).await
    }

    async fn statfs(&self, at: &Loc) -> Result<StatFs> {
        let _call = self.call_at(&at.path)?;
        self.inner.home.statfs(at).await
    }

    async fn xattrs(&self, at: &Loc, want: Option<&XattrName>) -> Result<Xattrs> {
        let _call = self.call_at(&at.path)?;
        self.inner.home.xattrs(at, want).await
    }

    async fn stage(&self, op: OpId, at: u64, data: Bytes) -> Result<()> {
        let _call = self.call();
        self.inner.home.stage(op, at, data).await
    }

    async fn copy(&self, op: OpId, places: Vec<Loc>, parts: Vec<Copied>) -> Result<()> {
        let calls: Result<Vec<_>> = places.iter().map(|at| self.call_at(&at.path)).collect();
        // What may not be read is not there.
        let Ok(_calls) = calls else { return Ok(()) };
        self.inner.home.copy(op, places, parts).await
    }

    async fn spool(&self, op: OpId) -> Result<u64> {
        let _call = self.call();
        self.inner.home.spool(op).await
    }

    async fn unspool(&self, op: OpId) -> Result<()> {
        let _call = self.call();
        self.inner.home.unspool(op).await
    }

    fn spools(&self) -> bool {
        self.inner.home.spools()
    }

    fn copies(&self) -> bool {
        self.inner.home.copies()
    }

    async fn claim(&self, gateway: u64, volume: u32, lost: Vec<u64>) -> Result<Option<Claimed>> {
        let _call = self.call();
        self.inner.home.claim(gateway, volume, lost).await
    }

    async fn claim_in(&self, gateway: u64, volume: u32, lost: Vec<u64>, term: Term) -> Result<Entered> {
        let _call = self.call();
        self.inner.home.claim_in(gateway, volume, lost, term).await
    }

    async fn apply(&self, ops: Vec<Placed>) -> Result<Vec<Outcome>> {
        let _call = self.call();
        self.inner.home.apply(ops).await
    }
}

#[cfg(test)]
mod tests;
