//! The system calls.

use super::fs::{Change, Ino, ROOT};
use super::{BLOCK, Call, Fate, Lease, Machine, Opens, Process, State, UID, User};
use home::attr::StatFs;
use home::posix::sys::{Account, FileType, Fs, Left, Make, Mode, Mount, Rename, Stamp, Stat, Sys, Sysult};
use home::{Time, XattrHow};
use rand::RngCore;
use rustix::io::Errno;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Longest name.
const NAME_MAX: usize = 255;
/// The device number.
const DEVICE: u64 = 8 << 32 | 1;

/// A machine as one of its processes sees it.
#[derive(Clone)]
pub struct SimSys {
    machine: Arc<Machine>,
    process: Arc<Process>,
}

/// An open object.
pub struct SimFd {
    ino: Ino,
    generation: u64,
    mode: Option<Mode>,
    _open: Arc<()>,
    uses: Option<Arc<()>>,
}

impl SimFd {
    /// Inode number.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    fn writes(&self) -> Sysult<()> {
        if matches!(self.mode, Some(Mode::Write | Mode::ReadWrite)) { Ok(()) } else { Err(Errno::BADF) }
    }

    fn reads(&self) -> Sysult<()> {
        if matches!(self.mode, Some(Mode::Read | Mode::ReadWrite)) { Ok(()) } else { Err(Errno::BADF) }
    }
}

impl State {
    fn open(&mut self, ino: Ino, mode: Option<Mode>, process: &Arc<Process>) -> SimFd {
        let opens: &mut Opens = self.opens.entry(ino).or_default();
        let uses = mode.map(|_| Arc::new(()));
        opens.users.retain(User::lives);
        opens.users.extend(uses.iter().map(|open| User {
            open: Arc::downgrade(open),
            writes: mode != Some(Mode::Read),
            process: process.clone(),
        }));
        let generation = self.now.get(ino).map_or(0, |n| n.generation);
        SimFd { ino, generation, mode, _open: opens.any.clone(), uses }
    }

    fn dir(&self, fd: &SimFd) -> Sysult<Ino> {
        let node = self.now.get(fd.ino).filter(|n| n.generation == fd.generation).ok_or(Errno::NOENT)?;
        if node.kind == FileType::Dir { Ok(fd.ino) } else { Err(Errno::NOTDIR) }
    }

    /// A directory in which names may be made.
    fn live_dir(&self, fd: &SimFd) -> Sysult<Ino> {
        let dir = self.dir(fd)?;
        if self.now.links(dir) == 0 { Err(Errno::NOENT) } else { Ok(dir) }
    }

    fn free(&self, dir: Ino, name: &[u8]) -> Sysult<()> {
        check_name(name)?;
        match self.now.child(dir, name) {
            Some(_) => Err(Errno::EXIST),
            None if self.refuses == Some(dir) => Err(Errno::ACCESS),
            None if self.full => Err(Errno::NOSPC),
            None => Ok(()),
        }
    }

    fn permits(&self, objects: &[Ino]) -> Sysult<()> {
        let refused = self.refuses.is_some_and(|ino| objects.contains(&ino));
        if refused { Err(Errno::ACCESS) } else { Ok(()) }
    }

    fn make(&mut self, at: &SimFd, name: &[u8], what: (FileType, u32), time: Time) -> Sysult<Ino> {
        let dir = self.live_dir(at)?;
        self.free(dir, name)?;
        let node = Box::new(self.new_node(what.0, what.1, time));
        let ino = self.free_ino();
        self.change(Change::Make { dir, name: name.to_vec(), ino, node, at: time });
        Ok(ino)
    }
}

fn check_name(name: &[u8]) -> Sysult<()> {
    match name {
        b"" => Err(Errno::NOENT),
        b"." | b".." => Err(Errno::EXIST),
        name if name.len() > NAME_MAX => Err(Errno::NAMETOOLONG),
        name if name.contains(&b'/') => Err(Errno::INVAL),
        _ => Ok(()),
    }
}

