//! Where this machine has mounted our own tree.

use crate::limits;
use home::HomePath;
use home::io_text;
use std::ffi::OsStr;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

/// How the table of mounts calls the tree of another machine's server, before that machine's name.
pub const RELAYED: &str = "trellis@";

/// Mount points of our own tree, read anew from the kernel when they may have changed. As long as no listener is
/// known there are none.
#[derive(Default)]
pub struct OwnMounts {
    listeners: OnceLock<Vec<SocketAddr>>,
    known: Mutex<Option<(Instant, Vec<HomePath>)>>,
}

impl OwnMounts {
    /// Tells, once, where we can be mounted from.
    pub fn listen(&self, listeners: Vec<SocketAddr>) {
        // A second call would come from a second server in this process; the first one's mounts stay known.
        let _ = self.listeners.set(listeners);
    }

    /// Whether the path is, or lies below, a mount of our own tree.
    pub fn holds(&self, path: &HomePath) -> bool {
        let Some(listeners) = self.listeners.get() else { return false };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = known.as_ref().is_some_and(|(at, _)| at.elapsed() < limits::MOUNTS_AGE);
        if !fresh {
            let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
            *known = Some((Instant::now(), own_mounts(&table, listeners)));
        }
        known.as_ref().is_some_and(|(_, mounts)| mounts.iter().any(|m| is_below(path, m)))
    }

    /// Mounts that never change.
    #[cfg(test)]
    pub fn fixed(paths: &[&str]) -> OwnMounts {
        let mounts = paths.iter().map(|p| HomePath::parse(p.as_bytes()).unwrap()).collect();
        let later = Instant::now() + std::time::Duration::from_secs(3600);
        OwnMounts { listeners: OnceLock::from(vec![]), known: Mutex::new(Some((later, mounts))) }
    }
}

