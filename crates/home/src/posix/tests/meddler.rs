//! A machine on which something happens between any two system calls.

use super::super::sys::*;
use super::super::sys_real::{Lacks, Linux};
use crate::XattrHow;
use crate::attr::Time;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::io::Errno;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

/// What happens when the countdown ends.
pub enum Event {
    /// Another program does something.
    Outside(Box<dyn FnOnce() + Send>),
    /// The same where it does not wait for what is leased, or not here.
    Beside(Box<dyn FnOnce() + Send>),
    /// This call and all later ones fail: the process was killed.
    Death,
    /// This call alone fails.
    Failure(Errno),
}

/// Linux, with an event before the nth system call.
pub struct Meddler {
    linux: Linux,
    /// Whether it can move a name only where the new one is free.
    has_flags: bool,
    countdown: AtomicI64,
    event: Mutex<Option<Event>>,
    syncs: AtomicI64,
    failed_syncs: AtomicI64,
    /// There are no leases, as on NFS.
    pub lacks_leases: AtomicBool,
    /// Descriptors of files that another program waits for when it opens them.
    leased: Mutex<Vec<i32>>,
    /// What tells this start of the machine from others, if not what really does.
    boot: Option<Vec<u8>>,
    /// When it was started, if not when it really was.
    booted: Option<Time>,
    /// Why nothing new can be made; perhaps only in a directory of this number.
    refuses: Mutex<Option<(Errno, Option<u64>)>>,
    /// What was in files, by their numbers, when they were synced last.
    synced: Mutex<HashMap<u64, Vec<u8>>>,
    /// Why no file can be opened for writing.
    refuses_writing: Mutex<Option<Errno>>,
    /// No file can grow by an append.
    refuses_appends: AtomicBool,
    /// How the next sync of a file system fails.
    fails_file_system: Mutex<Option<Errno>>,
    /// Nobody lets us change a mode.
    forbids: AtomicBool,
    /// Bytes that were written into files.
    written: AtomicI64,
    /// All that happens to an object happens in one tick of the clock.
    ticks_once: AtomicBool,
    /// No byte can be written any more, and no link made, once the event has happened.
    is_full: AtomicBool,
    /// What another program does while we wait for a moment.
    meanwhile: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// All file systems are mounted for reading alone, and the mount table has changed since it was waited for.
    remounted: Mutex<(bool, bool)>,
}

impl Meddler {
    pub fn new(lacks: Lacks) -> Meddler {
        Meddler {
            has_flags: !lacks.rename_flags,
            linux: Linux::without(lacks),
            countdown: AtomicI64::new(-1),
            event: Mutex::new(None),
            syncs: AtomicI64::new(0),
            failed_syncs: AtomicI64::new(0),
            lacks_leases: AtomicBool::new(false),
            leased: Mutex::default(),
            boot: None,
            booted: None,
            refuses: Mutex::new(None),
            synced: Mutex::default(),
            refuses_writing: Mutex::new(None),
            refuses_appends: AtomicBool::new(false),
            fails_file_system: Mutex::new(None),
            forbids: AtomicBool::new(false),
            written: AtomicI64::new(0),
            ticks_once: AtomicBool::new(false),
            is_full: AtomicBool::new(false),
            meanwhile: Mutex::default(),
            remounted: Mutex::default(),
        }
    }

    /// Everything is mounted anew, or for reading alone.
    pub fn remount(&self, read_only: bool) {
        *self.remounted.lock().unwrap() = (read_only, true);
    }

    /// The same machine after it was started again; what is in a file was there before.
    pub fn restarted(lacks: Lacks) -> Meddler {
        Meddler::booted_as(lacks, b"the next boot")
    }

    /// The same; what is in a file was written since.
    pub fn restarted_before(lacks: Lacks) -> Meddler {
        Meddler { booted: None, ..Meddler::restarted(lacks) }
    }

    /// The same machine, which was started again at this time.
    pub fn restarted_at(lacks: Lacks, booted: Time) -> Meddler {
        Meddler { booted: Some(booted), ..Meddler::restarted(lacks) }
    }

    /// The same machine after this start of it; what is in a file was there before.
    pub fn booted_as(lacks: Lacks, boot: &[u8]) -> Meddler {
        let booted = Some(Time { sec: i64::MAX, nsec: 0 });
        Meddler { boot: Some(boot.to_vec()), booted, ..Meddler::new(lacks) }
    }

    /// From now on, before the call number `calls` (from 0), `event` happens.
    pub fn after(&self, calls: usize, event: Event) {
        *self.event.lock().unwrap() = Some(event);
        self.countdown.store(calls as i64, Ordering::SeqCst);
    }