impl SimSys {
    /// The machine for a process of it.
    pub fn new(machine: Arc<Machine>, process: Arc<Process>) -> SimSys {
        SimSys { machine, process }
    }

    fn alive(&self, state: &State) -> Sysult<()> {
        let alive = self.process.alive.load(Ordering::SeqCst) && self.process.boot == state.boot;
        if alive { Ok(()) } else { Err(Errno::IO) }
    }

    /// Whether an open has to wait for another process's lease.
    fn waits_for(&self, state: &State, ino: Ino, mode: Mode) -> bool {
        let lease = state.leases.get(&ino).filter(|lease| lease.holder.is_alive());
        let lease = lease.filter(|lease| lease.from_readers || mode != Mode::Read);
        self.process.around.is_impatient() && lease.is_some_and(|l| !Arc::ptr_eq(&l.holder, &self.process))
    }

    fn place(&self, fd: &SimFd) -> &'static str {
        self.machine.state.lock().now.get(fd.ino).map_or("tree", |n| n.place)
    }

    /// One call: first whatever else happens, then itself, if the process lives to see it.
    fn call<T>(
        &self,
        name: &'static str,
        at: &SimFd,
        changes: bool,
        act: impl FnOnce(&mut State, Time) -> Sysult<T>,
    ) -> Sysult<T> {
        self.alive(&self.machine.state.lock())?;
        let fate = self.process.around.before(Call { name, place: self.place(at), changes });
        if fate == Fate::DiesBefore {
            self.process.kill();
        }
        let time = self.machine.clock.home_time();
        let state = &mut *self.machine.state.lock();
        self.alive(state)?;
        let done = act(state, time);
        if fate == Fate::DiesAfter {
            self.process.kill();
            return Err(Errno::IO);
        }
        done
    }

    fn look<T>(
        &self,
        name: &'static str,
        at: &SimFd,
        act: impl FnOnce(&mut State) -> Sysult<T>,
    ) -> Sysult<T> {
        self.call(name, at, false, |state, _| act(state))
    }
}

/// The number of an open object, which may have lost its names.
fn known(state: &State, fd: &SimFd) -> Sysult<Ino> {
    let found = state.now.get(fd.ino).is_some_and(|n| n.generation == fd.generation);
    if found { Ok(fd.ino) } else { Err(Errno::STALE) }
}

/// Fails where the disk has no room for a file that ends there. What it has of its last block is its own.
fn room(state: &State, fd: &SimFd, end: usize) -> Sysult<()> {
    let has = state.now.get(known(state, fd)?).map_or(0, |n| n.data.len());
    let grows = end.div_ceil(BLOCK) > has.div_ceil(BLOCK);
    if grows && state.full { Err(Errno::NOSPC) } else { Ok(()) }
}

fn data_change(state: &mut State, fd: &SimFd, time: Time, change: impl FnOnce(&mut Vec<u8>)) -> Sysult<()> {
    let ino = known(state, fd)?;
    let mut end = 0;
    if let Some(node) = state.now.nodes.get_mut(&ino) {
        change(Arc::make_mut(&mut node.data));
        end = node.data.len();
    }
    state.change(Change::Wrote { ino, end, at: time });
    Ok(())
}

impl Sys for SimSys {
    type Fd = SimFd;

    fn now(&self) -> Time {
        self.machine.clock.home_time()
    }

    fn instant(&self) -> std::time::Duration {
        vfs::env::Clock::instant(&self.machine.clock)
    }

    fn random(&self, buf: &mut [u8]) -> Sysult<()> {
        self.machine.state.lock().rng.fill_bytes(buf);
        Ok(())
    }

    fn account(&self) -> Account {
        Account { uid: UID, gid: UID, groups: vec![UID], home_dir: b"/home/ann".to_vec() }
    }