fn is_below(path: &HomePath, mount: &HomePath) -> bool {
    let rest = path.as_bytes().strip_prefix(mount.as_bytes());
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// Mount points in a table of proc(5) `mountinfo` whose file system is served by us: NFS from one of the listeners, or
/// FUSE. A FUSE mount of another server of ours counts as well, because two that look into each other go in circles too.
fn own_mounts(table: &[u8], listeners: &[SocketAddr]) -> Vec<HomePath> {
    let lines = table.split(|b| *b == b'\n').filter_map(Line::parse);
    lines
        .filter(|l| l.is_nfs_of(listeners) || l.is_fuse_of_ours())
        .filter_map(|l| HomePath::parse(&unescape(l.point)).ok())
        .collect()
}

/// Where the tree is mounted by FUSE, by this server or another one of ours, in the order of mounting.
pub fn fuse_points() -> Vec<PathBuf> {
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    let lines = table.split(|b| *b == b'\n').filter_map(Line::parse).filter(Line::is_fuse_of_ours);
    lines.map(|l| PathBuf::from(OsStr::from_bytes(&unescape(l.point)))).collect()
}

/// Where the tree of a server is mounted, but for these mounts: by another server of this machine, or of another one.
pub fn other_points(ours: &[Mounted]) -> Vec<PathBuf> {
    others(&std::fs::read("/proc/self/mountinfo").unwrap_or_default(), ours)
}

fn others(table: &[u8], ours: &[Mounted]) -> Vec<PathBuf> {
    let lines = table.split(|b| *b == b'\n').filter_map(Line::parse);
    let points = lines.filter(|l| l.is_fuse_of_ours() || l.is_nfs_of_one_port()).map(|l| unescape(l.point));
    let theirs = points.filter(|point| ours.iter().all(|m| m.point != *point));
    theirs.map(|point| PathBuf::from(OsStr::from_bytes(&point))).collect()
}

/// Where the kernel lets users abort the connections of their FUSE mounts.
pub const FUSECTL: &str = "/sys/fs/fuse/connections";

/// Ends the connections of this user's FUSE mounts of a source in the kernel: whoever waits for an answer there gets
/// ECONNABORTED.
pub fn abort(source: &str) {
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    let uid = rustix::process::geteuid().as_raw();
    for number in connections(&table, &Served { listeners: Vec::new(), source: source.to_owned(), uid }) {
        abort_connection(number);
    }
}

fn abort_connection(number: u32) {
    if let Err(e) = std::fs::write(format!("{FUSECTL}/{number}/abort"), "1") {
        tracing::warn!("FUSE connection {number}: {}", io_text(&e));
    }
}

/// The number of the connection of our FUSE mount that is seen at a directory, whose path has no symbolic links.
pub fn connection(dir: &Path) -> Option<u32> {
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    let lines = table.split(|b| *b == b'\n').filter_map(Line::parse).filter(Line::is_fuse_of_ours);
    lines.rev().find(|l| unescape(l.point) == dir.as_os_str().as_bytes())?.connection()
}

/// A connection of a FUSE mount, known again when its number has gone to another one.
pub struct Connection {
    number: u32,
    control: Option<u64>,
    mount: Option<Vec<u8>>,
}

impl Connection {
    /// The one that has this number now.
    pub fn now(number: u32) -> Connection {
        // Each connection gets an inode of its own (fs/fuse/control.c `fuse_ctl_add_dentry`).
        let control = std::fs::metadata(format!("{FUSECTL}/{number}")).map(|m| m.ino()).ok();
        let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
        Connection { number, control, mount: mount_of(&table, number) }
    }

    /// Its number: the name in fusectl.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Ends it in the kernel, if it is still the same.
    pub fn abort(&self) {
        if self.is(&Connection::now(self.number)) {
            abort_connection(self.number);
        }
    }

    /// By fusectl, or, where that was mounted meanwhile, by the mount.
    fn is(&self, other: &Connection) -> bool {
        self.number == other.number
            && (self.control.is_some() && self.control == other.control
                || self.mount.is_some() && self.mount == other.mount)
    }
}

/// What tells our FUSE mount with this number from others: its line in the table, but for what an administrator may change.
fn mount_of(table: &[u8], number: u32) -> Option<Vec<u8>> {
    let lines = table.split(|b| *b == b'\n').filter_map(Line::parse);
    let line = lines.filter(Line::is_fuse_of_ours).find(|l| l.connection() == Some(number))?;
    Some([line.id, line.device, line.point, line.source].join(&b' '))
}

/// The connections of the FUSE mounts of a server.
fn connections(table: &[u8], of: &Served) -> Vec<u32> {
    let lines = table.split(|b| *b == b'\n').filter_map(Line::parse);
    lines.filter(|l| l.is_fuse_of(of)).filter_map(|l| l.connection()).collect()
}

/// Where the tree of a server on another machine is mounted.
pub fn relayed_points() -> Vec<PathBuf> {
    let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    let lines = table.split(|b| *b == b'\n').filter_map(Line::parse).filter(Line::is_relayed);
    lines.map(|l| PathBuf::from(OsStr::from_bytes(&unescape(l.point)))).collect()
}

/// A place of this machine where a part of the tree is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mounted {
    /// Absolute path of this machine.
    pub point: Vec<u8>,
    /// The path in the tree that is seen there, without slashes at its ends.
    pub inside: Vec<u8>,
}

impl Mounted {
    /// The whole tree, seen at a path of this machine.
    pub fn whole(point: &Path) -> Mounted {
        Mounted { point: point.as_os_str().as_bytes().into(), inside: Vec::new() }
    }
}

/// What tells the mounts of one server from those of others.
pub struct Served {
    /// Where it listens for NFS.
    pub listeners: Vec<SocketAddr>,
    /// What its FUSE mounts are called ([`crate::state::StateDir::source`]).
    pub source: String,
    /// Whose FUSE mounts count.
    pub uid: u32,
}

/// Where this process sees the tree of a server.
pub fn seen_here(of: &Served) -> Vec<Mounted> {
    mounted(&std::fs::read("/proc/self/mountinfo").unwrap_or_default(), of)
}

