//! Whether what the home has of a file was left by writes of ours that may not have come to their end. Looked at in parts as
//! they come, so that it may be of any length.
//!
//! A home that is written in steps executes them in order: parts of one write by their place in the file. So what is there is the
//! content after one of the writes up to some place, and what an earlier one had left from there on. Zeros may stand for what
//! has not come. Another program may have written what is anything else.

use super::content::Slice;
use crate::limits::{PACKET, PACKET_UNIT};
use bytes::Bytes;
use home::Piece;
use std::ops::Range;

/// What a byte of a file of ours was at some point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Was {
    /// This.
    Byte(u8),
    /// What the home has, whatever that is: nothing of ours ever went there.
    Unseen,
    /// It is not known any more.
    Gone,
}

impl Was {
    fn may_be(self, there: u8) -> bool {
        there == 0 || self == Was::Unseen || self == Was::Byte(there)
    }
}

/// Where a content differs from a state of ours: from the first byte that does up to behind the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Differs {
    from: u64,
    to: u64,
}

const NOWHERE: Differs = Differs { from: u64::MAX, to: 0 };

/// The states that a file of ours was in: before some writes to it that may have been executed, after each of them, and with
/// all that came later.
pub struct States {
    writes: Vec<Vec<Piece<Slice>>>,
    /// What a byte counts as that was gone over, where what it was before is not known any more.
    forgotten: Was,
    /// Before the writes, and after each.
    differ: Vec<Differs>,
    /// With all that came later.
    now: Differs,
}

/// A part of a file.
pub struct Part<'a> {
    /// Its offset.
    pub at: u64,
    /// What ours has there now.
    pub now: Vec<Was>,
    /// What was gone over since the writes.
    pub later: Vec<Range<u64>>,
    /// What it had there before the writes, as far as they or later ones have gone over it and that is still known.
    pub before: Vec<(u64, Bytes)>,
    /// What the home has there.
    pub theirs: &'a [u8],
}

impl States {
    /// The states around `writes`, which are in order.
    pub fn new(writes: Vec<Vec<Piece<Slice>>>, forgotten: Was) -> States {
        let differ = vec![NOWHERE; writes.len() + 1];
        States { writes, forgotten, differ, now: NOWHERE }
    }

    /// Whether one of the writes went to a place in this range.
    pub fn touch(&self, range: &Range<u64>) -> bool {
        self.writes.iter().flatten().any(|piece| overlap(&gone_over(piece), range))
    }

    /// How many bytes have to be laid one over the other to compare so many.
    pub fn work(&self, size: u64, part: u64) -> u64 {
        let parts = |range: Range<u64>| {
            let (from, to) = (range.start.min(size) / part, range.end.min(size).div_ceil(part));
            to.saturating_sub(from).saturating_mul(part)
        };
        self.writes.iter().flatten().map(|piece| parts(gone_over(piece))).fold(size, u64::saturating_add)
    }

    /// Compares a part. `read`: the bytes of a slice, if they are still here. Answers whether any state may yet be the one.
    pub fn compare(&mut self, part: Part<'_>, read: impl Fn(&Slice) -> Option<Bytes>) -> bool {
        let Part { at, now: mut ours, later, before, theirs } = part;
        ours.resize(theirs.len(), Was::Gone);
        let end = at + theirs.len() as u64;
        let within = |range: Range<u64>| {
            let place = |of: u64| (of.clamp(at, end) - at) as usize;
            place(range.start)..place(range.end)
        };
        self.now.join(differs(at, &ours, theirs));
        for range in self.writes.iter().flatten().map(gone_over).chain(later) {
            ours[within(range)].fill(self.forgotten);
        }
        for (from, bytes) in before {
            let place = within(from..from + bytes.len() as u64);
            let bytes = &bytes[(at.max(from) - from) as usize..];
            let gone = ours[place].iter_mut().zip(bytes).filter(|(was, _)| **was == self.forgotten);
            gone.for_each(|(was, byte)| *was = Was::Byte(*byte));
        }
        let mut here = differs(at, &ours, theirs);
        self.differ[0].join(here);
        for (pieces, differ) in self.writes.iter().zip(&mut self.differ[1..]) {
            let there = pieces.iter().map(|piece| (piece, within(gone_over(piece))));
            let there: Vec<_> = there.filter(|(_, place)| !place.is_empty()).collect();
            if !there.is_empty() {
                there.into_iter().for_each(|(piece, place)| lay(&mut ours[place], at, piece, &read));
                here = differs(at, &ours, theirs);
            }
            differ.join(here);
        }
        self.now == NOWHERE || self.is_begun()
    }

