//! Files of this machine: the other end of `cp` and `mv`.

use super::{After, At, Node, Page, Set, Space, Taken, Tree, When, foreign};
use crate::control::proto::Attr;
use crate::limits;
use crate::mounts::{self, Mounted, path_inside};
use bytes::Bytes;
use home::{Error, Result};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT};
use std::ffi::OsStr;
use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// This machine's files. The file in work stays open.
#[derive(Default)]
pub struct Local {
    /// A mount that paths start at; without it they are paths of this machine.
    root: Option<PathBuf>,
    open: Option<Open>,
}

/// A file in work.
struct Open {
    path: PathBuf,
    file: File,
    reads: bool,
    writes: bool,
}

impl Local {
    /// The tree that is mounted at a path.
    pub fn at(root: PathBuf) -> Local {
        Local { root: Some(root), open: None }
    }

    /// The path on this machine. One of a mount does not lead out of it.
    fn here(&self, path: &[u8]) -> Result<PathBuf> {
        let Some(root) = &self.root else { return Ok(PathBuf::from(OsStr::from_bytes(path))) };
        let (mut at, mut depth) = (root.clone(), 0usize);
        for part in path.split(|b| *b == b'/').filter(|p| !p.is_empty() && *p != b".") {
            match part == b".." {
                true => depth = depth.checked_sub(1).ok_or(home::ErrorKind::NotFound)?,
                false => depth += 1,
            }
            at.push(OsStr::from_bytes(part));
        }
        Ok(at)
    }

    /// The file, open for reading or for writing; it may be open for both.
    fn file(&mut self, path: &Path, writes: bool) -> Result<&File> {
        let fits = |o: &Open| o.path == path && if writes { o.writes } else { o.reads };
        let open = match self.open.take().filter(fits) {
            Some(open) => open,
            None => {
                let file = OpenOptions::new().read(true).write(writes).open(path);
                let file = file.map_err(|e| failed(path, &e))?;
                Open { path: path.to_owned(), file, reads: true, writes }
            }
        };
        Ok(&self.open.insert(open).file)
    }
}

fn failed(path: &Path, e: &std::io::Error) -> Error {
    let kind = e.raw_os_error().map_or(home::ErrorKind::Io, |errno| Error::from_errno(errno, "").kind);
    let text = crate::show::text(path.as_os_str().as_bytes());
    Error::new(kind, format!("{text}: {}", home::io_text(e)))
}

fn has_no_offsets(e: &std::io::Error) -> bool {
    e.raw_os_error() == Some(rustix::io::Errno::SPIPE.raw_os_error())
}

fn path_of(node: &Node) -> Result<&Path> {
    match &node.at {
        At::Local(path) => Ok(path),
        _ => Err(foreign()),
    }
}

fn node(path: PathBuf, m: &Metadata) -> Node {
    let kind = match m.file_type() {
        t if t.is_dir() => 'd',
        t if t.is_symlink() => 'l',
        t if t.is_file() => '-',
        t if t.is_fifo() => 'p',
        t if t.is_socket() => 's',
        t if t.is_block_device() => 'b',
        _ => 'c',
    };
    let attr = Attr {
        kind,
        mode: m.mode() & 0o7777,
        nlink: m.nlink() as u32,
        uid: m.uid(),
        gid: m.gid(),
        size: m.size(),
        used: m.blocks() * 512,
        fileid: m.ino(),
        atime: (m.atime(), m.atime_nsec() as u32),
        mtime: (m.mtime(), m.mtime_nsec() as u32),
        ctime: (m.ctime(), m.ctime_nsec() as u32),
    };
    Node { at: At::Local(path), attr }
}

fn look(path: PathBuf) -> Result<Node> {
    let meta = path.symlink_metadata().map_err(|e| failed(&path, &e))?;
    Ok(node(path, &meta))
}

