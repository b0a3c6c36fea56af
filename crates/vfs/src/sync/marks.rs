//! Which of several records left what the home has. Where a home tells whole seconds, files of one length that are saved
//! again and again bear the same size and time: only their bytes tell them apart.

use super::begun::{gone_over, overlap};
use super::content::{Content, Slice};
use crate::journal::Change;
use crate::limits;
use crate::volume::Volume;
use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use hashbrown::{HashMap, HashSet};
use home::{Attr, HomePath, Kind, Loc, New, Op, Piece, Result};
use std::collections::BTreeMap;
use std::ops::Range;

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

/// By object, the unsent records that make it or change its content, in order.
type Records = HashMap<u64, Vec<(u64, Change)>>;

impl Volume {
    /// The places that have other bytes than a record left there, with the record.
    pub async fn belied(&self, marks: Vec<Mark>) -> Result<HashSet<(HomePath, u64)>> {
        let records = self.records_of(marks.iter().map(|m| m.object).collect());
        let has_content = |m: &Mark| matches!(m.there.kind, Kind::File | Kind::Symlink);
        let mut by_place: BTreeMap<HomePath, (Attr, Vec<(u64, u64)>)> = BTreeMap::new();
        for mark in marks.into_iter().filter(has_content) {
            let (_, marks) = by_place.entry(mark.place).or_insert((mark.there, vec![]));
            marks.push((mark.seq, mark.object));
        }
        // Compared as they come: all contents together may not fit in memory.
        let compared = by_place.into_iter().map(|(place, (there, marks))| {
            let records = &records;
            async move {
                let belied = match there.kind {
                    Kind::Symlink => self.links_belied_at(&place, marks, records).await?,
                    _ => self.belied_at(&place, there.size, marks, records).await?,
                };
                Ok::<_, home::Error>(belied.into_iter().map(|seq| (place.clone(), seq)).collect::<Vec<_>>())
            }
        });
        let belied: Vec<_> =
            stream::iter(compared).buffer_unordered(limits::COMPARED_AT_ONCE).try_collect().await?;
        Ok(belied.into_iter().flatten().collect())
    }

    /// The records among these, with their objects, that did not leave such a symbolic link at one place.
    async fn links_belied_at(
        &self,
        place: &HomePath,
        marks: Vec<(u64, u64)>,
        records: &Records,
    ) -> Result<Vec<u64>> {
        let theirs = match self.home.readlink(&Loc { path: place.clone(), id: None }).await {
            Ok(target) => target,
            Err(e) if crate::fetch::is_out_of_reach(&e) => return Err(e),
            Err(_) => return Ok(vec![]),
        };
        let points_elsewhere = |change: &Change| match &change.op {
            Op::Create { new: New::Symlink(ours), .. } => *ours != theirs,
            _ => false,
        };
        let belied = marks.into_iter().filter(|(_, object)| {
            records.get(object).into_iter().flatten().any(|(_, change)| points_elsewhere(change))
        });
        Ok(belied.map(|(seq, _)| seq).collect())
    }

    /// The same for files of `size` bytes. Where that is too much to compare, none is believed: what is done again is found to
    /// be there.
    async fn belied_at(
        &self,
        place: &HomePath,
        size: u64,
        marks: Vec<(u64, u64)>,
        records: &Records,
    ) -> Result<Vec<u64>> {
        let (mut belied, mut at) = (Vec::new(), 0);
        let Some(mut left) = what_is_laid(&marks, size, records) else {
            return Ok(marks.into_iter().map(|(seq, _)| seq).collect());
        };
        while at < size && !left.is_empty() {
            let next = at..size.min(at + limits::FETCH_CHUNK);
            let touches = |(_, pieces): &Laid| pieces.iter().any(|piece| overlap(&gone_over(piece), &next));
            if !left.iter().any(touches) {
                at = next.end;
                continue;
            }
            let theirs = match self.read_at(place, next).await? {
                Ok(theirs) if theirs.is_empty() => return Ok(belied.into_iter().chain(seqs(left)).collect()),
                Ok(theirs) => theirs,
                Err(_) => return Ok(belied),
            };
            let read = |slice: &Slice| self.bytes_of(slice).ok();
            let (others, same) =
                left.into_iter().partition(|(_, pieces)| would_change(pieces, at, &theirs, read));
            belied.extend(seqs(others));
            left = same;
            at += theirs.len() as u64;
        }
        Ok(belied)
    }