    fn boot_id(&self) -> Vec<u8> {
        format!("boot {}", self.process.boot).into_bytes()
    }

    fn booted(&self) -> Time {
        self.machine.state.lock().booted
    }

    fn mounts(&self) -> Sysult<Vec<Mount>> {
        let (fstype, source) = (b"ext4".to_vec(), b"/dev/sda1".to_vec());
        Ok(vec![Mount { dev: DEVICE, fstype, source, point: b"/".to_vec(), read_only: false }])
    }

    fn open_root(&self, path: &[u8]) -> Sysult<SimFd> {
        let state = &mut *self.machine.state.lock();
        self.alive(state)?;
        let mut at = ROOT;
        for name in path.split(|b| *b == b'/').filter(|n| !n.is_empty()) {
            at = state.now.child(at, name).ok_or(Errno::NOENT)?;
        }
        let fd = state.open(at, None, &self.process);
        state.dir(&fd)?;
        Ok(fd)
    }

    fn open_path(&self, dir: &SimFd, path: &[u8]) -> Sysult<SimFd> {
        self.look("openat2", dir, |state| {
            let mut at = state.dir(dir)?;
            let mut names = path.split(|b| *b == b'/').filter(|n| !n.is_empty()).peekable();
            while let Some(name) = names.next() {
                at = state.now.child(at, name).ok_or(Errno::NOENT)?;
                match state.now.get(at).map(|n| n.kind) {
                    Some(FileType::Symlink) if names.peek().is_some() => return Err(Errno::LOOP),
                    Some(FileType::Dir) => {}
                    _ if names.peek().is_some() => return Err(Errno::NOTDIR),
                    _ => {}
                }
            }
            Ok(state.open(at, None, &self.process))
        })
    }

    fn open_name(&self, dir: &SimFd, name: &[u8]) -> Sysult<SimFd> {
        self.look("openat", dir, |state| {
            if name == b"." {
                let at = known(state, dir)?;
                return if state.now.get(at).is_some_and(|n| n.kind == FileType::Dir) {
                    Ok(state.open(at, None, &self.process))
                } else {
                    Err(Errno::NOTDIR)
                };
            }
            let ino = state.now.child(state.dir(dir)?, name).ok_or(Errno::NOENT)?;
            Ok(state.open(ino, None, &self.process))
        })
    }

    fn reopen(&self, fd: &SimFd, mode: Mode) -> Sysult<SimFd> {
        self.look("open", fd, |state| {
            let ino = known(state, fd)?;
            let kind = state.now.get(ino).map(|n| n.kind);
            match (kind, mode) {
                (Some(FileType::Dir), Mode::Write | Mode::ReadWrite) => Err(Errno::ISDIR),
                (Some(FileType::Symlink), _) => Err(Errno::LOOP),
                (_, Mode::Write | Mode::ReadWrite) if state.refuses == Some(ino) => Err(Errno::ACCESS),
                _ if self.waits_for(state, ino, mode) => Err(Errno::AGAIN),
                _ => Ok(state.open(ino, Some(mode), &self.process)),
            }
        })
    }

    fn create(&self, dir: &SimFd, name: &[u8], mode: u32) -> Sysult<SimFd> {
        self.call("create", dir, true, |state, time| {
            let ino = state.make(dir, name, (FileType::File, mode & 0o7777), time)?;
            Ok(state.open(ino, Some(Mode::ReadWrite), &self.process))
        })
    }

    fn make(&self, dir: &SimFd, name: &[u8], what: Make<'_>) -> Sysult<()> {
        self.call("make", dir, true, |state, time| {
            let (kind, mode) = match what {
                Make::Dir(mode) => (FileType::Dir, mode),
                Make::Symlink(_) => (FileType::Symlink, 0o777),
                Make::Fifo(mode) => (FileType::Fifo, mode),
                Make::Socket(mode) => (FileType::Socket, mode),
            };
            let dir = state.live_dir(dir)?;
            state.free(dir, name)?;
            let mut node = Box::new(state.new_node(kind, mode & 0o7777, time));
            if let Make::Symlink(target) = what {
                node.data = Arc::new(target.to_vec());
            }
            let ino = state.free_ino();
            state.change(Change::Make { dir, name: name.to_vec(), ino, node, at: time });
            Ok(())
        })
    }