/// The object that a path leads to over all links, by its own path; a pipe that was opened has none.
pub fn follow(path: &Path) -> Result<Node> {
    match (path.canonicalize(), path.metadata()) {
        (Ok(own), _) => look(own),
        (Err(_), Ok(meta)) => Ok(node(path.to_owned(), &meta)),
        (Err(e), Err(_)) => Err(failed(path, &e)),
    }
}

/// Whether two paths are one object.
pub fn same(one: &Path, other: &Path) -> bool {
    let ids = |path: &Path| path.symlink_metadata().map(|m| (m.dev(), m.ino())).ok();
    ids(one).is_some_and(|id| ids(other) == Some(id))
}

/// The file that tells when everything is at its home, in the mount of the tree that holds a path.
fn barrier(path: &Path) -> Option<PathBuf> {
    let full = std::path::absolute(path).ok()?;
    let mut points = mounts::fuse_points().into_iter();
    let point = points.find(|point| path_inside(&full, &[Mounted::whole(point)]).is_some())?;
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Some(point.join(format!(".trellis/sync/{}.{}", std::process::id(), since.as_nanos())))
}

fn timespec(when: Option<When>) -> Timespec {
    match when {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(When::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(When::At(sec, nsec)) => Timespec { tv_sec: sec, tv_nsec: nsec.into() },
    }
}

#[async_trait::async_trait]
impl Tree for Local {
    async fn resolve(&mut self, path: &[u8]) -> Result<Node> {
        look(self.here(path)?)
    }

    async fn lookup(&mut self, dir: &Node, name: &[u8]) -> Result<Node> {
        look(path_of(dir)?.join(OsStr::from_bytes(name)))
    }

    async fn list(&mut self, dir: &Node, _after: Option<After>) -> Result<Page> {
        let dir = path_of(dir)?;
        let fail = |e: std::io::Error| failed(dir, &e);
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(dir).map_err(fail)? {
            let entry = entry.map_err(fail)?;
            entries.push((entry.file_name().into_vec(), look(entry.path()).ok()));
        }
        Ok(Page { entries, next: None })
    }

    async fn readlink(&mut self, link: &Node) -> Result<Vec<u8>> {
        let path = path_of(link)?;
        let target = std::fs::read_link(path).map_err(|e| failed(path, &e))?;
        Ok(target.into_os_string().into_vec())
    }

    async fn read(&mut self, file: &Node, at: u64) -> Result<(Bytes, bool)> {
        let path = path_of(file)?;
        let open = self.file(path, false)?;
        let mut buffer = vec![0; limits::CONTROL_CHUNK];
        let mut len = 0;
        while len < buffer.len() {
            let read = match open.read_at(&mut buffer[len..], at + len as u64) {
                // A pipe or a terminal has no offsets, and may be read for long.
                Err(e) if has_no_offsets(&e) => {
                    tokio::task::block_in_place(|| (&*open).read(&mut buffer[len..]))
                }
                read => read,
            };
            match read.map_err(|e| failed(path, &e))? {
                0 => break,
                n => len += n,
            }
        }
        let eof = len < buffer.len();
        buffer.truncate(len);
        Ok((buffer.into(), eof))
    }

    async fn create(&mut self, dir: &Node, name: &[u8], mode: u32, taken: Taken) -> Result<Node> {
        let path = path_of(dir)?.join(OsStr::from_bytes(name));
        let mut open = OpenOptions::new();
        open.write(true).mode(mode);
        match taken {
            Taken::Fails => open.create_new(true),
            Taken::Empties => open.create(true).truncate(true),
        };
        let file = open.open(&path).map_err(|e| failed(&path, &e))?;
        let meta = file.metadata().map_err(|e| failed(&path, &e))?;
        self.open = Some(Open { path: path.clone(), file, reads: false, writes: true });
        Ok(node(path, &meta))
    }

    async fn mkdir(&mut self, dir: &Node, name: &[u8], mode: u32) -> Result<Node> {
        let path = path_of(dir)?.join(OsStr::from_bytes(name));
        std::fs::DirBuilder::new().mode(mode).create(&path).map_err(|e| failed(&path, &e))?;
        look(path)
    }

    async fn symlink(&mut self, dir: &Node, name: &[u8], target: &[u8]) -> Result<()> {
        let path = path_of(dir)?.join(OsStr::from_bytes(name));
        std::os::unix::fs::symlink(OsStr::from_bytes(target), &path).map_err(|e| failed(&path, &e))
    }

    async fn write(&mut self, file: &Node, at: u64, data: Bytes) -> Result<()> {
        let path = path_of(file)?;
        let mut file = self.file(path, true)?;
        let done = match file.write_all_at(&data, at) {
            Err(e) if has_no_offsets(&e) => file.write_all(&data),
            done => done,
        };
        done.map_err(|e| failed(path, &e))
    }

    async fn set(&mut self, object: &Node, set: Set) -> Result<()> {
        let path = path_of(object)?;
        if let Some(size) = set.size {
            self.file(path, true)?.set_len(size).map_err(|e| failed(path, &e))?;
        }
        self.open = None;
        if set.atime.is_some() || set.mtime.is_some() {
            let times =
                Timestamps { last_access: timespec(set.atime), last_modification: timespec(set.mtime) };
            let done = rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW);
            done.map_err(|e| failed(path, &e.into()))?;
        }
        match set.mode {
            Some(mode) => {
                std::fs::set_permissions(path, Permissions::from_mode(mode)).map_err(|e| failed(path, &e))
            }
            None => Ok(()),
        }
    }

    async fn remove(&mut self, dir: &Node, name: &[u8], is_dir: bool) -> Result<()> {
        let path = path_of(dir)?.join(OsStr::from_bytes(name));
        let done = if is_dir { std::fs::remove_dir(&path) } else { std::fs::remove_file(&path) };
        done.map_err(|e| failed(&path, &e))
    }

    async fn rename(&mut self, from: &Node, name: &[u8], to: &Node, new_name: &[u8]) -> Result<()> {
        let old = path_of(from)?.join(OsStr::from_bytes(name));
        let new = path_of(to)?.join(OsStr::from_bytes(new_name));
        self.open = None;
        std::fs::rename(&old, &new).map_err(|e| failed(&new, &e))
    }

    async fn link(&mut self, object: &Node, dir: &Node, name: &[u8]) -> Result<()> {
        let path = path_of(dir)?.join(OsStr::from_bytes(name));
        std::fs::hard_link(path_of(object)?, &path).map_err(|e| failed(&path, &e))
    }

    async fn space(&mut self, object: &Node) -> Result<Space> {
        let path = path_of(object)?;
        let fs = rustix::fs::statvfs(path).map_err(|e| failed(path, &e.into()))?;
        let bytes = |blocks: u64| blocks.saturating_mul(fs.f_frsize);
        Ok(Space {
            total: bytes(fs.f_blocks),
            free: bytes(fs.f_bfree),
            available: bytes(fs.f_bavail),
            files: fs.f_files,
            files_free: fs.f_ffree,
        })
    }

    async fn sync(&mut self, object: &Node) -> Result<()> {
        let path = path_of(object)?;
        if let Some(done) = crate::attach::record::sync(path).await {
            return done;
        }
        let file = File::open(path).map_err(|e| failed(path, &e))?;
        rustix::fs::syncfs(&file).map_err(|e| failed(path, &e.into()))?;
        match barrier(path) {
            // What the kernel has passed on is on its way to the homes.
            Some(barrier) => {
                let reading = tokio::task::spawn_blocking(move || {
                    std::fs::read(&barrier).map(drop).map_err(|e| failed(&barrier, &e))
                });
                reading.await.map_err(|e| Error::new(home::ErrorKind::Io, format!("nobody waits: {e}")))?
            }
            None => Ok(()),
        }
    }

    async fn another(&mut self) -> Result<Box<dyn Tree>> {
        Ok(Box::new(Local { root: self.root.clone(), open: None }))
    }
}
