//! `cp`: files, links and directories from one tree to another, in pieces.

use super::{Finish, Node, Tree, list_all};
use crate::limits;
use home::{Error, ErrorKind, Result};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// What `cp` was told.
#[derive(Debug, Clone, Copy, Default)]
pub struct Manner {
    /// Directories with all that is in them.
    pub recursive: bool,
    /// Modification times and exact permission bits too.
    pub preserve: bool,
}

/// A copy in progress.
pub struct Copy<'a> {
    /// From here.
    pub from: &'a mut dyn Tree,
    /// To there.
    pub to: &'a mut dyn Tree,
    /// How.
    pub manner: Manner,
    /// What was done so far.
    pub progress: Progress,
    /// Told of everything that failed, with the path below the source; the copy goes on.
    pub complain: &'a mut (dyn FnMut(&[u8], &Error) + Send),
}

impl Copy<'_> {
    /// Copies an object to a name of a directory. Failures below a directory are complaints.
    pub async fn object(&mut self, from: &Node, dir: &Node, name: &[u8]) -> Result<()> {
        self.any(from, dir, name, &mut Vec::new(), 0).await
    }

    async fn any(
        &mut self,
        from: &Node,
        dir: &Node,
        name: &[u8],
        path: &mut Vec<u8>,
        depth: usize,
    ) -> Result<()> {
        self.progress.name(name);
        match from.attr.kind {
            '-' => self.file(from, dir, name).await,
            'l' => {
                let target = self.from.readlink(from).await?;
                self.to.symlink(dir, name, &target).await
            }
            'd' if !self.manner.recursive => {
                Err(Error::new(ErrorKind::IsDir, "is a directory: copy it with -r"))
            }
            'd' if depth >= limits::DEPTH => {
                Err(Error::new(ErrorKind::Loop, "directories are nested too deeply"))
            }
            'd' => Box::pin(self.directory(from, dir, name, path, depth)).await,
            _ => Err(Error::new(ErrorKind::Unsupported, "neither file, directory nor link: not copied")),
        }
    }

    async fn directory(
        &mut self,
        from: &Node,
        dir: &Node,
        name: &[u8],
        path: &mut Vec<u8>,
        depth: usize,
    ) -> Result<()> {
        // Writable while it is filled, whatever it will be at the end.
        let mode = from.attr.mode & 0o1777;
        let made = match self.to.mkdir(dir, name, mode | 0o700).await {
            Err(e) if e.kind == ErrorKind::Exists => self.to.lookup(dir, name).await?,
            made => made?,
        };
        if !made.attr.is_dir() {
            return Err(Error::new(ErrorKind::NotDir, "is in the way: not a directory"));
        }
        for (name, node) in list_all(self.from, from).await? {
            let len = path.len();
            path.push(b'/');
            path.extend_from_slice(&name);
            let done = match node {
                Some(node) => self.any(&node, &made, &name, path, depth + 1).await,
                None => match self.from.lookup(from, &name).await {
                    Ok(node) => self.any(&node, &made, &name, path, depth + 1).await,
                    Err(e) => Err(e),
                },
            };
            if let Err(e) = done {
                (self.complain)(path, &e);
            }
            path.truncate(len);
        }
        let finish = self.finish(from, mode & 0o700 != 0o700);
        self.to.finish(&made, finish).await
    }

    async fn file(&mut self, from: &Node, dir: &Node, name: &[u8]) -> Result<()> {
        let made = self.to.create(dir, name, from.attr.mode & 0o777).await?;
        let mut at = 0;
        loop {
            let (data, eof) = self.from.read(from, at).await?;
            let len = data.len() as u64;
            if len > 0 {
                self.to.write(&made, at, data).await?;
            }
            at += len;
            self.progress.bytes(len);
            if eof || len == 0 {
                break;
            }
        }
        let finish = Finish { commit: true, ..self.finish(from, false) };
        self.to.finish(&made, finish).await
    }

    fn finish(&self, from: &Node, mode: bool) -> Finish {
        Finish {
            mode: Some(from.attr.mode & 0o1777).filter(|_| mode || self.manner.preserve),
            mtime: Some(from.attr.mtime).filter(|_| self.manner.preserve),
            commit: false,
        }
    }
}

/// A line on the terminal that tells how far it is; nothing where nobody looks on.
pub struct Progress {
    shown: bool,
    last: Option<Instant>,
    start: Instant,
    objects: u64,
    bytes: u64,
    name: String,
}

impl Progress {
    /// Looks whether somebody looks on.
    pub fn on_terminal() -> Progress {
        let shown = std::io::stderr().is_terminal();
        Progress { shown, last: None, start: Instant::now(), objects: 0, bytes: 0, name: String::new() }
    }

    fn name(&mut self, name: &[u8]) {
        self.objects += 1;
        if self.shown {
            self.name = crate::show::text(name).chars().take(40).collect();
            self.draw();
        }
    }

    fn bytes(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.draw();
    }

    fn draw(&mut self) {
        if !self.shown || self.last.is_some_and(|at| at.elapsed() < Duration::from_millis(200)) {
            return;
        }
        self.last = Some(Instant::now());
        let rate = (self.bytes as f64 / self.start.elapsed().as_secs_f64().max(0.001)) as u64;
        let (bytes, rate) = (crate::show::size(self.bytes), crate::show::size(rate));
        let text = format!("\r\x1b[K{} objects, {bytes}, {rate}/s  {}", self.objects, self.name);
        // A terminal that takes no more text loses only the progress.
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.last.is_some() {
            let _ = std::io::stderr().write_all(b"\r\x1b[K");
        }
    }
}
