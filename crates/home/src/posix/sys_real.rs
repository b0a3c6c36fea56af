//! [`Sys`] over the Linux kernel.
//!
//! Only what the oldest kernels in use (3.10) lack has a second way: openat2 is answered with `ENOSYS`
//! and replaced by the caller, faccessat2 and `AT_EMPTY_PATH` for times fall back to `/proc/self/fd`.

mod inotify;
mod quota;

use super::sys::*;
use crate::attr::{StatFs, Time};
use crate::limits;
use crate::xattr::XattrHow;
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{self, AtFlags, CWD, OFlags, RenameFlags, StatxFlags, Timespec};
use rustix::io::{Errno, fcntl_dupfd_cloexec, retry_on_intr};
use std::cell::RefCell;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::time::Duration;

/// The machine that this process runs on.
#[derive(Debug, Default, Clone, Copy)]
pub struct Linux {
    lacks: Lacks,
}

/// What to do without, as on older kernels and weaker file systems.
#[derive(Debug, Default, Clone, Copy)]
pub struct Lacks {
    /// openat2(2): before Linux 5.6, and under some seccomp filters.
    pub openat2: bool,
    /// `RENAME_EXCHANGE` and `RENAME_NOREPLACE`: NFS.
    pub rename_flags: bool,
}

thread_local! {
    /// Where getdents64(2) puts names: used again, because the kernel takes back and zeroes a piece of this size each
    /// time that it is freed.
    static NAMES_BUFFER: RefCell<Vec<MaybeUninit<u8>>> = const { RefCell::new(Vec::new()) };
}

/// fcntl(2): the signal that tells of a broken lease (asm-generic/fcntl.h).
const F_SETSIG: i32 = 10;

const PATH: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

fn errno(result: i64) -> Sysult<i64> {
    match result {
        -1 => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
        n => Ok(n),
    }
}

/// fcntl(2) with `F_SETLEASE`.
fn set_lease(fd: &OwnedFd, kind: i32) -> Sysult<()> {
    // A lease that is broken meanwhile is told by a signal, and the usual one would end the process.
    // SAFETY: plain numbers.
    errno(i64::from(unsafe { libc::fcntl(fd.as_raw_fd(), F_SETSIG, libc::SIGURG) }))?;
    // SAFETY: plain numbers.
    errno(i64::from(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETLEASE, kind) })).map(drop)
}