/// What is mounted last at a point is what is seen there. The tree of another server, with its own modes and caches, is
/// reached by its mount alone.
fn mounted(table: &[u8], of: &Served) -> Vec<Mounted> {
    let mut seen: Vec<Mounted> = Vec::new();
    for line in table.split(|b| *b == b'\n').filter_map(Line::parse) {
        let point = unescape(line.point);
        seen.retain(|m| m.point != point);
        let inside = match line.kind {
            _ if line.is_fuse_of(of) => unescape(line.root),
            _ if line.is_nfs_of(&of.listeners) => {
                let source = unescape(line.source);
                let path = source.windows(2).position(|w| w == b":/").map(|at| source[at + 1..].to_vec());
                path.unwrap_or_default()
            }
            _ => continue,
        };
        let start = inside.iter().position(|b| *b != b'/').unwrap_or(inside.len());
        seen.push(Mounted { point, inside: inside[start..].to_vec() });
    }
    seen
}

/// The path in the tree that an absolute path of this machine leads to; `None` where it does not lead there. Links on
/// the way are followed up to the mount, which itself is not touched, so that a dead one holds nobody up.
pub fn path_inside(path: &Path, mounts: &[Mounted]) -> Option<Vec<u8>> {
    let mut todo: Vec<Vec<u8>> = parts(path.as_os_str().as_bytes()).rev().collect();
    let mut at = PathBuf::from("/");
    let mut links = 0;
    loop {
        if let Some(mount) = mounts.iter().find(|m| m.point == at.as_os_str().as_bytes()) {
            let rest = todo.iter().rev().map(Vec::as_slice);
            let all = std::iter::once(&mount.inside[..]).filter(|p| !p.is_empty()).chain(rest);
            return Some([b"/", &all.collect::<Vec<_>>().join(&b'/')[..]].concat());
        }
        let name = todo.pop()?;
        if name == b".." {
            at.pop();
            continue;
        }
        let next = at.join(OsStr::from_bytes(&name));
        match std::fs::read_link(&next) {
            Ok(target) if links < limits::SYMLINKS => {
                links += 1;
                if target.is_absolute() {
                    at = PathBuf::from("/");
                }
                todo.extend(parts(target.as_os_str().as_bytes()).rev());
            }
            _ => at = next,
        }
    }
}

fn parts(path: &[u8]) -> impl DoubleEndedIterator<Item = Vec<u8>> {
    path.split(|b| *b == b'/').filter(|p| !p.is_empty() && *p != b".").map(<[u8]>::to_vec)
}

/// A line of proc(5) `mountinfo`.
struct Line<'a> {
    id: &'a [u8],
    device: &'a [u8],
    root: &'a [u8],
    point: &'a [u8],
    kind: &'a [u8],
    source: &'a [u8],
    options: &'a [u8],
}