    fn link(&self, from: &SimFd, name: &[u8], to: &SimFd, new: &[u8]) -> Sysult<()> {
        self.call("link", to, true, |state, at| {
            let ino = state.now.child(state.dir(from)?, name).ok_or(Errno::NOENT)?;
            let dir = state.live_dir(to)?;
            state.free(dir, new)?;
            if state.now.get(ino).is_some_and(|n| n.kind == FileType::Dir) {
                return Err(Errno::PERM);
            }
            state.permits(&[ino])?;
            state.change(Change::Link { dir, name: new.to_vec(), ino, at });
            Ok(())
        })
    }

    fn rename(&self, from: &SimFd, name: &[u8], to: &SimFd, new: &[u8], how: Rename) -> Sysult<()> {
        let what = match how {
            Rename::Replace => "rename",
            Rename::NoReplace => "rename-noreplace",
            Rename::Exchange => "rename-exchange",
        };
        self.call(what, to, true, |state, at| {
            check_name(new)?;
            let (from, to) = (state.dir(from)?, state.live_dir(to)?);
            let ino = state.now.child(from, name).ok_or(Errno::NOENT)?;
            let old = state.now.child(to, new);
            let is_dir = |i: Ino| state.now.get(i).is_some_and(|n| n.kind == FileType::Dir);
            match (how, old) {
                (Rename::NoReplace | Rename::Exchange, _) if !state.exchanges => return Err(Errno::INVAL),
                (Rename::NoReplace, Some(_)) => return Err(Errno::EXIST),
                (Rename::Exchange, None) => return Err(Errno::NOENT),
                _ => {}
            }
            if old == Some(ino) {
                return Ok(());
            }
            state.permits(&[from, to, ino, old.unwrap_or(ino)])?;
            if is_dir(ino) && state.now.contains(ino, to)
                || how == Rename::Exchange && old.is_some_and(|o| is_dir(o) && state.now.contains(o, from))
            {
                return Err(Errno::INVAL);
            }
            if let (Rename::Replace, Some(old)) = (how, old) {
                match (is_dir(ino), is_dir(old)) {
                    (true, false) => return Err(Errno::NOTDIR),
                    (false, true) => return Err(Errno::ISDIR),
                    _ => {}
                }
                if state.now.get(old).is_some_and(|n| !n.names.is_empty()) {
                    return Err(Errno::NOTEMPTY);
                }
            }
            state.change(Change::Rename { from, name: name.to_vec(), to, new: new.to_vec(), how, at });
            Ok(())
        })
    }

    fn unlink(&self, at: &SimFd, name: &[u8], dir: bool) -> Sysult<()> {
        self.call(if dir { "rmdir" } else { "unlink" }, at, true, |state, time| {
            let parent = state.dir(at)?;
            let ino = state.now.child(parent, name).ok_or(Errno::NOENT)?;
            state.permits(&[parent, ino])?;
            let node = state.now.get(ino).ok_or(Errno::NOENT)?;
            match (node.kind == FileType::Dir, dir) {
                (true, false) => return Err(Errno::ISDIR),
                (false, true) => return Err(Errno::NOTDIR),
                (true, true) if !node.names.is_empty() => return Err(Errno::NOTEMPTY),
                _ => {}
            }
            state.change(Change::Unlink { dir: parent, name: name.to_vec(), at: time });
            Ok(())
        })
    }

