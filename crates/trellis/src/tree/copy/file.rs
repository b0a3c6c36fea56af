//! One file of a copy: under a temporary name until it is whole.

use super::{Shared, Trouble, in_the_way, note::same_time};
use crate::control::proto::Attr;
use crate::limits;
use crate::tree::{Node, Set, Taken, Tree, When, same};
use bytes::Bytes;
use home::{Error, ErrorKind};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// How the temporary names begin.
pub const PART: &[u8] = PART_TEXT.as_bytes();
/// The same, as messages tell it.
pub const PART_TEXT: &str = ".trellis-part.";

/// A file to copy.
pub struct Job {
    /// Which of the source trees it is in.
    pub source: usize,
    /// The file.
    pub from: Node,
    /// The directory that it goes to.
    pub dir: Node,
    /// Its name there.
    pub name: Vec<u8>,
    /// Its path for a person and for the note.
    pub path: Vec<u8>,
    /// The path of the copy for a person.
    pub to: Vec<u8>,
    /// What has the name now.
    pub there: Option<Node>,
    /// What an interrupted copy has left of it.
    pub part: Option<Node>,
}

/// Copies file after file over ways of its own.
pub struct Worker {
    /// The source trees.
    pub from: Vec<Box<dyn Tree>>,
    /// The target tree.
    pub to: Box<dyn Tree>,
    /// What all workers share.
    pub shared: Arc<Shared>,
}

/// The temporary name of a copy: the same for the same version of a source.
pub fn part_name(name: &[u8], from: &Attr) -> Vec<u8> {
    let mut hasher = DefaultHasher::new();
    (from.size, from.mtime).hash(&mut hasher);
    [PART, format!("{:016x}.{:016x}", of_name(name), hasher.finish()).as_bytes()].concat()
}

/// How the temporary names of all versions of a name begin.
pub fn parts_of(name: &[u8]) -> Vec<u8> {
    [PART, format!("{:016x}.", of_name(name)).as_bytes()].concat()
}

