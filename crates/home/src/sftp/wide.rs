//! Further channels for the bytes of files. ssh lets 2 MiB of one channel be under way, and over a far and fast wire that is
//! what bounds a transfer. Once there are some, reads leave the first one to what is short, which then waits behind nothing.
//!
//! Only what has no order goes over them: reads, and new files under names that nobody else knows. A file that has its name
//! already is written over the first channel: a path may lead another one to a file that others have put there. A channel reads
//! again from the files that it has open, as long as their names lead to what they show.

use super::link::Link;
use super::pace::Pace;
use super::wire;
use crate::HomePath;
use crate::limits::agent::{CHANNEL_IDLE, CHANNELS_MORE, CHANNELS_PAUSE};
use crate::limits::remote::{SFTP_FULL, SFTP_OPEN, SFTP_OPEN_IDLE};
use crate::ssh::SshTarget;
use bytes::Bytes;
use futures_util::future::join_all;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

/// The channels of a session.
pub(super) struct Wide {
    first: Arc<Lane>,
    /// The connection that further ones go over.
    over: Option<SshTarget>,
    more: Arc<Mutex<More>>,
}

#[derive(Default)]
struct More {
    lanes: Vec<Arc<Lane>>,
    pace: Option<Pace>,
    /// When something was carried last.
    used: Option<Instant>,
    /// Makes channels, and closes them when they are not used any more.
    keeper: Option<AbortHandle>,
}

type Kept = VecDeque<(HomePath, Arc<Handle>, Instant)>;

/// One channel.
pub(super) struct Lane {
    pub link: Arc<Link>,
    /// Files that were read, and when, the last one behind.
    open: Arc<Mutex<Kept>>,
    load: AtomicU64,
}

/// A file that is open; closed when nobody has it any more.
pub(super) struct Handle {
    link: Arc<Link>,
    pub bytes: Bytes,
}

impl Handle {
    pub fn new(link: &Arc<Link>, bytes: Bytes) -> Handle {
        Handle { link: link.clone(), bytes }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.bytes);
        self.link.close_later(bytes);
    }
}

/// A channel that so many bytes go over.
pub(super) struct Turn {
    pub lane: Arc<Lane>,
    len: u64,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.lane.load.fetch_sub(self.len, Ordering::Relaxed);
    }
}

impl Lane {
    fn new(link: Arc<Link>) -> Arc<Lane> {
        Arc::new(Lane { link, open: Arc::default(), load: AtomicU64::new(0) })
    }

    /// The file that is open under this name.
    pub fn opened(&self, path: &HomePath) -> Option<Arc<Handle>> {
        let mut open = self.open.lock();
        let found = open.iter_mut().find(|(p, ..)| p == path)?;
        found.2 = Instant::now();
        Some(found.1.clone())
    }

    pub fn forget(&self, path: &HomePath) {
        self.open.lock().retain(|(p, ..)| p != path);
    }

    /// Keeps it open as long as it is read.
    pub fn keep(&self, path: &HomePath, handle: Arc<Handle>) {
        let mut open = self.open.lock();
        if open.iter().any(|(p, ..)| p == path) {
            return;
        }
        let begins = open.is_empty();
        open.push_back((path.clone(), handle, Instant::now()));
        if open.len() > SFTP_OPEN {
            open.pop_front();
        }
        drop(open);
        if begins {
            tokio::spawn(close_idle(Arc::downgrade(&self.open)));
        }
    }
}

/// Closes what is not read any more, until nothing is open.
async fn close_idle(open: Weak<Mutex<Kept>>) {
    loop {
        sleep(SFTP_OPEN_IDLE).await;
        let Some(open) = open.upgrade() else { return };
        let mut open = open.lock();
        open.retain(|(.., used)| used.elapsed() < SFTP_OPEN_IDLE);
        if open.is_empty() {
            return;
        }
    }
}

impl Wide {
    pub fn new(link: Arc<Link>, over: Option<SshTarget>) -> Wide {
        Wide { first: Lane::new(link), over, more: Arc::default() }
    }

    /// The first channel.
    pub fn first(&self) -> &Arc<Lane> {
        &self.first
    }

    /// The channel for so many bytes: of the further ones that with the fewest under way, the first where there are none.
    pub fn turn(&self, len: u64) -> Turn {
        let mut more = self.more.lock();
        more.lanes.retain(|lane| lane.link.life().over().is_none());
        let least = more.lanes.iter().min_by_key(|lane| lane.load.load(Ordering::Relaxed));
        let lane = least.unwrap_or(&self.first).clone();
        lane.load.fetch_add(len, Ordering::Relaxed);
        Turn { lane, len }
    }

    /// So many bytes went over `lane`. Where that is what one channel hardly carries, there are further ones soon.
    pub fn carried(&self, lane: &Lane, bytes: u64, out: bool) {
        let meter = &self.first.link.life().meter;
        if !std::ptr::eq(lane, &*self.first) {
            let count = if out { &meter.bytes_out } else { &meter.bytes_in };
            count.fetch_add(bytes, Ordering::Relaxed);
        }
        let mut more = self.more.lock();
        more.used = Some(Instant::now());
        let full = Pace::fills(&mut more.pace, bytes, self.first.link.round_trip(), SFTP_FULL);
        if full
            && more.keeper.is_none()
            && let Some(over) = &self.over
        {
            let keeper = tokio::spawn(keep(over.clone(), self.more.clone()));
            more.keeper = Some(keeper.abort_handle());
        }
    }
}

/// Makes further channels, as many as the host lets be, and ends them when they are not used any more. It may be tried
/// again then; where none could be made, after some time.
async fn keep(over: SshTarget, more: Arc<Mutex<More>>) {
    // Their waits are counted nowhere.
    let opened = join_all((0..CHANNELS_MORE).map(|_| Link::open(&over, Arc::default()))).await;
    for opened in opened {
        match opened {
            Ok(link) => more.lock().lanes.push(Lane::new(Arc::new(link))),
            Err(e) => tracing::debug!("no further channel: {e}"),
        }
    }
    if more.lock().lanes.is_empty() {
        sleep(CHANNELS_PAUSE).await;
    }
    let is_used = || more.lock().used.is_some_and(|used| used.elapsed() < CHANNEL_IDLE);
    while !more.lock().lanes.is_empty() && is_used() {
        sleep(CHANNEL_IDLE).await;
    }
    let mut more = more.lock();
    more.lanes.clear();
    (more.keeper, more.pace) = (None, None);
}

impl Drop for Wide {
    fn drop(&mut self) {
        let mut more = self.more.lock();
        more.keeper.iter().for_each(AbortHandle::abort);
        more.lanes.clear();
    }
}

/// The body of OPEN.
pub(super) fn put_open(w: &mut oncrpc::xdr::Writer, path: &[u8], flags: u32, attrs: &wire::Attrs) {
    wire::put_string(w, path);
    w.u32(flags);
    attrs.encode(w);
}
