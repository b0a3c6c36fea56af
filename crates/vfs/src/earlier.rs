//! What a file had before it was found changed at the home, for questions that name it: in chunks, looked through when
//! they are needed. What the home says of them is verified, so that nothing here has to be right.

use crate::data::{DataLog, Stamp, When};
use crate::limits;
use home::sparse::{self, AROUND};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// Bytes of a file that are looked through at once.
const PART: u64 = 1 << 20;

/// A chunk of what a file had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// Its offset.
    pub at: u64,
    /// Its length in bytes.
    pub len: u32,
    /// Its name: [`sparse::name`].
    pub name: u64,
}

/// Chunks of files.
#[derive(Debug, Default)]
pub struct Chunks(Mutex<HashMap<u64, File>>);

#[derive(Debug, Default)]
struct File {
    stamp: Stamp,
    parts: HashMap<u64, Arc<Vec<Chunk>>>,
    /// How much further bytes stood before than they do now, where that was last known.
    shift: i64,
    /// The last answer had nothing that was not known.
    sure: bool,
    /// Answers one after the other in which little was known.
    useless: u32,
}

impl Chunks {
    /// Chunks that may be among these bytes of a file as it is now; none where nothing is known, or it was of no use.
    pub fn near(&self, data: &DataLog, id: u64, at: u64, len: u64) -> Vec<Chunk> {
        let (stamp, end) = data.stamp(id, When::Earlier);
        if stamp.is_none() {
            self.0.lock().remove(&id);
            return Vec::new();
        }
        let (shift, margin) = {
            let mut files = self.0.lock();
            if files.len() >= limits::EARLIER_FILES && !files.contains_key(&id) {
                files.clear();
            }
            let file = files.entry(id).or_default();
            if file.stamp != stamp || file.parts.len() >= limits::EARLIER_PARTS {
                *file = File { stamp, ..File::default() };
            }
            if file.useless >= limits::EARLIER_USELESS {
                return Vec::new();
            }
            (file.shift, if file.sure { limits::EARLIER_NEAR } else { limits::EARLIER_AROUND })
        };
        let there = at.saturating_add_signed(shift);
        let (from, to) = (there.saturating_sub(margin), there.saturating_add(len + margin).min(end));
        let parts = (from / PART..to.div_ceil(PART)).flat_map(|part| self.part(data, id, part).to_vec());
        parts.filter(|chunk| chunk.at < to && chunk.at + u64::from(chunk.len) > from).collect()
    }

    /// The chunks that begin in a part of what a file had.
    fn part(&self, data: &DataLog, id: u64, part: u64) -> Arc<Vec<Chunk>> {
        if let Some(known) = self.0.lock().get(&id).and_then(|file| file.parts.get(&part)) {
            return known.clone();
        }
        let from = part * PART;
        let start = from.saturating_sub(AROUND as u64);
        let wanted = (from - start + PART) as usize + AROUND;
        let starts = [start, from].map(|start| (start, data.clean(id, start, wanted, When::Earlier)));
        let found = starts.into_iter().find(|(_, bytes)| !bytes.is_empty());
        let (start, bytes) = found.unwrap_or_default();
        let all = sparse::chunks(&bytes).map(|chunk| Chunk {
            at: start + chunk.start as u64,
            len: chunk.len() as u32,
            name: sparse::name(&bytes[chunk]),
        });
        let chunks =
            Arc::new(all.filter(|chunk| (from..from + PART).contains(&chunk.at)).collect::<Vec<_>>());
        if let Some(file) = self.0.lock().get_mut(&id) {
            file.parts.insert(part, chunks.clone());
        }
        chunks
    }

    /// Of `len` bytes so many were known, the last of them as much further on before as told.
    pub fn heard(&self, id: u64, len: u64, known: u64, shift: Option<i64>) {
        if let Some(file) = self.0.lock().get_mut(&id) {
            file.shift = shift.unwrap_or(file.shift);
            file.sure = known == len;
            file.useless = if known < len / 8 { file.useless + 1 } else { 0 };
        }
    }
}