fn of_name(name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

impl Job {
    /// What failed at the target.
    fn failed(&self, why: Error) -> Trouble {
        Trouble::at(&self.to, why)
    }
}

/// Nobody may write to what has the name: what replaces it is a new file, as with cp(1) -f.
fn is_protected(there: &Node) -> bool {
    there.attr.is_file() && there.attr.mode & 0o222 == 0
}

impl Worker {
    /// Copies a file, unless it is there already.
    pub async fn copy(&mut self, job: &Job) -> Result<(), Trouble> {
        if let Some(there) = &job.there {
            match there.attr.kind {
                'd' => return Err(job.failed(in_the_way())),
                _ if same(&job.from, there) => {
                    return Err(Error::new(ErrorKind::Invalid, "source and target are the same file").into());
                }
                '-' | 'l' => {}
                _ => return self.feed(job).await,
            }
            if self.is_there(job, there) {
                self.shared.progress().there(job.from.attr.size);
                self.shared.progress().done();
                return Ok(());
            }
            if is_protected(there) && !self.shared.manner.force && !self.is_ours(job, there) {
                let text = "is write-protected: say -f to replace it";
                return Err(job.failed(Error::new(ErrorKind::Access, text)));
            }
        }
        let part = part_name(&job.name, &job.from.attr);
        let begun = self.begun(job).await?;
        let at = begun.as_ref().map_or(0, |old| old.attr.size);
        // Read before anything is made: what cannot be read leaves no trace.
        let first = self.from[job.source].read(&job.from, at).await?;
        let made = match begun {
            Some(old) => old,
            None => match self.create(job, &part).await {
                Err(e) if self.may_write_over(job, &e) => return self.write_over(job, first).await,
                made => made.map_err(|e| job.failed(e))?,
            },
        };
        let size = match self.pour(job, &made, at, first).await {
            Err(e) if matches!(e.why.kind, ErrorKind::NoSpace | ErrorKind::Quota | ErrorKind::TooBig) => {
                // Nobody would find under its hidden name what takes the last room. That it did not fit is what matters.
                let _ = self.to.remove(&job.dir, &part, false).await;
                return Err(e);
            }
            poured => poured?,
        };
        let (set, mtime) = self.last_touch(job, size, at > 0);
        if self.mode(job) & 0o222 == 0 {
            // Before it has its name: where this is killed then, the next run may replace it all the same.
            self.shared.announce(&job.path, &job.from.attr, (size, mtime));
        }
        self.to.set(&made, set).await.map_err(|e| job.failed(e))?;
        if let Err(e) = self.to.rename(&job.dir, &part, &job.dir, &job.name).await {
            if !self.may_write_over(job, &e) {
                return Err(job.failed(e));
            }
            // What has the name is another user's, in a directory where only he may replace it.
            self.to.remove(&job.dir, &part, false).await.map_err(|e| job.failed(e))?;
            let first = self.from[job.source].read(&job.from, 0).await?;
            return self.write_over(job, first).await;
        }
        self.shared.note(&job.path, &job.from.attr, (size, mtime));
        self.shared.progress().done();
        Ok(())
    }

    async fn create(&mut self, job: &Job, part: &[u8]) -> home::Result<Node> {
        let mode = self.mode(job) | 0o600;
        match self.to.create(&job.dir, part, mode, Taken::Empties).await {
            Err(e) if matches!(e.kind, ErrorKind::Access | ErrorKind::Perm) => {
                // An earlier run may have left it with the mode that it was to have in the end.
                self.to.remove(&job.dir, part, false).await.map_err(|_| e)?;
                self.to.create(&job.dir, part, mode, Taken::Empties).await
            }
            made => made,
        }
    }

    /// What moves is skipped only by the note, which knows that the source is not the copy itself.
    fn is_there(&self, job: &Job, there: &Node) -> bool {
        let (from, to) = (&job.from.attr, &there.attr);
        let manner = &self.shared.manner;
        let quick = manner.preserve && !manner.moves;
        to.is_file()
            && (quick && from.size == to.size && same_time(from.mtime, to.mtime)
                || self.shared.note_of(from).is_some_and(|n| n.holds(&job.path, from, to)))
    }

    /// Whether a protected file is what an interrupted copy has put there, and had no time to note as whole.
    fn is_ours(&self, job: &Job, there: &Node) -> bool {
        let note = self.shared.note_of(&job.from.attr);
        note.is_some_and(|n| n.made(&job.path, &job.from.attr, &there.attr))
    }

    /// What an interrupted copy left and can be gone on with.
    async fn begun(&mut self, job: &Job) -> home::Result<Option<Node>> {
        let Some(old) = job.part.as_ref().filter(|p| p.attr.is_file()) else { return Ok(None) };
        if old.attr.mode & 0o600 != 0o600 {
            // It was whole but for its name.
            self.to.set(old, Set { mode: Some(old.attr.mode | 0o600), ..Set::default() }).await?;
        }
        if old.attr.size > job.from.attr.size || !self.agrees(job, old).await? {
            return Ok(None);
        }
        self.shared.progress().there(old.attr.size);
        Ok(Some(old.clone()))
    }

    /// Whether the last bytes of a part are those of the source.
    async fn agrees(&mut self, job: &Job, part: &Node) -> home::Result<bool> {
        let Some(last) = part.attr.size.checked_sub(1) else { return Ok(true) };
        let begin = last - last % limits::CONTROL_CHUNK as u64;
        let (ours, _) = self.to.read(part, begin).await?;
        let (theirs, _) = self.from[job.source].read(&job.from, begin).await?;
        Ok(ours.len() as u64 == part.attr.size - begin && theirs.starts_with(&ours))
    }

    /// Copies the bytes from an offset on, of which the first are given; answers the size. While a piece is written
    /// the next one is read.
    async fn pour(
        &mut self,
        job: &Job,
        made: &Node,
        from: u64,
        first: (Bytes, bool),
    ) -> Result<u64, Trouble> {
        let source = &mut self.from[job.source];
        let sparse = job.from.attr.used < job.from.attr.size;
        let (mut at, mut written) = (from, from);
        let (mut data, mut eof) = first;
        loop {
            let next = at + data.len() as u64;
            let last = eof || data.is_empty();
            let write = write(&mut *self.to, made, at, &data, sparse);
            let read = async {
                match last {
                    true => Ok((Bytes::new(), true)),
                    false => source.read(&job.from, next).await,
                }
            };
            let (wrote, read) = tokio::join!(write, read);
            written = wrote.map_err(|e| job.failed(e))?.max(written);
            self.shared.progress().bytes(&job.name, next - at);
            (at, (data, eof)) = (next, read?);
            if last {
                break;
            }
        }
        if written < at {
            let set = Set { size: Some(at), ..Set::default() };
            self.to.set(made, set).await.map_err(|e| job.failed(e))?;
        }
        Ok(at)
    }

    fn mode(&self, job: &Job) -> u32 {
        let manner = &self.shared.manner;
        match &job.there {
            _ if manner.preserve => job.from.attr.mode & 0o1777,
            Some(there) if there.attr.is_file() && !is_protected(there) => there.attr.mode & 0o777,
            _ => job.from.attr.mode & 0o777 & !manner.umask,
        }
    }

    /// What is set at the end, and the time that the copy has then.
    fn last_touch(&self, job: &Job, size: u64, resumed: bool) -> (Set, (i64, u32)) {
        let manner = &self.shared.manner;
        let mode = self.mode(job);
        let exact = manner.preserve || job.there.is_some() || resumed || mode & 0o600 != 0o600;
        let mtime = if manner.preserve { job.from.attr.mtime } else { now() };
        // Where it is noted, the time has to be known; a part that is continued would keep that of its first half.
        let timed = manner.preserve || self.shared.note.is_some();
        let set = Set {
            mode: Some(mode).filter(|_| exact),
            mtime: Some(When::At(mtime.0, mtime.1)).filter(|_| timed),
            commit: size > 0,
            ..Set::default()
        };
        (set, mtime)
    }

    /// Whether a file that may not be replaced is to be written over, as cp(1) does it: mv(1) does not.
    fn may_write_over(&self, job: &Job, e: &Error) -> bool {
        let refused = matches!(e.kind, ErrorKind::Access | ErrorKind::Perm);
        // What cannot be read a second time is not begun anew.
        refused
            && job.from.attr.is_file()
            && !self.shared.manner.moves
            && job.there.as_ref().is_some_and(|there| there.attr.is_file())
    }

    /// Writes over what has the name, of which nothing is left from here on: that is told where the new content does not
    /// become whole.
    async fn write_over(&mut self, job: &Job, first: (Bytes, bool)) -> Result<(), Trouble> {
        let Some(there) = &job.there else { return Err(job.failed(ErrorKind::NotFound.into())) };
        // Fails, with nothing changed, where the file may not be written to.
        self.to.set(there, Set { size: Some(0), ..Set::default() }).await.map_err(|e| job.failed(e))?;
        let size = self.pour(job, there, 0, first).await.map_err(|Trouble { target, why }| {
            let text = "was written over in its place, because its directory takes no new file, and is not whole: run the \
                        same command again";
            let why = Error::new(why.kind, format!("{}: {text}", why.detail));
            Trouble { target, why }
        })?;
        let manner = &self.shared.manner;
        let mtime = job.from.attr.mtime;
        let set = Set {
            mode: Some(self.mode(job)).filter(|mode| manner.preserve && *mode != there.attr.mode),
            mtime: Some(When::At(mtime.0, mtime.1)).filter(|_| manner.preserve),
            commit: size > 0,
            ..Set::default()
        };
        self.to.set(there, set).await.map_err(|e| job.failed(e))?;
        if manner.preserve {
            self.shared.note(&job.path, &job.from.attr, (size, mtime));
        }
        self.shared.progress().done();
        Ok(())
    }

    /// Pipes, terminals and the like are written to as they are.
    async fn feed(&mut self, job: &Job) -> Result<(), Trouble> {
        let made = self.to.create(&job.dir, &job.name, 0o600, Taken::Empties).await;
        let made = made.map_err(|e| job.failed(e))?;
        let mut at = 0;
        loop {
            let (data, eof) = self.from[job.source].read(&job.from, at).await?;
            let last = eof || data.is_empty();
            let len = data.len() as u64;
            self.to.write(&made, at, data).await.map_err(|e| job.failed(e))?;
            at += len;
            if last {
                self.shared.progress().done();
                return Ok(());
            }
        }
    }
}

fn now() -> (i64, u32) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (since.as_secs() as i64, since.subsec_nanos())
}

