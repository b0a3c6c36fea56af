//! Which of several records left what the home has. Where a home tells whole seconds, files of one length that are saved
//! again and again bear the same size and time: only their bytes tell them apart.

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
        let short = |m: &Mark| match m.there.kind {
            Kind::File => m.there.size <= limits::COMPARED_MAX,
            Kind::Symlink => true,
            _ => false,
        };
        let mut by_place: BTreeMap<HomePath, (Attr, Vec<(u64, u64)>)> = BTreeMap::new();
        for mark in marks.into_iter().filter(short) {
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

    /// The same for files of `size` bytes.
    async fn belied_at(
        &self,
        place: &HomePath,
        size: u64,
        marks: Vec<(u64, u64)>,
        records: &Records,
    ) -> Result<Vec<u64>> {
        let Some(theirs) = self.content_at(place, size).await? else { return Ok(vec![]) };
        let is_belied = |(seq, object): &(u64, u64)| {
            let until = records.get(object).into_iter().flatten().take_while(|(n, _)| n <= seq);
            let changes = until.map(|(_, change)| change);
            theirs.len() as u64 != size || would_change(changes, &theirs, |slice| self.bytes_of(slice).ok())
        };
        Ok(marks.into_iter().filter(is_belied).map(|(seq, _)| seq).collect())
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

    /// The first `size` bytes of a file at the home; `None` if it may not be read.
    pub(super) async fn content_at(&self, place: &HomePath, size: u64) -> Result<Option<Vec<u8>>> {
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

/// Whether a content would be another one after these records were executed on it. What `read` does not give back
/// tells nothing.
fn would_change<'a>(
    records: impl Iterator<Item = &'a Change>,
    theirs: &[u8],
    read: impl Fn(&Slice) -> Option<Bytes>,
) -> bool {
    let mut ours = theirs.to_vec();
    let mut content = Content::default();
    for change in records {
        if matches!(change.op, Op::Create { .. }) {
            ours.fill(0);
            content = Content::default();
        }
        content.lay(change);
    }
    let end = ours.len();
    let range = |at: u64, len: usize| {
        let from = end.min(at as usize);
        from..end.min(from + len)
    };
    for piece in content.into_pieces() {
        match piece {
            Piece::Truncate(size) => {
                ours[range(size, end)].fill(0);
            }
            Piece::Data(at, slice) => {
                let written = range(at, slice.len);
                let bytes = read(&slice);
                let bytes = bytes.as_deref().unwrap_or(&theirs[written.clone()]);
                ours[written].iter_mut().zip(bytes).for_each(|(ours, byte)| *ours = *byte);
            }
        }
    }
    ours != theirs
}

/// What a byte of a file of ours was before some writes to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Was {
    /// This.
    Byte(u8),
    /// What the home has, whatever that is: nothing of ours ever went there.
    Unseen,
    /// It is not known any more.
    Gone,
}

/// Whether a content is what a file of ours was after one of these writes, but for bytes that are zero: that one may not have
/// come so far. `ours` is what it is after all of them and those that came `later`, each with what it went over.
pub fn was_begun(
    mut ours: Vec<Was>,
    writes: &[Vec<Piece<Bytes>>],
    later: &[Range<u64>],
    theirs: &[u8],
) -> bool {
    ours.resize(theirs.len(), Was::Gone);
    let end = ours.len() as u64;
    let within = |range: Range<u64>| range.start.min(end) as usize..range.end.min(end) as usize;
    let gone_over = |piece: &Piece<Bytes>| covered(piece, |bytes| bytes.len() as u64);
    for range in writes.iter().flatten().map(gone_over).chain(later.iter().cloned()) {
        ours[within(range)].fill(Was::Gone);
    }
    writes.iter().any(|pieces| {
        for piece in pieces {
            let written = ours[within(gone_over(piece))].iter_mut();
            match piece {
                Piece::Truncate(_) => written.for_each(|was| *was = Was::Byte(0)),
                Piece::Data(_, bytes) => written.zip(bytes).for_each(|(was, byte)| *was = Was::Byte(*byte)),
            }
        }
        let mut each = ours.iter().zip(theirs);
        each.all(|(was, there)| *there == 0 || *was == Was::Unseen || *was == Was::Byte(*there))
    })
}

/// What a piece goes over, whose bytes have this length.
pub fn covered<D>(piece: &Piece<D>, len: impl Fn(&D) -> u64) -> Range<u64> {
    match piece {
        Piece::Truncate(size) => *size..u64::MAX,
        Piece::Data(at, data) => *at..at + len(data),
    }
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
        would_change(records.iter(), theirs.as_bytes(), read)
    }

    #[test]
    fn a_part_of_what_was_written_is_ours_and_a_mixture_of_two_writes_is_not() {
        let data = |at, bytes: &'static str| Piece::Data(at, Bytes::from_static(bytes.as_bytes()));
        let was = |text: &str| text.bytes().map(Was::Byte).collect::<Vec<_>>();
        let saves = [vec![data(0, "17")], vec![data(0, "28")], vec![data(0, "39")]];
        let begun = |theirs: &str| was_begun(was("39"), &saves, &[], theirs.as_bytes());
        for there in ["17", "28", "1", "\x009", "39"] {
            assert!(begun(there), "{there:?}");
        }
        assert!(!begun("\x002"), "that is no part of any");
        assert!(!begun("18") && !begun("27") && !begun("170"));
        let within = [vec![data(1, "b")], vec![data(1, "c")]];
        let ours = vec![Was::Unseen, Was::Byte(b'c'), Was::Byte(b'x')];
        let begun = |theirs: &str| was_begun(ours.clone(), &within, &[], theirs.as_bytes());
        assert!(begun("?bx") && begun("?\x00x") && !begun("?b?"));
        let cut = [vec![data(0, "first")], vec![Piece::Truncate(2), data(1, "an")]];
        let begun = |theirs: &str| was_begun(was("fan"), &cut[..1], &[1..3, 2..u64::MAX], theirs.as_bytes());
        assert!(begun("first") && begun("fir\x00t") && !begun("fan"), "the second one was not sent");
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
}