    /// When we wait for a moment next, another program does something.
    pub fn meanwhile(&self, act: impl FnOnce() + Send + 'static) {
        *self.meanwhile.lock().unwrap() = Some(Box::new(act));
    }

    /// Before the call number `calls` another program does something, by which it takes the last room there is.
    pub fn fill_after(&self, calls: usize, act: impl FnOnce() + Send + 'static) {
        self.is_full.store(true, Ordering::SeqCst);
        self.after(calls, Event::Outside(Box::new(act)));
    }

    fn has_room(&self) -> Sysult<()> {
        if self.is_full.load(Ordering::SeqCst) && self.happened() { Err(Errno::NOSPC) } else { Ok(()) }
    }

    /// From now on nothing new can be made, for this reason.
    pub fn refuse(&self, why: Errno) {
        *self.refuses.lock().unwrap() = Some((why, None));
    }

    /// From now on all can be made again.
    pub fn refuse_nothing(&self) {
        *self.refuses.lock().unwrap() = None;
    }

    /// The same in the directory of this number alone.
    pub fn refuse_in(&self, dir: u64, why: Errno) {
        *self.refuses.lock().unwrap() = Some((why, Some(dir)));
    }

    /// From now on no file that is there can be opened for writing, for this reason.
    pub fn refuse_writing(&self, why: Errno) {
        *self.refuses_writing.lock().unwrap() = Some(why);
    }

    /// From now on nothing can be appended to a file: there is no room.
    pub fn refuse_appends(&self) {
        self.refuses_appends.store(true, Ordering::SeqCst);
    }

    /// The next sync of a whole file system fails, and no later one: the kernel tells it once.
    pub fn fail_file_system(&self, why: Errno) {
        *self.fails_file_system.lock().unwrap() = Some(why);
    }

    /// What is left after a power cut of the file of this number.
    pub fn synced(&self, ino: u64) -> Option<Vec<u8>> {
        self.synced.lock().unwrap().get(&ino).cloned()
    }

    /// From now on no mode can be changed.
    pub fn forbid(&self) {
        self.forbids.store(true, Ordering::SeqCst);
    }

    /// Bytes that were written into files, one after the other.
    pub fn written(&self) -> i64 {
        self.written.load(Ordering::SeqCst)
    }

    /// From now on no change shows in the time of the last change.
    pub fn stop_the_clock(&self) {
        self.ticks_once.store(true, Ordering::SeqCst);
    }

    /// How many objects were synced.
    pub fn syncs(&self) -> i64 {
        self.syncs.load(Ordering::SeqCst)
    }

    /// How many of these syncs failed, and those of file systems.
    pub fn failed_syncs(&self) -> i64 {
        self.failed_syncs.load(Ordering::SeqCst)
    }

    /// Whether the event has happened.
    pub fn happened(&self) -> bool {
        self.countdown.load(Ordering::SeqCst) < 0
    }

    /// Fails where a name is to be made that is not there, and none can be.
    fn room(&self, dir: &OwnedFd, name: &[u8]) -> Sysult<()> {
        let Some((why, only)) = *self.refuses.lock().unwrap() else { return Ok(()) };
        let is_here = only.is_none_or(|ino| self.linux.stat(dir).is_ok_and(|stat| stat.ino == ino));
        if is_here && self.linux.open_name(dir, name).is_err() { Err(why) } else { Ok(()) }
    }

    fn sync_call(&self) -> Sysult<()> {
        self.call().inspect_err(|_| {
            self.failed_syncs.fetch_add(1, Ordering::SeqCst);
        })
    }

    fn leases(&self) -> Sysult<()> {
        if self.lacks_leases.load(Ordering::SeqCst) { Err(Errno::OPNOTSUPP) } else { Ok(()) }
    }

    fn call(&self) -> Sysult<()> {
        if self.countdown.fetch_sub(1, Ordering::SeqCst) != 0 {
            return match &*self.event.lock().unwrap() {
                Some(Event::Death) if self.happened() => Err(Errno::IO),
                _ => Ok(()),
            };
        }
        let mut event = self.event.lock().unwrap();
        if !self.leased.lock().unwrap().is_empty() && matches!(*event, Some(Event::Outside(_))) {
            self.countdown.store(0, Ordering::SeqCst);
            return Ok(());
        }
        match event.take() {
            Some(Event::Outside(act) | Event::Beside(act)) => act(),
            Some(Event::Death) => {
                *event = Some(Event::Death);
                return Err(Errno::IO);
            }
            Some(Event::Failure(e)) => return Err(e),
            None => {}
        }
        Ok(())
    }
}