    fn records_of(&self, objects: HashSet<u64>) -> Records {
        let tree = self.tree.lock();
        let mut records = Records::new();
        for (seq, p) in tree.queue.iter().filter(|(_, p)| objects.contains(&p.change.object)) {
            if matches!(p.change.op, Op::Create { .. } | Op::Write { .. }) {
                records.entry(p.change.object).or_default().push((seq, p.change.clone()));
            }
        }
        records
    }

    /// Some of these bytes of a file at the home, the first ones; the inner error where it may not be read.
    pub(super) async fn read_at(&self, place: &HomePath, range: Range<u64>) -> Result<Result<Bytes>> {
        let there = Loc { path: place.clone(), id: None };
        match self.home.read(&there, range.start, (range.end - range.start) as u32).await {
            Err(e) if crate::fetch::is_out_of_reach(&e) => Err(e),
            read => Ok(read.map(|chunk| chunk.data)),
        }
    }
}

/// A record, and what it and those before it come to.
type Laid = (u64, Vec<Piece<Slice>>);

fn seqs(marks: Vec<Laid>) -> impl Iterator<Item = u64> {
    marks.into_iter().map(|(seq, _)| seq)
}

/// What the records of marks come to; `None` where that is too much to compare with `size` bytes.
fn what_is_laid(marks: &[(u64, u64)], size: u64, records: &Records) -> Option<Vec<Laid>> {
    let (mut all, mut pieces, mut work) = (Vec::new(), 0, 0u64);
    for (seq, object) in marks {
        let until = records.get(object).into_iter().flatten().take_while(|(n, _)| n <= seq);
        let laid = laid(until.map(|(_, change)| change));
        pieces += laid.len();
        for range in laid.iter().map(gone_over) {
            work = work.saturating_add(range.end.min(size).saturating_sub(range.start));
        }
        if pieces > limits::COMPARED_PIECES || work > limits::COMPARED_WORK {
            return None;
        }
        all.push((*seq, laid));
    }
    Some(all)
}

/// What records come to, one laid over the other; a new file is cut off at its beginning.
fn laid<'a>(records: impl Iterator<Item = &'a Change>) -> Vec<Piece<Slice>> {
    let mut content = Content::default();
    let mut is_new = false;
    for change in records {
        if matches!(change.op, Op::Create { .. }) {
            (content, is_new) = (Content::default(), true);
        }
        content.lay(change);
    }
    let cut = is_new.then_some(Piece::Truncate(0));
    cut.into_iter().chain(content.into_pieces()).collect()
}