/// Writes bytes, of a file with holes without the blocks of zeros; answers the end of what was written.
async fn write(to: &mut dyn Tree, file: &Node, at: u64, data: &Bytes, sparse: bool) -> home::Result<u64> {
    if !sparse {
        if !data.is_empty() {
            to.write(file, at, data.clone()).await?;
        }
        return Ok(at + data.len() as u64);
    }
    let mut end = 0;
    for (start, stop) in runs(data) {
        to.write(file, at + start as u64, data.slice(start..stop)).await?;
        end = at + stop as u64;
    }
    Ok(end)
}

/// Ranges of blocks that are not all zeros.
fn runs(data: &[u8]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (n, block) in data.chunks(limits::COPY_BLOCK).enumerate() {
        if block.iter().all(|b| *b == 0) {
            continue;
        }
        let start = n * limits::COPY_BLOCK;
        match runs.last_mut() {
            Some(last) if last.1 == start => last.1 += block.len(),
            _ => runs.push((start, start + block.len())),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zeros_are_left_out_block_by_block() {
        let block = limits::COPY_BLOCK;
        let mut data = vec![0; 4 * block + 10];
        assert!(runs(&data).is_empty());
        data[block] = 1;
        data[3 * block - 1] = 1;
        data[4 * block + 9] = 1;
        assert_eq!(runs(&data), [(block, 3 * block), (4 * block, 4 * block + 10)]);
    }

    #[test]
    fn a_part_belongs_to_one_version_of_one_name() {
        let attr = |size| Attr { size, ..Attr::default() };
        let one = part_name(b"x", &attr(1));
        assert_eq!(one, part_name(b"x", &attr(1)));
        assert!(one != part_name(b"x", &attr(2)) && one.starts_with(&parts_of(b"x")));
        assert!(!part_name(b"y", &attr(1)).starts_with(&parts_of(b"x")));
    }
}