macro_rules! meddled {
    ($(fn $name:ident(&self $(, $arg:ident: $type:ty)*) -> Sysult<$ret:ty>;)*) => {
        $(fn $name(&self $(, $arg: $type)*) -> Sysult<$ret> {
            self.call()?;
            self.linux.$name($($arg),*)
        })*
    };
}

impl Sys for Meddler {
    type Fd = OwnedFd;

    fn now(&self) -> Time {
        self.linux.now()
    }
    fn instant(&self) -> Duration {
        self.linux.instant()
    }
    fn account(&self) -> Account {
        self.linux.account()
    }
    fn quota(&self, fd: &OwnedFd, uid: u32, gid: u32) -> Left {
        self.linux.quota(fd, uid, gid)
    }
    fn boot_id(&self) -> Vec<u8> {
        self.boot.clone().unwrap_or_else(|| self.linux.boot_id())
    }
    fn booted(&self) -> Time {
        self.booted.unwrap_or_else(|| self.linux.booted())
    }
    fn first_process(&self) -> Option<Vec<u8>> {
        self.linux.first_process()
    }
    fn access(&self, fd: &OwnedFd, bits: u32) -> Sysult<()> {
        self.linux.access(fd, bits)
    }
    fn default_acl(&self, fd: &OwnedFd) -> bool {
        self.linux.default_acl(fd)
    }
    fn pause(&self) {
        self.linux.pause();
        self.meanwhile.lock().unwrap().take().into_iter().for_each(|act| act());
    }
    fn lease(&self, fd: &OwnedFd) -> Sysult<()> {
        self.call()?;
        self.leases()?;
        self.linux.lease(fd)?;
        self.leased.lock().unwrap().push(fd.as_raw_fd());
        Ok(())
    }
    fn hold(&self, fd: &OwnedFd) -> Sysult<()> {
        self.call()?;
        self.leases()?;
        self.linux.hold(fd)?;
        self.leased.lock().unwrap().push(fd.as_raw_fd());
        Ok(())
    }
    fn is_leased(&self, fd: &OwnedFd) -> bool {
        self.linux.is_leased(fd)
    }
    fn unlease(&self, fd: &OwnedFd) {
        self.linux.unlease(fd);
        self.leased.lock().unwrap().retain(|leased| *leased != fd.as_raw_fd());
    }
    fn write_back(&self, fd: &OwnedFd, wait: bool) {
        self.linux.write_back(fd, wait);
    }

    fn sync(&self, fd: &OwnedFd) -> Sysult<()> {
        self.syncs.fetch_add(1, Ordering::SeqCst);
        self.sync_call()?;
        self.linux.sync(fd)?;
        let stat = self.linux.stat(fd)?;
        let mut content = vec![0; stat.size as usize];
        if self.linux.read(fd, 0, &mut content) == Ok(content.len()) {
            self.synced.lock().unwrap().insert(stat.ino, content);
        }
        Ok(())
    }

    fn sync_file_system(&self, fd: &OwnedFd) -> Sysult<()> {
        self.sync_call()?;
        if let Some(why) = self.fails_file_system.lock().unwrap().take() {
            self.failed_syncs.fetch_add(1, Ordering::SeqCst);
            return Err(why);
        }
        self.linux.sync_file_system(fd)
    }

    fn make(&self, dir: &OwnedFd, name: &[u8], what: Make<'_>) -> Sysult<()> {
        self.call()?;
        self.room(dir, name)?;
        self.linux.make(dir, name, what)
    }

    fn create(&self, dir: &OwnedFd, name: &[u8], mode: u32) -> Sysult<OwnedFd> {
        self.call()?;
        self.room(dir, name)?;
        self.linux.create(dir, name, mode)
    }

    fn reopen(&self, fd: &OwnedFd, mode: Mode) -> Sysult<OwnedFd> {
        self.call()?;
        match *self.refuses_writing.lock().unwrap() {
            Some(why) if mode != Mode::Read => Err(why),
            _ => self.linux.reopen(fd, mode),
        }
    }

    fn chmod(&self, fd: &OwnedFd, mode: u32) -> Sysult<()> {
        self.call()?;
        if self.forbids.load(Ordering::SeqCst) { Err(Errno::PERM) } else { self.linux.chmod(fd, mode) }
    }

    fn rename(&self, from: &OwnedFd, name: &[u8], to: &OwnedFd, new: &[u8], how: Rename) -> Sysult<()> {
        self.call()?;
        if how == Rename::NoReplace && self.has_flags {
            self.room(to, new)?;
        }
        self.linux.rename(from, name, to, new, how)
    }

    fn link(&self, from: &OwnedFd, name: &[u8], to: &OwnedFd, new: &[u8]) -> Sysult<()> {
        self.call()?;
        self.has_room()?;
        self.room(to, new)?;
        self.linux.link(from, name, to, new)
    }