impl<'a> Line<'a> {
    fn parse(line: &'a [u8]) -> Option<Line<'a>> {
        let mut fields = line.split(|b| *b == b' ');
        let (id, _, device) = (fields.next()?, fields.next()?, fields.next()?);
        let (root, point) = (fields.next()?, fields.next()?);
        let mut rest = fields.skip_while(|f| *f != b"-").skip(1);
        Some(Line {
            id,
            device,
            root,
            point,
            kind: rest.next()?,
            source: rest.next()?,
            options: rest.next()?,
        })
    }

    /// The subtype that we mount with.
    fn is_fuse_of_ours(&self) -> bool {
        self.kind == b"fuse.trellis"
    }

    /// The name in fusectl of a FUSE mount: the minor number of its device.
    fn connection(&self) -> Option<u32> {
        std::str::from_utf8(self.device).ok()?.split_once(':')?.1.parse().ok()
    }

    fn is_fuse_of(&self, of: &Served) -> bool {
        let owner = self.options.split(|b| *b == b',').find_map(|o| o.strip_prefix(b"user_id="));
        self.is_fuse_of_ours()
            && owner == Some(of.uid.to_string().as_bytes())
            && unescape(self.source) == of.source.as_bytes()
    }

    fn is_relayed(&self) -> bool {
        self.is_fuse_of_ours() && unescape(self.source).starts_with(RELAYED.as_bytes())
    }

    /// NFS whose server answers MOUNT at the same port, as ours do and the kernel's does not. Whoever takes another one
    /// for ours reaches what is there all the same: by its mount.
    fn is_nfs_of_one_port(&self) -> bool {
        let value = |key: &[u8]| self.options.split(|b| *b == b',').find_map(|o| o.strip_prefix(key));
        let port = value(b"port=").unwrap_or(b"2049");
        self.kind.starts_with(b"nfs") && value(b"mountport=") == Some(port)
    }

    fn is_nfs_of(&self, listeners: &[SocketAddr]) -> bool {
        let Ok(options) = std::str::from_utf8(self.options) else { return false };
        let value = |key: &str| options.split(',').find_map(|o| o.strip_prefix(key));
        let port: u16 = value("port=").and_then(|p| p.parse().ok()).unwrap_or(2049);
        let Some(address) = value("addr=").and_then(|a| a.parse::<IpAddr>().ok()) else { return false };
        let ours = |l: &SocketAddr| l.port() == port && (l.ip().is_unspecified() || l.ip() == address);
        self.kind.starts_with(b"nfs") && listeners.iter().any(ours)
    }
}

/// Undoes the octal escapes of proc(5): `\040` is a space.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let octal = text.get(at + 1..at + 4).filter(|_| text[at] == b'\\');
        let value =
            octal.and_then(|o| std::str::from_utf8(o).ok()).and_then(|o| u8::from_str_radix(o, 8).ok());
        out.push(value.unwrap_or(text[at]));
        at += if value.is_some() { 4 } else { 1 };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[u8] = b"\
21 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
40 21 0:50 / /my\\040tree rw,nosuid,nodev - nfs 127.0.0.1:/ rw,vers=3,proto=tcp,port=4711,mountport=4711,addr=127.0.0.1
41 21 0:51 / /shared rw shared:5 master:2 - nfs4 127.0.0.1:/ rw,vers=4.2,port=4711,addr=127.0.0.1
42 21 0:52 / /other rw - nfs 127.0.0.1:/ rw,vers=3,port=4712,addr=127.0.0.1
43 21 0:53 / /far rw - nfs far:/ rw,vers=3,port=4711,addr=10.0.0.1
44 21 0:54 / /home/me/trellis rw,nosuid,nodev - fuse.trellis trellis rw,user_id=1,group_id=1
45 21 0:55 / /home/me/other rw,nosuid,nodev - fuse.sshfs trellis rw,user_id=1,group_id=1
broken line
";