    fn stat(&self, fd: &SimFd) -> Sysult<Stat> {
        self.look("stat", fd, |state| {
            let ino = known(state, fd)?;
            let node = state.now.get(ino).ok_or(Errno::STALE)?;
            let dir = node.kind == FileType::Dir;
            Ok(Stat {
                dev: DEVICE,
                mount: 1,
                mount_root: Some(ino == ROOT),
                ino,
                kind: node.kind,
                mode: node.mode,
                nlink: state.now.links(ino),
                uid: UID,
                gid: node.gid,
                size: if dir { 4096 } else { node.data.len() as u64 },
                used: node.data.len().next_multiple_of(4096) as u64,
                atime: node.atime,
                mtime: node.mtime,
                ctime: node.ctime,
                btime: Some(node.btime),
            })
        })
    }

    fn handle(&self, fd: &SimFd) -> Sysult<Vec<u8>> {
        Ok([fd.ino.to_le_bytes(), fd.generation.to_le_bytes()].concat())
    }

    fn access(&self, fd: &SimFd, bits: u32) -> Sysult<()> {
        let state = self.machine.state.lock();
        let may = state.now.get(fd.ino).is_some_and(|n| n.mode >> 6 & bits == bits);
        if may { Ok(()) } else { Err(Errno::ACCESS) }
    }

    fn statfs(&self, fd: &SimFd) -> Sysult<Fs> {
        self.look("statfs", fd, |_| {
            let space = StatFs {
                total: 1 << 40,
                free: 1 << 39,
                available: 1 << 39,
                files: 1 << 30,
                files_free: 1 << 29,
            };
            Ok(Fs { magic: 0xef53, fsid: 0x5eed, space })
        })
    }

    fn quota(&self, _: &SimFd, _: u32, _: u32) -> Left {
        Left::ALL
    }

    fn readlink(&self, fd: &SimFd) -> Sysult<Vec<u8>> {
        self.look("readlink", fd, |state| {
            let node = state.now.get(known(state, fd)?).ok_or(Errno::STALE)?;
            if node.kind == FileType::Symlink { Ok(node.data.to_vec()) } else { Err(Errno::INVAL) }
        })
    }

    fn names(&self, fd: &SimFd, max: usize) -> Sysult<Vec<Vec<u8>>> {
        self.look("getdents", fd, |state| {
            let node = state.now.get(state.dir(fd)?).ok_or(Errno::NOENT)?;
            Ok(node.names.keys().take(max).cloned().collect())
        })
    }

    fn chmod(&self, fd: &SimFd, mode: u32) -> Sysult<()> {
        self.call("chmod", fd, true, |state, at| {
            let ino = known(state, fd)?;
            state.permits(&[ino])?;
            state.change(Change::Mode { ino, mode: mode & 0o7777, at });
            Ok(())
        })
    }

    fn chgrp(&self, fd: &SimFd, gid: u32) -> Sysult<()> {
        self.call("chgrp", fd, true, |state, at| {
            if gid != UID {
                return Err(Errno::PERM);
            }
            let ino = known(state, fd)?;
            state.permits(&[ino])?;
            state.change(Change::Group { ino, gid, at });
            Ok(())
        })
    }

    fn set_times(&self, fd: &SimFd, atime: Stamp, mtime: Stamp) -> Sysult<()> {
        self.call("utimens", fd, true, |state, at| {
            let ino = known(state, fd)?;
            state.permits(&[ino])?;
            let value = |stamp| match stamp {
                Stamp::Keep => None,
                Stamp::Now => Some(at),
                Stamp::At(time) => Some(time),
            };
            state.change(Change::Times { ino, atime: value(atime), mtime: value(mtime), at });
            Ok(())
        })
    }

    fn xattrs(&self, fd: &SimFd) -> Sysult<Vec<(Vec<u8>, Vec<u8>)>> {
        self.look("listxattr", fd, |state| {
            let node = state.now.get(known(state, fd)?).ok_or(Errno::STALE)?;
            Ok(node.xattrs.iter().map(|(n, v)| (n.clone(), v.clone())).collect())
        })
    }