/// Whether the kernel is older than a version.
fn is_before(version: (u32, u32)) -> bool {
    static RUNNING: std::sync::OnceLock<(u32, u32)> = std::sync::OnceLock::new();
    let running = RUNNING.get_or_init(|| {
        let name = rustix::system::uname();
        let release = name.release().to_string_lossy().into_owned();
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
        (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
    });
    *running < version
}

/// The name under which a descriptor can be opened or changed again, whatever became of its path.
fn proc_path(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

fn mode_of(mode: u32) -> fs::Mode {
    fs::Mode::from_raw_mode(mode & 0o7777)
}

fn time_of(t: fs::StatxTimestamp) -> Time {
    Time { sec: t.tv_sec, nsec: t.tv_nsec }
}

fn timespec(stamp: Stamp) -> Timespec {
    match stamp {
        Stamp::Keep => Timespec { tv_sec: 0, tv_nsec: fs::UTIME_OMIT },
        Stamp::Now => Timespec { tv_sec: 0, tv_nsec: fs::UTIME_NOW },
        Stamp::At(t) => Timespec { tv_sec: t.sec, tv_nsec: i64::from(t.nsec.min(999_999_999)) },
    }
}

fn kind_of(mode: u16) -> FileType {
    match fs::FileType::from_raw_mode(u32::from(mode)) {
        fs::FileType::RegularFile => FileType::File,
        fs::FileType::Directory => FileType::Dir,
        fs::FileType::Symlink => FileType::Symlink,
        fs::FileType::Fifo => FileType::Fifo,
        fs::FileType::Socket => FileType::Socket,
        _ => FileType::Other,
    }
}

fn device(major: u32, minor: u32) -> u64 {
    u64::from(major) << 32 | u64::from(minor)
}

/// The account's home directory: `$HOME`, which sshd sets from the password database, else that database.
fn home_dir(uid: u32) -> Vec<u8> {
    use std::os::unix::ffi::OsStringExt;
    if let Some(home) = std::env::var_os("HOME").map(OsStringExt::into_vec)
        && home.starts_with(b"/")
    {
        return home;
    }
    let passwd = std::fs::read("/etc/passwd").unwrap_or_default();
    let uid = uid.to_string();
    passwd
        .split(|b| *b == b'\n')
        .map(|line| line.split(|b| *b == b':').collect::<Vec<_>>())
        .find(|f| f.len() > 5 && f[2] == uid.as_bytes())
        .map_or_else(|| b"/".to_vec(), |f| f[5].to_vec())
}

/// Without symbolic links, because no step below the root of a home may follow one.
fn canonical(path: Vec<u8>) -> Vec<u8> {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    match std::fs::canonicalize(std::ffi::OsStr::from_bytes(&path)) {
        Ok(real) => real.into_os_string().into_vec(),
        Err(_) => path,
    }
}

/// Undoes the octal escapes of the mount table.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut at = 0;
    while at < field.len() {
        let octal = field.get(at + 1..at + 4).filter(|_| field[at] == b'\\');
        match octal.and_then(|o| u8::from_str_radix(std::str::from_utf8(o).ok()?, 8).ok()) {
            Some(byte) => {
                out.push(byte);
                at += 4;
            }
            None => {
                out.push(field[at]);
                at += 1;
            }
        }
    }
    out
}

/// One line of proc_pid_mountinfo(5).
fn parse_mount(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|b| *b == b' ').collect();
    let dash = fields.iter().position(|f| *f == b"-")?;
    let (major, minor) = std::str::from_utf8(fields.get(2)?).ok()?.split_once(':')?;
    let has_ro =
        |options: Option<&&[u8]>| options.is_some_and(|all| all.split(|b| *b == b',').any(|o| o == b"ro"));
    Some(Mount {
        dev: device(major.parse().ok()?, minor.parse().ok()?),
        point: unescape(fields.get(4)?),
        fstype: fields.get(dash + 1)?.to_vec(),
        source: unescape(fields.get(dash + 2)?),
        read_only: has_ro(fields.get(5)) || has_ro(fields.get(dash + 3)),
    })
}

/// All processes of this machine that can be seen.
fn processes() -> impl Iterator<Item = rustix::process::Pid> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|e| rustix::process::Pid::from_raw(e.file_name().to_str()?.parse().ok()?))
}

/// Whether a process has a file open that it has locked by flock(2): `/proc/PID/fdinfo` tells the locks.
fn holds_lock(pid: rustix::process::Pid, file: &fs::Stat) -> bool {
    let proc = format!("/proc/{}", pid.as_raw_nonzero());
    let open = std::fs::read_dir(format!("{proc}/fd")).into_iter().flatten().flatten();
    open.filter(|fd| {
        fs::stat(fd.path()).is_ok_and(|stat| (stat.st_dev, stat.st_ino) == (file.st_dev, file.st_ino))
    })
    .any(|fd| {
        let info = std::fs::read_to_string(format!("{proc}/fdinfo/{}", fd.file_name().to_string_lossy()));
        info.is_ok_and(|info| info.lines().any(|line| line.starts_with("lock:") && line.contains("FLOCK")))
    })
}

/// The length, type and bytes of struct file_handle, with room for `MAX_HANDLE_SZ`.
#[repr(C)]
struct RawHandle {
    bytes: u32,
    kind: i32,
    data: [u8; 128],
}

impl Linux {
    /// This machine without some of what it can.
    pub fn without(lacks: Lacks) -> Linux {
        Linux { lacks }
    }

    fn fchmod_path(&self, fd: &OwnedFd, mode: u32) -> Sysult<()> {
        fs::chmodat(CWD, proc_path(fd), mode_of(mode), AtFlags::empty())
    }
}

impl Sys for Linux {
    type Fd = OwnedFd;

    fn now(&self) -> Time {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        Time { sec: t.tv_sec, nsec: t.tv_nsec as u32 }
    }