    fn points(listeners: &[&str]) -> Vec<String> {
        let listeners: Vec<SocketAddr> = listeners.iter().map(|l| l.parse().unwrap()).collect();
        own_mounts(TABLE, &listeners).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_connection_is_known_again() {
        assert_eq!(mount_of(TABLE, 54).unwrap(), b"44 0:54 /home/me/trellis trellis");
        assert_eq!((mount_of(TABLE, 55), mount_of(TABLE, 40)), (None, None), "not ours");
        let seen = |control, mount: &str| Connection { number: 7, control, mount: Some(mount.into()) };
        let known = seen(Some(100), "a");
        assert!(known.is(&seen(Some(100), "b")), "unmounted, or seen elsewhere");
        assert!(known.is(&seen(Some(200), "a")), "fusectl was mounted again");
        assert!(!known.is(&seen(Some(200), "b")), "its number has gone to another");
        let gone = Connection { number: 7, control: None, mount: None };
        assert!(!known.is(&gone) && !gone.is(&gone));
    }

    #[test]
    fn our_mounts_are_told_from_others() {
        assert_eq!(points(&["127.0.0.1:4711"]), ["/my tree", "/shared", "/home/me/trellis"]);
        assert_eq!(points(&["0.0.0.0:4711"]), ["/my tree", "/shared", "/far", "/home/me/trellis"]);
        assert_eq!(points(&["127.0.0.1:9"]), ["/home/me/trellis"]);
        assert_eq!(points(&[]), ["/home/me/trellis"]);
    }

    #[test]
    fn mounts_of_other_servers_are_found() {
        let names = |ours: &[Mounted]| {
            others(TABLE, ours).iter().map(|p| p.to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names(&[]), ["/my tree", "/home/me/trellis"]);
        assert_eq!(names(&[Mounted::whole(Path::new("/my tree"))]), ["/home/me/trellis"]);
    }

    #[test]
    fn paths_below_a_mount_are_paths_of_the_tree() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        let base = base.to_str().unwrap();
        let table = format!(
            "1 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
             2 1 0:5 / {base}/tree rw - nfs 127.0.0.1:/ rw,vers=3,port=4711,addr=127.0.0.1\n\
             3 1 0:6 / {base}/lab rw - nfs 127.0.0.1:/ann@lab/data rw,vers=3,port=4711,addr=127.0.0.1\n\
             4 1 0:7 /ann@lab/x {base}/fuse rw - fuse.trellis trellis rw,user_id=1\n\
             5 1 0:8 / {base}/hidden rw - fuse.trellis trellis rw,user_id=1\n\
             6 1 0:9 / {base}/hidden rw - tmpfs tmpfs rw\n\
             7 1 0:10 / {base}/other rw - nfs 127.0.0.1:/ rw,vers=3,port=1,addr=127.0.0.1\n\
             8 1 0:11 / {base}/second rw - fuse.trellis trellis:1a2b3c4d rw,user_id=1\n\
             9 1 0:12 / {base}/bobs rw - fuse.trellis trellis rw,user_id=2\n"
        );
        let listeners = vec!["127.0.0.1:4711".parse().unwrap()];
        let mounts = mounted(table.as_bytes(), &Served { listeners, source: "trellis".into(), uid: 1 });
        std::fs::create_dir(format!("{base}/sub")).unwrap();
        std::os::unix::fs::symlink("../tree/bob@far", format!("{base}/sub/link")).unwrap();
        std::os::unix::fs::symlink(format!("{base}/loop"), format!("{base}/loop")).unwrap();
        for (path, want) in [
            ("tree", Some("/")),
            ("tree/ann@lab/x", Some("/ann@lab/x")),
            ("tree//ann@lab/../y/", Some("/ann@lab/../y")),
            ("lab/z", Some("/ann@lab/data/z")),
            ("lab", Some("/ann@lab/data")),
            ("fuse/q", Some("/ann@lab/x/q")),
            ("sub/link/f", Some("/bob@far/f")),
            ("sub/../tree/a", Some("/a")),
            ("trees/a", None),
            ("hidden/a", None),
            ("other/a", None),
            ("second/a", None),
            ("bobs/a", None),
            ("loop/a", None),
            ("none/a", None),
        ] {
            let found = path_inside(Path::new(&format!("{base}/{path}")), &mounts);
            assert_eq!(found.as_deref(), want.map(str::as_bytes), "{path}");
        }
        assert_eq!(path_inside(Path::new("/"), &mounts), None);
    }

    #[test]
    fn connections_of_this_server_and_user_alone() {
        let table = b"44 21 0:54 / /home/me/trellis rw - fuse.trellis trellis rw,user_id=1,group_id=1\n\
            45 21 0:55 / /home/me/t rw - fuse.trellis trellis:0a rw,user_id=1\n\
            46 21 0:56 / /home/you/t rw - fuse.trellis trellis rw,user_id=2\n\
            47 21 0:57 / /mnt rw - fuse.sshfs trellis rw,user_id=1\n";
        let of = Served { listeners: vec![], source: "trellis".into(), uid: 1 };
        assert_eq!(connections(table, &of), [54]);
    }
}