    /// Whether all that was compared is the content with all that came later, but for what may not have come.
    pub fn is_now(&self) -> bool {
        self.now == NOWHERE
    }

    /// Whether all that was compared is what was left by one of the writes, or by a part of it.
    pub fn is_begun(&self) -> bool {
        let mut earliest = self.differ[0].to;
        self.differ[1..].iter().any(|after| {
            let is_it = *after == NOWHERE || self.may_end(earliest..after.from);
            earliest = earliest.min(after.to);
            is_it
        })
    }

    /// Whether a part of a write may end at a place from the start of this range up to its end.
    fn may_end(&self, range: Range<u64>) -> bool {
        let Range { start: low, end: high } = range;
        self.writes.iter().flatten().any(|piece| {
            let Range { start, end } = match piece {
                Piece::Truncate(_) => return false,
                Piece::Data(..) => gone_over(piece),
            };
            let (from, to) = (low.max(start), high.min(end));
            let behind = PACKET.max((from - start).next_multiple_of(PACKET_UNIT));
            from <= to && (from == start || to == end || start + behind <= to)
        })
    }
}

impl Differs {
    fn join(&mut self, other: Differs) {
        *self = Differs { from: self.from.min(other.from), to: self.to.max(other.to) };
    }
}

fn differs(at: u64, ours: &[Was], theirs: &[u8]) -> Differs {
    let is_other = |(was, there): (&Was, &u8)| !was.may_be(*there);
    let first = ours.iter().zip(theirs).position(is_other);
    let last = ours.iter().zip(theirs).rposition(is_other);
    match (first, last) {
        (Some(first), Some(last)) => Differs { from: at + first as u64, to: at + last as u64 + 1 },
        _ => NOWHERE,
    }
}

/// Lays a piece over what was at its place, from `at` on.
fn lay(ours: &mut [Was], at: u64, piece: &Piece<Slice>, read: impl Fn(&Slice) -> Option<Bytes>) {
    let Piece::Data(from, slice) = piece else { return ours.fill(Was::Byte(0)) };
    let skip = slice.skip + (at.max(*from) - from) as usize;
    match read(&Slice { skip, len: ours.len(), stored: slice.stored.clone() }) {
        Some(bytes) => ours.iter_mut().zip(&bytes).for_each(|(was, byte)| *was = Was::Byte(*byte)),
        None => ours.fill(Was::Gone),
    }
}

/// Whether two ranges have a byte in common.
pub fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