/// Whether a part of a content, from `at` on, would be another one after these pieces were laid over it. What `read` does not
/// give back tells nothing.
fn would_change(
    pieces: &[Piece<Slice>],
    at: u64,
    theirs: &[u8],
    read: impl Fn(&Slice) -> Option<Bytes>,
) -> bool {
    let end = at + theirs.len() as u64;
    let mut ours = theirs.to_vec();
    for piece in pieces {
        let range = gone_over(piece);
        let place = (range.start.clamp(at, end) - at) as usize..(range.end.clamp(at, end) - at) as usize;
        match piece {
            _ if place.is_empty() => {}
            Piece::Truncate(_) => ours[place].fill(0),
            Piece::Data(from, slice) => {
                let skip = slice.skip + (at.max(*from) - from) as usize;
                let part = Slice { skip, len: place.len(), stored: slice.stored.clone() };
                let bytes = read(&part);
                let bytes = bytes.as_deref().unwrap_or(&theirs[place.clone()]);
                ours[place].copy_from_slice(bytes);
            }
        }
    }
    ours != theirs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{Extent, Stored};
    use home::Name;

    fn change(op: Op<u64, Stored>) -> Change {
        let time = home::Time::default();
        Change { time, object: 1, after: None, op, retry: None, verifier: None, plain: false }
    }

    fn made() -> Change {
        change(Op::Create { dir: 2, name: Name::new(b"f").unwrap(), new: New::File, mode: 0o600 })
    }

    fn wrote(piece: Piece<Stored>) -> Change {
        change(Op::Write { file: 1, base: None, pieces: vec![piece] })
    }

    fn bytes(at: u64, bytes: &'static str) -> Piece<Stored> {
        Piece::Data(at, Stored::Inline(Bytes::from_static(bytes.as_bytes())))
    }

    fn read(slice: &Slice) -> Option<Bytes> {
        match &slice.stored {
            Stored::Inline(bytes) => Some(bytes.slice(slice.skip..slice.skip + slice.len)),
            Stored::Extent(_) => None,
        }
    }

    fn changes(records: &[Change], theirs: &str) -> bool {
        let pieces = laid(records.iter());
        let whole = would_change(&pieces, 0, theirs.as_bytes(), read);
        let parts = theirs.as_bytes().chunks(2).enumerate();
        let mut parts = parts.map(|(i, part)| would_change(&pieces, 2 * i as u64, part, read));
        assert_eq!(parts.any(|other| other), whole, "{theirs:?}");
        whole
    }

    #[test]
    fn bytes_tell_which_save_is_there() {
        let saves = [made(), wrote(bytes(0, "first")), wrote(bytes(0, "other")), wrote(Piece::Truncate(3))];
        assert!(!changes(&saves[..2], "first"));
        assert!(changes(&saves[..2], "other"));
        assert!(!changes(&saves[..3], "other"));
        assert!(changes(&saves[..3], "first"));
        assert!(!changes(&saves, "oth"));
        let hole = [made(), wrote(bytes(3, "end"))];
        assert!(!changes(&hole, "\0\0\0end"));
        assert!(changes(&hole, "theend"));
        let grown = [wrote(Piece::Truncate(2)), wrote(Piece::Truncate(4))];
        assert!(!changes(&grown, "it\0\0"));
        assert!(changes(&grown, "item"));
    }

    #[test]
    fn what_is_not_known_tells_nothing() {
        assert!(!changes(&[wrote(bytes(2, "me"))], "some"), "what was before the records");
        assert!(!changes(&[], "some"));
        let lost = Stored::Extent(Extent { segment: 1, pos: 0, len: 4, crc: 0 });
        let lost = [made(), wrote(Piece::Data(0, lost)), wrote(bytes(3, "e"))];
        assert!(!changes(&lost, "some"), "what this disk does not give back");
        assert!(changes(&lost, "soma"));
    }

    #[test]
    fn what_is_too_much_to_compare_is_not_compared() {
        let written = |n: u64| wrote(bytes(10 * n, "byte"));
        let records = Records::from([(1, (1..=500).map(|n| (n, written(n))).collect())]);
        let laid = |last: u64, size: u64| {
            let marks: Vec<_> = (1..=last).map(|seq| (seq, 1)).collect();
            what_is_laid(&marks, size, &records).map(|laid| laid.iter().map(|(_, l)| l.len()).sum::<usize>())
        };
        assert_eq!(laid(300, 1 << 20), Some(300 * 301 / 2));
        assert_eq!(laid(500, 1 << 20), None, "{} pieces", 500 * 501 / 2);
        let cut: Vec<_> = (1..=5).map(|n| (n, wrote(Piece::Truncate(0)))).collect();
        let records = Records::from([(1, cut)]);
        let marks: Vec<_> = (1..=5).map(|seq| (seq, 1)).collect();
        assert!(what_is_laid(&marks, limits::COMPARED_WORK / 5, &records).is_some());
        assert!(what_is_laid(&marks, limits::COMPARED_WORK / 4, &records).is_none());
    }
}