    fn set_xattr(&self, fd: &SimFd, name: &[u8], value: &[u8]) -> Sysult<()> {
        self.change_xattr(fd, name, Some(value), XattrHow::Any)
    }

    fn xattr_names(&self, fd: &SimFd) -> Sysult<Vec<u8>> {
        let all = self.xattrs(fd)?;
        Ok(all.into_iter().flat_map(|(name, _)| [name, vec![0]].concat()).collect())
    }

    fn xattr(&self, fd: &SimFd, name: &[u8]) -> Sysult<Vec<u8>> {
        self.look("getxattr", fd, |state| {
            let node = state.now.get(known(state, fd)?).ok_or(Errno::STALE)?;
            node.xattrs.get(name).cloned().ok_or(Errno::NODATA)
        })
    }

    fn change_xattr(&self, fd: &SimFd, name: &[u8], value: Option<&[u8]>, how: XattrHow) -> Sysult<()> {
        self.call("setxattr", fd, true, |state, at| {
            let ino = known(state, fd)?;
            state.permits(&[ino])?;
            let there = state.now.get(ino).is_some_and(|n| n.xattrs.contains_key(name));
            match (how, value, there) {
                (XattrHow::Create, Some(_), true) => return Err(Errno::EXIST),
                (XattrHow::Replace, Some(_), false) | (_, None, false) => return Err(Errno::NODATA),
                (_, Some(_), _) if state.full => return Err(Errno::NOSPC),
                _ => {}
            }
            let (name, value) = (name.to_vec(), value.map(<[u8]>::to_vec));
            state.change(Change::Xattr { ino, name, value, at });
            Ok(())
        })
    }

    fn default_acl(&self, _fd: &SimFd) -> bool {
        false
    }

    fn read(&self, fd: &SimFd, at: u64, buf: &mut [u8]) -> Sysult<usize> {
        fd.reads()?;
        self.look("read", fd, |state| {
            let node = state.now.get(known(state, fd)?).ok_or(Errno::STALE)?;
            let from = (at as usize).min(node.data.len());
            let count = buf.len().min(node.data.len() - from);
            buf[..count].copy_from_slice(&node.data[from..from + count]);
            Ok(count)
        })
    }

    fn write(&self, fd: &SimFd, at: u64, data: &[u8]) -> Sysult<usize> {
        fd.writes()?;
        self.call("write", fd, true, |state, time| {
            let end = at as usize + data.len();
            room(state, fd, end)?;
            data_change(state, fd, time, |content| {
                content.resize(content.len().max(end), 0);
                content[at as usize..end].copy_from_slice(data);
            })?;
            Ok(data.len())
        })
    }

    fn truncate(&self, fd: &SimFd, size: u64) -> Sysult<()> {
        fd.writes()?;
        self.call("truncate", fd, true, |state, time| {
            data_change(state, fd, time, |content| content.resize(size as usize, 0))
        })
    }

    fn data_range(&self, fd: &SimFd, at: u64, _size: u64) -> Sysult<Option<(u64, u64)>> {
        self.look("lseek", fd, |state| {
            let len = state.now.get(known(state, fd)?).ok_or(Errno::STALE)?.data.len() as u64;
            Ok((at < len).then_some((at, len)))
        })
    }

    fn clone_file(&self, _from: &SimFd, _to: &SimFd) -> Sysult<()> {
        Err(Errno::OPNOTSUPP)
    }

    fn copy(&self, _from: &SimFd, _to: &SimFd, _at: u64, _len: u64) -> Sysult<u64> {
        Err(Errno::OPNOTSUPP)
    }

    fn write_back(&self, _fd: &SimFd, _wait: bool) {}

    fn sync(&self, fd: &SimFd) -> Sysult<()> {
        self.call("fsync", fd, true, |state, _| {
            let ino = known(state, fd)?;
            state.sync(ino);
            Ok(())
        })
    }