    fn instant(&self) -> Duration {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
    }

    fn random(&self, buf: &mut [u8]) -> Sysult<()> {
        // SAFETY: the pointer and the length describe one writable buffer.
        let got = errno(unsafe { libc::getrandom(buf.as_mut_ptr().cast(), buf.len(), 0) } as i64)?;
        if got as usize == buf.len() { Ok(()) } else { Err(Errno::IO) }
    }

    fn account(&self) -> Account {
        let uid = rustix::process::geteuid().as_raw();
        let groups = rustix::process::getgroups().unwrap_or_default();
        Account {
            uid,
            gid: rustix::process::getegid().as_raw(),
            groups: groups.into_iter().map(|g| g.as_raw()).collect(),
            home_dir: canonical(home_dir(uid)),
        }
    }

    fn boot_id(&self) -> Vec<u8> {
        let text = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        text.trim_ascii().to_vec()
    }

    fn booted(&self) -> Time {
        let (now, up) = (self.now(), rustix::time::clock_gettime(rustix::time::ClockId::Boottime));
        let (sec, nsec) = (now.sec - up.tv_sec, i64::from(now.nsec) - up.tv_nsec);
        Time { sec: sec + nsec.div_euclid(1_000_000_000), nsec: nsec.rem_euclid(1_000_000_000) as u32 }
    }

    /// When process 1 was started, in ticks since the boot: proc_pid_stat(5), field 22.
    fn first_process(&self) -> Option<Vec<u8>> {
        let text = std::fs::read("/proc/1/stat").ok()?;
        // The name in field 2 may contain anything.
        let name_end = text.iter().rposition(|b| *b == b')')?;
        text[name_end..].split(|b| *b == b' ').nth(20).map(<[u8]>::to_vec)
    }

    fn mounts(&self) -> Sysult<Vec<Mount>> {
        let text = std::fs::read("/proc/self/mountinfo")
            .map_err(|e| Errno::from_io_error(&e).unwrap_or(Errno::IO))?;
        Ok(text.split(|b| *b == b'\n').filter_map(parse_mount).collect())
    }

