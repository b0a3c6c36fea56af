//! Watches of directories over inotify(7).

use super::proc_path;
use crate::limits::agent::EVENTS_BUFFER;
use crate::posix::sys::{Happened, Sysult};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::{Errno, retry_on_intr};
use std::fs::File;
use std::mem::MaybeUninit;
use std::sync::OnceLock;
use std::time::Duration;

/// What is told of a directory. Stores through a shared mapping tell nothing before the file is closed: hence
/// `CLOSE_WRITE`.
const EVENTS: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::DELETE)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::CLOSE_WRITE)
    .union(WatchFlags::MOVE_SELF)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::ONLYDIR);

/// After these the directory is not where it was, or not at all.
const ENDS: ReadFlags =
    ReadFlags::IGNORED.union(ReadFlags::UNMOUNT).union(ReadFlags::MOVE_SELF).union(ReadFlags::DELETE_SELF);

/// By these the directory itself changes, too.
const ENTRIES: ReadFlags =
    ReadFlags::CREATE.union(ReadFlags::DELETE).union(ReadFlags::MOVED_FROM).union(ReadFlags::MOVED_TO);

pub(super) fn watches() -> Sysult<OwnedFd> {
    // What is mounted from now on is told.
    mount_table();
    inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
}

pub(super) fn adopt() {
    mount_table();
}

pub(super) fn watches_max() -> usize {
    let text = std::fs::read_to_string("/proc/sys/fs/inotify/max_user_watches").unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

pub(super) fn watch(watches: &OwnedFd, dir: &OwnedFd) -> Sysult<i32> {
    inotify::add_watch(watches, proc_path(dir), EVENTS)
}

pub(super) fn unwatch(watches: &OwnedFd, watch: i32) {
    // It may have ended by itself.
    inotify::remove_watch(watches, watch).ok();
}

pub(super) fn stirs(watches: &OwnedFd, wait: Option<Duration>) -> Sysult<bool> {
    let wait = wait.map(|w| Timespec { tv_sec: w.as_secs() as i64, tv_nsec: w.subsec_nanos().into() });
    let mut ready = vec![PollFd::new(watches, PollFlags::IN)];
    ready.extend(mount_table().map(|table| PollFd::new(table, PollFlags::PRI)));
    retry_on_intr(|| poll(&mut ready, wait.as_ref()))?;
    Ok(ready.get(1).is_some_and(|table| !table.revents().is_empty()))
}

pub(super) fn happened(watches: &OwnedFd) -> Sysult<Vec<(i32, Happened)>> {
    let mut buffer = vec![MaybeUninit::uninit(); EVENTS_BUFFER];
    let mut reader = inotify::Reader::new(watches, &mut buffer);
    let mut all = Vec::new();
    loop {
        match reader.next() {
            Ok(event) => all.extend(meaning(&event).map(|what| (event.wd(), what))),
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => return Ok(all),
            Err(e) => return Err(e),
        }
        // What is left in the kernel comes with the next call.
        if reader.is_buffer_empty() {
            return Ok(all);
        }
    }
}

/// The mount table, of which poll(2) tells each change once (proc_pid_mounts(5)). One for the process: an agent has one home.
fn mount_table() -> Option<&'static File> {
    static TABLE: OnceLock<Option<File>> = OnceLock::new();
    TABLE.get_or_init(|| File::open("/proc/self/mountinfo").ok()).as_ref()
}

fn meaning(event: &inotify::Event<'_>) -> Option<Happened> {
    let what = event.events();
    if what.contains(ReadFlags::QUEUE_OVERFLOW) {
        return Some(Happened::Overflow);
    }
    if what.intersects(ENDS) {
        return Some(Happened::Ended);
    }
    let Some(name) = event.file_name() else { return Some(Happened::Itself) };
    let (dir, entry) = (what.contains(ReadFlags::ISDIR), what.intersects(ENTRIES));
    Some(Happened::Name { name: name.to_bytes().to_vec(), dir, entry })
}