    fn sync_file_system(&self, fd: &SimFd) -> Sysult<()> {
        self.call("syncfs", fd, true, |state, _| {
            let all: Vec<Ino> = state.now.nodes.keys().copied().collect();
            all.into_iter().for_each(|ino| state.sync(ino));
            Ok(())
        })
    }

    fn try_lock(&self, fd: &SimFd) -> Sysult<()> {
        self.look("flock", fd, |state| match state.locks.get(&fd.ino) {
            Some(holder) if holder.is_alive() && !Arc::ptr_eq(holder, &self.process) => Err(Errno::AGAIN),
            _ => {
                state.locks.insert(fd.ino, self.process.clone());
                Ok(())
            }
        })
    }

    fn unlock(&self, fd: &SimFd) -> Sysult<()> {
        self.look("flock", fd, |state| {
            let held = state.locks.get(&fd.ino).is_some_and(|holder| Arc::ptr_eq(holder, &self.process));
            if held {
                state.locks.remove(&fd.ino);
            }
            Ok(())
        })
    }

    fn end_holders(&self, fd: &SimFd) -> Sysult<()> {
        self.look("kill", fd, |state| {
            let holder = state.locks.get(&fd.ino).filter(|holder| !Arc::ptr_eq(holder, &self.process));
            holder.into_iter().for_each(|holder| holder.kill());
            Ok(())
        })
    }

    fn pause(&self) {
        crate::coroutine::pause();
    }

    fn probe_writers(&self, fd: &SimFd) -> Sysult<()> {
        self.look("lease", fd, |state| {
            let users = state.opens.get(&fd.ino).into_iter().flat_map(|o| &o.users);
            let mut writers = users.filter(|u| u.writes && u.lives());
            if writers.next().is_some() { Err(Errno::AGAIN) } else { Ok(()) }
        })
    }

    fn lease(&self, fd: &SimFd) -> Sysult<()> {
        self.look("lease", fd, |state| {
            let ino = known(state, fd)?;
            let users = state.opens.get(&ino).into_iter().flat_map(|o| &o.users);
            let own = fd.uses.as_ref().map(Arc::downgrade);
            let is_own = |u: &User| own.as_ref().is_some_and(|own| own.ptr_eq(&u.open));
            if users.filter(|u| u.lives() && !is_own(u)).count() > 0 {
                return Err(Errno::AGAIN);
            }
            state.leases.insert(ino, Lease { holder: self.process.clone(), from_readers: true });
            Ok(())
        })
    }

    fn hold(&self, fd: &SimFd) -> Sysult<()> {
        self.look("lease", fd, |state| {
            let ino = known(state, fd)?;
            let mut users = state.opens.get(&ino).into_iter().flat_map(|o| &o.users);
            if users.any(|u| u.writes && u.lives()) {
                return Err(Errno::AGAIN);
            }
            state.leases.insert(ino, Lease { holder: self.process.clone(), from_readers: false });
            Ok(())
        })
    }

    fn is_leased(&self, fd: &SimFd) -> bool {
        let leases = &self.machine.state.lock().leases;
        leases.get(&fd.ino).is_some_and(|lease| Arc::ptr_eq(&lease.holder, &self.process))
    }

    fn unlease(&self, fd: &SimFd) {
        // Also the end of a process that is dead comes here, when another one may have it.
        let leases = &mut self.machine.state.lock().leases;
        if leases.get(&fd.ino).is_some_and(|lease| Arc::ptr_eq(&lease.holder, &self.process)) {
            leases.remove(&fd.ino);
        }
    }

    fn append(&self, fd: &SimFd, data: &[u8]) -> Sysult<usize> {
        fd.writes()?;
        self.call("write", fd, true, |state, time| {
            let has = state.now.get(known(state, fd)?).map_or(0, |n| n.data.len());
            room(state, fd, has + data.len())?;
            data_change(state, fd, time, |content| content.extend_from_slice(data))?;
            Ok(data.len())
        })
    }
}