    fn open_root(&self, path: &[u8]) -> Sysult<OwnedFd> {
        fs::open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, fs::Mode::empty())
    }

    fn open_path(&self, dir: &OwnedFd, path: &[u8]) -> Sysult<OwnedFd> {
        if self.lacks.openat2 {
            return Err(Errno::NOSYS);
        }
        let within =
            fs::ResolveFlags::BENEATH | fs::ResolveFlags::NO_SYMLINKS | fs::ResolveFlags::NO_MAGICLINKS;
        retry_on_intr(|| fs::openat2(dir, path, PATH, fs::Mode::empty(), within))
    }

    fn open_name(&self, dir: &OwnedFd, name: &[u8]) -> Sysult<OwnedFd> {
        retry_on_intr(|| fs::openat(dir, name, PATH, fs::Mode::empty()))
    }

    fn reopen(&self, fd: &OwnedFd, mode: Mode) -> Sysult<OwnedFd> {
        let flags = match mode {
            Mode::Read => OFlags::RDONLY,
            Mode::ReadWrite => OFlags::RDWR,
            Mode::Write => OFlags::WRONLY,
        } | OFlags::CLOEXEC
            | OFlags::NONBLOCK
            | OFlags::NOCTTY;
        retry_on_intr(|| fs::open(proc_path(fd), flags, fs::Mode::empty()))
    }

    fn create(&self, dir: &OwnedFd, name: &[u8], mode: u32) -> Sysult<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        retry_on_intr(|| fs::openat(dir, name, flags, mode_of(mode)))
    }

    fn make(&self, dir: &OwnedFd, name: &[u8], what: Make<'_>) -> Sysult<()> {
        match what {
            Make::Dir(mode) => fs::mkdirat(dir, name, mode_of(mode)),
            Make::Symlink(target) => fs::symlinkat(target, dir, name),
            Make::Fifo(mode) => fs::mknodat(dir, name, fs::FileType::Fifo, mode_of(mode), 0),
            Make::Socket(mode) => fs::mknodat(dir, name, fs::FileType::Socket, mode_of(mode), 0),
        }
    }

    fn link(&self, from: &OwnedFd, name: &[u8], to: &OwnedFd, new: &[u8]) -> Sysult<()> {
        fs::linkat(from, name, to, new, AtFlags::empty())
    }

    fn rename(&self, from: &OwnedFd, name: &[u8], to: &OwnedFd, new: &[u8], how: Rename) -> Sysult<()> {
        if self.lacks.rename_flags && how != Rename::Replace {
            return Err(Errno::INVAL);
        }
        match how {
            Rename::Replace => fs::renameat(from, name, to, new),
            Rename::NoReplace => fs::renameat_with(from, name, to, new, RenameFlags::NOREPLACE),
            Rename::Exchange => fs::renameat_with(from, name, to, new, RenameFlags::EXCHANGE),
        }
    }

    fn unlink(&self, at: &OwnedFd, name: &[u8], dir: bool) -> Sysult<()> {
        fs::unlinkat(at, name, if dir { AtFlags::REMOVEDIR } else { AtFlags::empty() })
    }

    fn stat(&self, fd: &OwnedFd) -> Sysult<Stat> {
        let flags = AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT | AtFlags::SYMLINK_NOFOLLOW;
        let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME | StatxFlags::MNT_ID;
        let s = retry_on_intr(|| fs::statx(fd, c"", flags, mask))?;
        let has = |flag: StatxFlags| s.stx_mask & flag.bits() != 0;
        let tells_root = s.stx_attributes_mask.contains(fs::StatxAttributes::MOUNT_ROOT);
        Ok(Stat {
            dev: device(s.stx_dev_major, s.stx_dev_minor),
            mount: if has(StatxFlags::MNT_ID) { s.stx_mnt_id } else { 0 },
            mount_root: tells_root.then(|| s.stx_attributes.contains(fs::StatxAttributes::MOUNT_ROOT)),
            ino: s.stx_ino,
            kind: kind_of(s.stx_mode),
            mode: u32::from(s.stx_mode) & 0o7777,
            nlink: s.stx_nlink,
            uid: s.stx_uid,
            gid: s.stx_gid,
            size: s.stx_size,
            used: s.stx_blocks.saturating_mul(512),
            atime: time_of(s.stx_atime),
            mtime: time_of(s.stx_mtime),
            ctime: time_of(s.stx_ctime),
            btime: has(StatxFlags::BTIME).then(|| time_of(s.stx_btime)),
        })
    }

    fn handle(&self, fd: &OwnedFd) -> Sysult<Vec<u8>> {
        let mut raw = RawHandle { bytes: 128, kind: 0, data: [0; 128] };
        let mut mount = 0i32;
        // SAFETY: `raw` has the layout of struct file_handle with `bytes` bytes of room behind its head,
        // and the empty path makes the kernel look at the descriptor itself.
        errno(unsafe {
            libc::syscall(
                libc::SYS_name_to_handle_at,
                fd.as_raw_fd(),
                c"".as_ptr(),
                &raw mut raw,
                &raw mut mount,
                libc::AT_EMPTY_PATH,
            )
        } as i64)?;
        let mut out = raw.kind.to_le_bytes().to_vec();
        out.extend_from_slice(&raw.data[..(raw.bytes as usize).min(128)]);
        Ok(out)
    }

    fn access(&self, fd: &OwnedFd, bits: u32) -> Sysult<()> {
        // SAFETY: plain numbers and a static string.
        let asked = errno(unsafe {
            libc::syscall(
                libc::SYS_faccessat2,
                fd.as_raw_fd(),
                c"".as_ptr(),
                bits,
                libc::AT_EACCESS | libc::AT_EMPTY_PATH,
            )
        } as i64);
        match asked {
            Err(Errno::NOSYS) => {
                let bits = fs::Access::from_bits_truncate(bits);
                fs::accessat(CWD, proc_path(fd), bits, AtFlags::EACCESS)
            }
            asked => asked.map(drop),
        }
    }

    fn statfs(&self, fd: &OwnedFd) -> Sysult<Fs> {
        // SAFETY: statfs is plain old data, for which all zeros is a value, and the call fills it.
        let mut raw: libc::statfs64 = unsafe { std::mem::zeroed() };
        // SAFETY: the descriptor is open and the buffer is a whole struct statfs64.
        errno(i64::from(unsafe { libc::fstatfs64(fd.as_raw_fd(), &raw mut raw) }))?;
        let unit = if raw.f_frsize > 0 { raw.f_frsize as u64 } else { raw.f_bsize as u64 };
        // SAFETY: fsid_t is two 32-bit integers in every C library.
        let fsid: [u32; 2] = unsafe { std::mem::transmute(raw.f_fsid) };
        Ok(Fs {
            magic: raw.f_type as u64,
            fsid: u64::from(fsid[1]) << 32 | u64::from(fsid[0]),
            space: StatFs {
                total: raw.f_blocks.saturating_mul(unit),
                free: raw.f_bfree.saturating_mul(unit),
                available: raw.f_bavail.saturating_mul(unit),
                files: raw.f_files,
                files_free: raw.f_ffree,
            },
        })
    }

    fn quota(&self, fd: &OwnedFd, uid: u32, gid: u32) -> Left {
        [(quota::USER, uid), (quota::GROUP, gid)]
            .into_iter()
            .filter_map(|(kind, id)| quota::left(fd, kind, id))
            .fold(Left::ALL, |a, b| Left { bytes: a.bytes.min(b.bytes), files: a.files.min(b.files) })
    }

    fn readlink(&self, fd: &OwnedFd) -> Sysult<Vec<u8>> {
        Ok(fs::readlinkat(fd, c"", Vec::new())?.into_bytes())
    }

    fn names(&self, fd: &OwnedFd, max: usize) -> Sysult<Vec<Vec<u8>>> {
        NAMES_BUFFER.with_borrow_mut(|buf| {
            buf.resize(limits::GETDENTS_BUFFER, MaybeUninit::uninit());
            let mut dir = fs::RawDir::new(fd.as_fd(), buf);
            let mut names = Vec::new();
            while let Some(entry) = dir.next() {
                let name = entry?.file_name().to_bytes().to_vec();
                if name != b"." && name != b".." {
                    names.push(name);
                }
                if names.len() >= max {
                    break;
                }
            }
            Ok(names)
        })
    }

    fn chmod(&self, fd: &OwnedFd, mode: u32) -> Sysult<()> {
        match fs::fchmod(fd, mode_of(mode)) {
            Err(Errno::BADF) => self.fchmod_path(fd, mode),
            done => done,
        }
    }

    fn chgrp(&self, fd: &OwnedFd, gid: u32) -> Sysult<()> {
        let gid = fs::Gid::from_raw(gid);
        fs::chownat(fd, c"", None, Some(gid), AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW)
    }

    fn set_times(&self, fd: &OwnedFd, atime: Stamp, mtime: Stamp) -> Sysult<()> {
        let times = fs::Timestamps { last_access: timespec(atime), last_modification: timespec(mtime) };
        match fs::utimensat(fd, c"", &times, AtFlags::EMPTY_PATH) {
            Err(Errno::INVAL | Errno::NOENT) => fs::utimensat(CWD, proc_path(fd), &times, AtFlags::empty()),
            done => done,
        }
    }

    fn xattrs(&self, fd: &OwnedFd) -> Sysult<Vec<(Vec<u8>, Vec<u8>)>> {
        let path = proc_path(fd);
        let mut list = vec![0u8; limits::XATTR_BYTES];
        let len = match fs::listxattr(&path, &mut list[..]) {
            Err(Errno::OPNOTSUPP) => 0,
            got => got?,
        };
        let mut out = Vec::new();
        let mut value = vec![0u8; limits::XATTR_BYTES];
        for name in list[..len].split(|b| *b == 0).filter(|n| !n.is_empty()) {
            match fs::getxattr(&path, name, &mut value[..]) {
                Ok(n) => out.push((name.to_vec(), value[..n].to_vec())),
                Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(out)
    }

    fn set_xattr(&self, fd: &OwnedFd, name: &[u8], value: &[u8]) -> Sysult<()> {
        fs::fsetxattr(fd, name, value, fs::XattrFlags::empty())
    }

    fn xattr_names(&self, fd: &OwnedFd) -> Sysult<Vec<u8>> {
        let path = proc_path(fd);
        // Most objects have none, or few.
        let mut few = [0u8; 256];
        match fs::listxattr(&path, &mut few[..]) {
            Ok(len) => return Ok(few[..len].to_vec()),
            Err(Errno::RANGE) => {}
            Err(e) => return Err(e),
        }
        let mut names = vec![0u8; limits::XATTR_BYTES];
        let len = fs::listxattr(&path, &mut names[..])?;
        names.truncate(len);
        Ok(names)
    }

    fn xattr(&self, fd: &OwnedFd, name: &[u8]) -> Sysult<Vec<u8>> {
        let mut value = vec![0u8; limits::XATTR_VALUE_MAX];
        let len = fs::getxattr(proc_path(fd), name, &mut value[..])?;
        value.truncate(len);
        Ok(value)
    }

    fn change_xattr(&self, fd: &OwnedFd, name: &[u8], value: Option<&[u8]>, how: XattrHow) -> Sysult<()> {
        let flags = match how {
            XattrHow::Any => fs::XattrFlags::empty(),
            XattrHow::Create => fs::XattrFlags::CREATE,
            XattrHow::Replace => fs::XattrFlags::REPLACE,
        };
        match value {
            Some(value) => fs::setxattr(proc_path(fd), name, value, flags),
            None => fs::removexattr(proc_path(fd), name),
        }
    }

    fn default_acl(&self, fd: &OwnedFd) -> bool {
        // Too long for the buffer is an answer, too.
        let mut head = [0; 4];
        let name: &CStr = c"system.posix_acl_default";
        matches!(fs::getxattr(proc_path(fd), name, &mut head[..]), Ok(_) | Err(Errno::RANGE))
    }

    fn read(&self, fd: &OwnedFd, at: u64, buf: &mut [u8]) -> Sysult<usize> {
        retry_on_intr(|| rustix::io::pread(fd, &mut *buf, at))
    }

    fn write(&self, fd: &OwnedFd, at: u64, data: &[u8]) -> Sysult<usize> {
        retry_on_intr(|| rustix::io::pwrite(fd, data, at))
    }

    fn truncate(&self, fd: &OwnedFd, size: u64) -> Sysult<()> {
        retry_on_intr(|| fs::ftruncate(fd, size))
    }

    fn data_range(&self, fd: &OwnedFd, at: u64, size: u64) -> Sysult<Option<(u64, u64)>> {
        match fs::seek(fd, fs::SeekFrom::Data(at)) {
            Ok(start) => Ok(Some((start, fs::seek(fd, fs::SeekFrom::Hole(start))?))),
            Err(Errno::NXIO) => Ok(None),
            Err(Errno::INVAL | Errno::OPNOTSUPP) if at < size => Ok(Some((at, size))),
            Err(e) => Err(e),
        }
    }

    fn clone_file(&self, from: &OwnedFd, to: &OwnedFd) -> Sysult<()> {
        fs::ioctl_ficlone(to, from)
    }

    fn copy(&self, from: &OwnedFd, to: &OwnedFd, at: u64, len: u64) -> Sysult<u64> {
        let (mut source, mut target) = (at, at);
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(1 << 30);
        let got = retry_on_intr(|| fs::copy_file_range(from, Some(&mut source), to, Some(&mut target), len))?;
        Ok(got as u64)
    }

    fn write_back(&self, fd: &OwnedFd, wait: bool) {
        let flags = match wait {
            false => libc::SYNC_FILE_RANGE_WRITE,
            true => {
                libc::SYNC_FILE_RANGE_WAIT_BEFORE
                    | libc::SYNC_FILE_RANGE_WRITE
                    | libc::SYNC_FILE_RANGE_WAIT_AFTER
            }
        };
        // SAFETY: the descriptor is open; the call has no memory effects, and its result is only a hint.
        unsafe { libc::sync_file_range(fd.as_raw_fd(), 0, 0, flags) };
    }

    fn sync(&self, fd: &OwnedFd) -> Sysult<()> {
        retry_on_intr(|| fs::fsync(fd))
    }

    fn sync_file_system(&self, fd: &OwnedFd) -> Sysult<()> {
        // syncfs(2) takes no O_PATH descriptor; where this directory may not be read, everything is synced.
        match fs::open(proc_path(fd), OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, fs::Mode::empty())
        {
            Ok(opened) => fs::syncfs(opened),
            Err(Errno::ACCESS | Errno::PERM) => {
                fs::sync();
                Ok(())
            }
            Err(e) => Err(e),
        }
    }

    fn try_lock(&self, fd: &OwnedFd) -> Sysult<()> {
        retry_on_intr(|| fs::flock(fd, fs::FlockOperation::NonBlockingLockExclusive))
    }

    fn unlock(&self, fd: &OwnedFd) -> Sysult<()> {
        fs::flock(fd, fs::FlockOperation::Unlock)
    }

    fn end_holders(&self, fd: &OwnedFd) -> Sysult<()> {
        let wanted = fs::fstat(fd)?;
        for pid in processes() {
            if holds_lock(pid, &wanted) && pid != rustix::process::getpid() {
                match rustix::process::kill_process(pid, rustix::process::Signal::KILL) {
                    Ok(()) | Err(Errno::SRCH) => {}
                    Err(e) => return Err(e),
                }
            }
        }
        Ok(())
    }

    fn pause(&self) {
        std::thread::sleep(limits::FENCE_PAUSE);
    }

    fn probe_writers(&self, fd: &OwnedFd) -> Sysult<()> {
        set_lease(fd, libc::F_RDLCK)?;
        // Given back before anybody can wait for it for long.
        set_lease(fd, libc::F_UNLCK)
    }

    fn lease(&self, fd: &OwnedFd) -> Sysult<()> {
        set_lease(fd, libc::F_WRLCK).map_err(|e| match e {
            // Older kernels count descriptors of O_PATH as users of the file, and so our own.
            Errno::AGAIN if is_before((5, 3)) => Errno::OPNOTSUPP,
            e => e,
        })
    }

    fn hold(&self, fd: &OwnedFd) -> Sysult<()> {
        set_lease(fd, libc::F_RDLCK)
    }

    fn is_leased(&self, fd: &OwnedFd) -> bool {
        // One that is being broken is told as what it will be (fcntl(2), F_GETLEASE).
        // SAFETY: plain numbers.
        unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETLEASE) == libc::F_RDLCK }
    }

    fn unlease(&self, fd: &OwnedFd) {
        // It ends with the descriptor at the latest.
        set_lease(fd, libc::F_UNLCK).ok();
    }

    fn append(&self, fd: &OwnedFd, data: &[u8]) -> Sysult<usize> {
        let parts = [std::io::IoSlice::new(data)];
        let append = rustix::io::ReadWriteFlags::APPEND;
        match retry_on_intr(|| rustix::io::pwritev2(fd, &parts, 0, append)) {
            Err(Errno::NOSYS | Errno::INVAL) => Err(Errno::OPNOTSUPP),
            went => went,
        }
    }

    fn watches(&self) -> Sysult<OwnedFd> {
        inotify::watches()
    }

    fn watches_max(&self) -> usize {
        inotify::watches_max()
    }

    fn watch(&self, watches: &OwnedFd, dir: &OwnedFd) -> Sysult<i32> {
        inotify::watch(watches, dir)
    }

    fn unwatch(&self, watches: &OwnedFd, watch: i32) {
        inotify::unwatch(watches, watch);
    }

    fn stirs(&self, watches: &OwnedFd, wait: Option<Duration>) -> Sysult<bool> {
        inotify::stirs(watches, wait)
    }

    fn happened(&self, watches: &OwnedFd) -> Sysult<Vec<(i32, Happened)>> {
        inotify::happened(watches)
    }

    fn lend(&self, watches: &OwnedFd) -> Sysult<OwnedFd> {
        fcntl_dupfd_cloexec(watches, 0)
    }

    fn adopt(&self, watches: OwnedFd) -> Sysult<OwnedFd> {
        inotify::adopt();
        Ok(watches)
    }
}
