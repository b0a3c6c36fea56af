//! What was written to a disk, in order, as Linux's `dm-log-writes` logs it (Documentation/admin-guide/device-mapper/log-writes.rst):
//! what a disk may hold that lost its power is what any number of its first entries left.

use anyhow::{Context, Result, ensure};
use rustix::fs::FallocateFlags;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

const MAGIC: u64 = 0x006a_7366_7773_6872;
const DISCARD: u64 = 4;
const MARK: u64 = 8;
/// Sector, sectors, flags, and bytes of a mark's text, which follows: little-endian, 8 bytes each.
const HEADER: usize = 32;

/// A log.
pub struct Log {
    file: File,
    entries: Vec<Entry>,
}

/// Bytes on the disk, and where the log has them.
struct Entry {
    at: u64,
    len: u64,
    flags: u64,
    logged_at: u64,
    mark: String,
}

impl Log {
    /// Reads a log's headers.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| path.display().to_string())?;
        let [magic, version, count, sector] = words(&file, 0)?;
        // The last one is a word of 4 bytes.
        let sector = sector & 0xffff_ffff;
        ensure!(magic == MAGIC && version == 1 && sector >= 512, "{} is no log of writes", path.display());
        let mut entries = Vec::new();
        let mut next = sector;
        for _ in 0..count {
            let [at, len, flags, text] = words(&file, next)?;
            let mut mark = vec![0; if flags & MARK == 0 { 0 } else { text as usize }];
            file.read_exact_at(&mut mark, next + HEADER as u64)?;
            let (at, len) = (at * sector, len * sector);
            let mark = String::from_utf8_lossy(&mark).trim_end_matches('\0').to_owned();
            entries.push(Entry { at, len, flags, logged_at: next + sector, mark });
            next += sector + if flags & DISCARD == 0 { len } else { 0 };
        }
        Ok(Self { file, entries })
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The marks among the first `count` entries, in order, each with the number of entries before it.
    pub fn marks(&self, count: usize) -> impl DoubleEndedIterator<Item = (usize, &str)> {
        let entries = self.entries[..count].iter().enumerate();
        entries.filter(|(_, e)| e.flags & MARK != 0).map(|(n, e)| (n, e.mark.as_str()))
    }

    /// Does to a disk what the entries from one number to before another say.
    pub fn replay(&self, disk: &File, entries: std::ops::Range<usize>) -> Result<()> {
        let writes = self.entries[entries].iter().filter(|e| e.len > 0);
        for e in writes {
            if e.flags & DISCARD != 0 {
                let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(disk, hole, e.at, e.len)?;
                continue;
            }
            let mut bytes = vec![0; e.len as usize];
            self.file.read_exact_at(&mut bytes, e.logged_at)?;
            disk.write_all_at(&bytes, e.at)?;
        }
        Ok(())
    }
}

fn words(file: &File, at: u64) -> Result<[u64; 4]> {
    let mut bytes = [0; HEADER];
    file.read_exact_at(&mut bytes, at)?;
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    Ok(words)
}
