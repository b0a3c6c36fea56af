//! Which of several records left what the home has. Where a home tells whole seconds, files of one length that are saved
//! again and again bear the same size and time: only their bytes tell them apart.

use crate::journal::Stored;
use crate::limits;
use crate::volume::Volume;
use hashbrown::{HashMap, HashSet};
use home::{Attr, HomePath, Kind, Loc, New, Op, Piece, Result};

/// What the home has at a place, and a record that may have left it there.
pub struct Mark {
    /// The record.
    pub seq: u64,
    /// The object that it leaves there.
    pub object: u64,
    /// Where.
    pub place: HomePath,
    /// What is there, with the size and time of the object after the record.
    pub there: Attr,
}

/// The bytes of an object that unsent records tell. `None`: what the home had before them.
type Known = Vec<Option<u8>>;

/// By object, the unsent records that make it or change its content, in order.
type Records = HashMap<u64, Vec<(u64, Op<u64, Stored>)>>;

impl Volume {
    /// The records among them that did not leave what is there: it has other bytes.
    pub async fn belied(&self, marks: &[Mark]) -> Result<HashSet<u64>> {
        let mut by_place: HashMap<&HomePath, Vec<&Mark>> = HashMap::new();
        let short = |m: &&Mark| m.there.kind == Kind::File && m.there.size <= limits::COMPARED_MAX;
        for mark in marks.iter().filter(short) {
            by_place.entry(&mark.place).or_default().push(mark);
        }
        let records = self.records_of(marks.iter().map(|m| m.object).collect());
        let mut belied = HashSet::new();
        for (place, marks) in by_place {
            let Some(theirs) = self.content_at(place, marks[0].there.size).await? else { continue };
            for mark in marks {
                let until =
                    records.get(&mark.object).into_iter().flatten().take_while(|(seq, _)| *seq <= mark.seq);
                let ours = self.bytes_after(until.map(|(_, op)| op), theirs.len());
                if ours.iter().zip(&theirs).any(|(ours, theirs)| ours.is_some_and(|ours| ours != *theirs)) {
                    belied.insert(mark.seq);
                }
            }
        }
        Ok(belied)
    }

    fn records_of(&self, objects: HashSet<u64>) -> Records {
        let tree = self.tree.lock();
        let mut records = Records::new();
        for (seq, p) in tree.queue.iter().filter(|(_, p)| objects.contains(&p.change.object)) {
            if matches!(p.change.op, Op::Create { new: New::File, .. } | Op::Write { .. }) {
                records.entry(p.change.object).or_default().push((seq, p.change.op.clone()));
            }
        }
        records
    }

    /// What these records leave of the first `len` bytes.
    fn bytes_after<'a>(&self, records: impl Iterator<Item = &'a Op<u64, Stored>>, len: usize) -> Known {
        let mut known = vec![None; len];
        for op in records {
            let Op::Write { pieces, .. } = op else {
                known = vec![Some(0); len];
                continue;
            };
            for piece in pieces {
                match piece {
                    Piece::Truncate(size) => known[len.min(*size as usize)..].fill(Some(0)),
                    Piece::Data(at, stored) => {
                        let from = len.min(*at as usize);
                        let bytes = match stored {
                            Stored::Inline(bytes) => bytes.clone(),
                            // What this disk does not give back tells nothing.
                            Stored::Extent(extent) => self.data.read_extent(extent).unwrap_or_default(),
                        };
                        known[from..].iter_mut().zip(&bytes).for_each(|(known, b)| *known = Some(*b));
                    }
                }
            }
        }
        known
    }

    /// The first `size` bytes of a file at the home; `None` if it may not be read.
    async fn content_at(&self, place: &HomePath, size: u64) -> Result<Option<Vec<u8>>> {
        let at = Loc { path: place.clone(), id: None };
        let mut content: Vec<u8> = Vec::new();
        while (content.len() as u64) < size {
            let rest = size - content.len() as u64;
            match self.home.read(&at, content.len() as u64, rest.min(limits::FETCH_CHUNK) as u32).await {
                Ok(chunk) if chunk.data.is_empty() => break,
                Ok(chunk) => content.extend_from_slice(&chunk.data),
                Err(e) if crate::fetch::is_out_of_reach(&e) => return Err(e),
                Err(_) => return Ok(None),
            }
        }
        Ok(Some(content))
    }
}