/// What a piece goes over.
pub fn gone_over(piece: &Piece<Slice>) -> Range<u64> {
    match piece {
        Piece::Truncate(size) => *size..u64::MAX,
        Piece::Data(at, slice) => *at..*at + slice.len as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{Extent, Stored};

    fn data(at: u64, bytes: impl Into<Bytes>) -> Piece<Slice> {
        Piece::Data(at, Slice::whole(&Stored::Inline(bytes.into())))
    }

    fn read(slice: &Slice) -> Option<Bytes> {
        match &slice.stored {
            Stored::Inline(bytes) => Some(bytes.slice(slice.skip..slice.skip + slice.len)),
            Stored::Extent(_) => None,
        }
    }

    fn was(text: &[u8]) -> Vec<Was> {
        text.iter().map(|byte| if *byte == b'?' { Was::Unseen } else { Was::Byte(*byte) }).collect()
    }

    struct Ours<'a> {
        before: &'a [u8],
        writes: Vec<Vec<Piece<Slice>>>,
        later: Vec<Range<u64>>,
        now: Vec<Was>,
    }

    impl Ours<'_> {
        /// Whether a content is begun, looked at in parts of each of some lengths.
        fn begun(&self, theirs: &[u8]) -> bool {
            let by_parts = |len: usize| {
                let mut states = States::new(self.writes.clone(), Was::Gone);
                let any = theirs.chunks(len).enumerate().all(|(i, theirs)| {
                    let (at, end) = (i * len, i * len + theirs.len());
                    let now = self.now[at.min(self.now.len())..end.min(self.now.len())].to_vec();
                    let before = self.before.get(at..end.min(self.before.len())).unwrap_or_default();
                    let before = vec![(at as u64, Bytes::copy_from_slice(before))];
                    states
                        .compare(Part { at: at as u64, now, later: self.later.clone(), before, theirs }, read)
                });
                any && states.is_begun()
            };
            let answers =
                [1 << 20, theirs.len().div_ceil(3).max(1), theirs.len().div_ceil(7).max(1)].map(by_parts);
            assert!(answers == [answers[0]; 3], "{answers:?}");
            answers[0]
        }
    }

    #[test]
    fn a_part_of_what_was_written_is_ours_and_a_mixture_within_one_packet_is_not() {
        let saves = ["17", "28", "39"].map(|text| vec![data(0, text)]).to_vec();
        let ours = Ours { before: b"", writes: saves, later: vec![], now: was(b"39") };
        for there in ["17", "28", "1", "\x009", "39"] {
            assert!(ours.begun(there.as_bytes()), "{there:?}");
        }
        for there in ["\x002", "18", "27", "170"] {
            assert!(!ours.begun(there.as_bytes()), "{there:?} is no part of any");
        }
        let within = vec![vec![data(1, "b")], vec![data(1, "c")]];
        let ours = Ours { before: b"", writes: within, later: vec![], now: was(b"?cx") };
        assert!(ours.begun(b"!bx") && ours.begun(b"!\x00x") && !ours.begun(b"!b!"));
        let first = vec![vec![data(0, "first")]];
        let ours = Ours { before: b"", writes: first, later: vec![1..3, 2..u64::MAX], now: was(b"fan") };
        assert!(ours.begun(b"first") && ours.begun(b"fir\x00t") && !ours.begun(b"fan"), "that was not sent");
    }

    #[test]
    fn a_write_goes_over_what_was_before_packet_by_packet_and_in_order() {
        let [old, new, other] = [b'o', b'n', b'x'].map(|byte| vec![byte; 200 << 10]);
        let mut ours = Ours { before: &old, writes: vec![], later: vec![], now: was(&new) };
        ours.writes =
            vec![vec![data(0, new[..100 << 10].to_vec()), data(100 << 10, new[..100 << 10].to_vec())]];
        let mixed = |at: usize| [&new[..at], &old[at..]].concat();
        for at in [0, 32 << 10, 33 << 10, 100 << 10, 133 << 10, 200 << 10] {
            assert!(ours.begun(&mixed(at)), "{at}");
        }
        for at in [1, 31 << 10, (33 << 10) + 1, 101 << 10] {
            assert!(!ours.begun(&mixed(at)), "no packet ends at {at}");
        }
        assert!(!ours.begun(&[&old[..64 << 10], &new[64 << 10..]].concat()), "the end comes last");
        assert!(!ours.begun(&[&mixed(64 << 10)[..150 << 10], &other[150 << 10..]].concat()));
        // In the place of what later ones cut off stands what was there before.
        (ours.later, ours.now) = (std::iter::once(0..u64::MAX).collect(), was(b"later"));
        assert!(ours.begun(&mixed(64 << 10)));
        ours.before = b"";
        assert!(!ours.begun(&mixed(64 << 10)), "what was before is not known any more");
        assert!(ours.begun(&new));
    }

    #[test]
    fn what_this_disk_does_not_give_back_is_nobodys() {
        let lost = Stored::Extent(Extent { segment: 1, pos: 0, len: 4, crc: 0 });
        let writes = vec![vec![Piece::Data(0, Slice::whole(&lost))], vec![data(0, "ours")]];
        let ours = Ours { before: b"", writes, later: vec![], now: was(b"ours") };
        assert!(ours.begun(b"ours") && !ours.begun(b"them"));
    }

    #[test]
    fn work_counts_the_parts_that_each_write_goes_over() {
        let writes = vec![vec![data(5, "ab")], vec![Piece::Truncate(25)], vec![data(9, "ab"), data(95, "x")]];
        let states = States::new(writes, Was::Gone);
        assert_eq!(states.work(100, 10), 100 + 10 + 80 + 20 + 10);
        assert_eq!(states.work(20, 10), 20 + 10 + 20, "what is behind it is not compared");
    }
}