    fn append(&self, fd: &OwnedFd, data: &[u8]) -> Sysult<usize> {
        self.call()?;
        self.has_room()?;
        if self.refuses_appends.load(Ordering::SeqCst) {
            return Err(Errno::NOSPC);
        }
        self.linux.append(fd, data)
    }

    fn write(&self, fd: &OwnedFd, at: u64, data: &[u8]) -> Sysult<usize> {
        self.call()?;
        self.has_room()?;
        self.written.fetch_add(data.len() as i64, Ordering::SeqCst);
        self.linux.write(fd, at, data)
    }

    fn stat(&self, fd: &OwnedFd) -> Sysult<Stat> {
        self.call()?;
        let stat = self.linux.stat(fd)?;
        let ctime = if self.ticks_once.load(Ordering::SeqCst) { Time::default() } else { stat.ctime };
        Ok(Stat { ctime, ..stat })
    }

    fn watches(&self) -> Sysult<OwnedFd> {
        self.linux.watches()
    }
    fn watches_max(&self) -> usize {
        self.linux.watches_max()
    }
    fn watch(&self, watches: &OwnedFd, dir: &OwnedFd) -> Sysult<i32> {
        self.linux.watch(watches, dir)
    }
    fn unwatch(&self, watches: &OwnedFd, watch: i32) {
        self.linux.unwatch(watches, watch);
    }
    fn mounts(&self) -> Sysult<Vec<Mount>> {
        self.call()?;
        let read_only = self.remounted.lock().unwrap().0;
        Ok(self.linux.mounts()?.into_iter().map(|m| Mount { read_only, ..m }).collect())
    }
    fn stirs(&self, watches: &OwnedFd, wait: Option<Duration>) -> Sysult<bool> {
        Ok(std::mem::take(&mut self.remounted.lock().unwrap().1) || self.linux.stirs(watches, wait)?)
    }
    fn happened(&self, watches: &OwnedFd) -> Sysult<Vec<(i32, Happened)>> {
        self.linux.happened(watches)
    }

    meddled! {
        fn random(&self, buf: &mut [u8]) -> Sysult<()>;
        fn open_root(&self, path: &[u8]) -> Sysult<OwnedFd>;
        fn open_path(&self, dir: &OwnedFd, path: &[u8]) -> Sysult<OwnedFd>;
        fn open_name(&self, dir: &OwnedFd, name: &[u8]) -> Sysult<OwnedFd>;
        fn unlink(&self, at: &OwnedFd, name: &[u8], dir: bool) -> Sysult<()>;
        fn handle(&self, fd: &OwnedFd) -> Sysult<Vec<u8>>;
        fn statfs(&self, fd: &OwnedFd) -> Sysult<Fs>;
        fn readlink(&self, fd: &OwnedFd) -> Sysult<Vec<u8>>;
        fn names(&self, fd: &OwnedFd, max: usize) -> Sysult<Vec<Vec<u8>>>;
        fn chgrp(&self, fd: &OwnedFd, gid: u32) -> Sysult<()>;
        fn set_times(&self, fd: &OwnedFd, atime: Stamp, mtime: Stamp) -> Sysult<()>;
        fn xattrs(&self, fd: &OwnedFd) -> Sysult<Vec<(Vec<u8>, Vec<u8>)>>;
        fn set_xattr(&self, fd: &OwnedFd, name: &[u8], value: &[u8]) -> Sysult<()>;
        fn xattr_names(&self, fd: &OwnedFd) -> Sysult<Vec<u8>>;
        fn xattr(&self, fd: &OwnedFd, name: &[u8]) -> Sysult<Vec<u8>>;
        fn change_xattr(&self, fd: &OwnedFd, name: &[u8], value: Option<&[u8]>, how: XattrHow) -> Sysult<()>;
        fn read(&self, fd: &OwnedFd, at: u64, buf: &mut [u8]) -> Sysult<usize>;
        fn truncate(&self, fd: &OwnedFd, size: u64) -> Sysult<()>;
        fn data_range(&self, fd: &OwnedFd, at: u64, size: u64) -> Sysult<Option<(u64, u64)>>;
        fn clone_file(&self, from: &OwnedFd, to: &OwnedFd) -> Sysult<()>;
        fn copy(&self, from: &OwnedFd, to: &OwnedFd, at: u64, len: u64) -> Sysult<u64>;
        fn probe_writers(&self, fd: &OwnedFd) -> Sysult<()>;
        fn try_lock(&self, fd: &OwnedFd) -> Sysult<()>;
        fn unlock(&self, fd: &OwnedFd) -> Sysult<()>;
        fn end_holders(&self, fd: &OwnedFd) -> Sysult<()>;
    }
}
