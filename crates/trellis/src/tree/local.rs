//! Files of this machine: the other end of `cp`.

use super::{After, At, Finish, Node, Page, Tree, foreign};
use crate::control::proto::Attr;
use crate::limits;
use bytes::Bytes;
use home::{Error, Result};
use std::ffi::OsStr;
use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// This machine's files. The file in work stays open.
#[derive(Default)]
pub struct Local {
    open: Option<(PathBuf, File)>,
}

impl Local {
    fn reading(&mut self, path: &Path) -> Result<&File> {
        let fresh = match self.open.take() {
            Some((open, file)) if open == path => (open, file),
            _ => (path.to_owned(), File::open(path).map_err(|e| failed(path, &e))?),
        };
        Ok(&self.open.insert(fresh).1)
    }

    fn written(&self, path: &Path) -> Result<&File> {
        match &self.open {
            Some((open, file)) if open == path => Ok(file),
            _ => Err(foreign()),
        }
    }
}

fn failed(path: &Path, e: &std::io::Error) -> Error {
    let kind = e.raw_os_error().map_or(home::ErrorKind::Io, |errno| Error::from_errno(errno, "").kind);
    let text = crate::show::text(path.as_os_str().as_bytes());
    Error::new(kind, format!("{text}: {e}"))
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

/// The object that a path leads to over all links.
pub fn follow(path: PathBuf) -> Result<Node> {
    let meta = path.metadata().map_err(|e| failed(&path, &e))?;
    Ok(node(path, &meta))
}

fn moment((sec, nsec): (i64, u32)) -> SystemTime {
    let whole = Duration::from_secs(sec.unsigned_abs());
    let base = if sec < 0 { UNIX_EPOCH - whole } else { UNIX_EPOCH + whole };
    base + Duration::from_nanos(nsec.into())
}

#[async_trait::async_trait]
impl Tree for Local {
    async fn resolve(&mut self, path: &[u8]) -> Result<Node> {
        look(PathBuf::from(OsStr::from_bytes(path)))
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
        let open = self.reading(path)?;
        let mut buffer = vec![0; limits::CONTROL_CHUNK];
        let mut len = 0;
        while len < buffer.len() {
            match open.read_at(&mut buffer[len..], at + len as u64).map_err(|e| failed(path, &e))? {
                0 => break,
                n => len += n,
            }
        }
        let eof = len < buffer.len();
        buffer.truncate(len);
        Ok((buffer.into(), eof))
    }

    async fn create(&mut self, dir: &Node, name: &[u8], mode: u32) -> Result<Node> {
        let path = path_of(dir)?.join(OsStr::from_bytes(name));
        let mut open = OpenOptions::new();
        let file = open.write(true).create(true).truncate(true).mode(mode).open(&path);
        let file = file.map_err(|e| failed(&path, &e))?;
        let meta = file.metadata().map_err(|e| failed(&path, &e))?;
        self.open = Some((path.clone(), file));
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
        self.written(path)?.write_all_at(&data, at).map_err(|e| failed(path, &e))
    }

    async fn finish(&mut self, object: &Node, what: Finish) -> Result<()> {
        let path = path_of(object)?;
        let fail = |e: std::io::Error| failed(path, &e);
        if let Some(mtime) = what.mtime {
            let file = match self.written(path) {
                Ok(file) => file.try_clone(),
                Err(_) => File::open(path),
            };
            file.and_then(|f| f.set_modified(moment(mtime))).map_err(fail)?;
        }
        if let Some(mode) = what.mode {
            std::fs::set_permissions(path, Permissions::from_mode(mode)).map_err(fail)?;
        }
        self.open = None;
        Ok(())
    }
}
