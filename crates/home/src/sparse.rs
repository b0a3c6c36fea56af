//! Bytes without those that whoever asks for them has already, from an earlier content of the file or from another one.
//!
//! Both ends cut content into the same [`chunks`], of some 8 KiB. The question names chunks by the first 8 bytes of their
//! BLAKE3; the answer has bytes, or parts of such chunks. A hash of all of it decides, so that equal names of
//! different chunks do no harm.

use crate::{Attr, cut};
use bytes::Bytes;
use std::collections::HashMap;
use std::ops::Range;

/// Bytes before and behind those that are asked for that are looked at, so that chunks across the ends are known, too.
pub const AROUND: usize = 64 << 10;
/// One of 2^this places ends a chunk.
const BITS: u32 = 13;
/// Bytes of a chunk at least, and at most; but for the last one.
const LEN: Range<usize> = 2 << 10..64 << 10;

oncrpc::xdr! {
    /// Bytes of a file at which some are known.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Sparse {
        /// Attributes taken after the bytes.
        pub attr: Attr,
        /// The bytes, in order.
        pub parts: Vec<SparsePart>,
        /// BLAKE3 of all of them.
        pub hash: [u8; 32],
    }

    /// Some of them.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub union SparsePart {
        /// These.
        Bytes(Bytes) = 0,
        /// A part of a chunk that is known.
        Known(KnownPart) = 1,
    }

    /// A part of a chunk.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct KnownPart {
        /// Which one of those that the question named.
        pub index: u32,
        /// Bytes of the chunk before it.
        pub skip: u32,
        /// Its length in bytes.
        pub len: u32,
    }
}

impl SparsePart {
    /// Its length in bytes.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        match self {
            SparsePart::Bytes(bytes) => bytes.len(),
            SparsePart::Known(part) => part.len as usize,
        }
    }
}

/// Cuts content into chunks. Where it begins makes a difference for the first few alone.
pub fn chunks(data: &[u8]) -> impl Iterator<Item = Range<usize>> + '_ {
    let mut start = 0;
    std::iter::from_fn(move || {
        let most = data.len().min(start + LEN.end);
        let end = cut::next(&data[..most], start + LEN.start, BITS).unwrap_or(most);
        let chunk = start..end;
        start = end;
        (!chunk.is_empty()).then_some(chunk)
    })
}

/// What a chunk is called.
pub fn name(chunk: &[u8]) -> u64 {
    let hash = blake3::hash(chunk);
    hash.as_bytes().first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
}

impl Sparse {
    /// Of `data` what is not in chunks with these names. `before` and `after` are around it in the file, at most
    /// [`AROUND`].
    pub fn of(attr: Attr, before: &[u8], data: &Bytes, after: &[u8], known: &[u64]) -> Sparse {
        let index: HashMap<u64, u32> = known.iter().copied().zip(0..).collect();
        let all = [before, data, after].concat();
        let (from, to) = (before.len(), before.len() + data.len());
        let (mut parts, mut literal) = (Vec::new(), 0);
        for chunk in chunks(&all) {
            let (start, end) = (chunk.start.max(from), chunk.end.min(to));
            if start >= end {
                continue;
            }
            let Some(index) = index.get(&name(&all[chunk.clone()])).copied() else { continue };
            if start - from > literal {
                parts.push(SparsePart::Bytes(data.slice(literal..start - from)));
            }
            let (skip, len) = ((start - chunk.start) as u32, (end - start) as u32);
            parts.push(SparsePart::Known(KnownPart { index, skip, len }));
            literal = end - from;
        }
        if literal < data.len() {
            parts.push(SparsePart::Bytes(data.slice(literal..)));
        }
        Sparse { attr, parts, hash: *blake3::hash(data).as_bytes() }
    }

    /// All of the bytes, where `known` gives those of known parts; `None` where it cannot or they are not what was meant.
    pub fn whole(&self, most: usize, mut known: impl FnMut(&KnownPart) -> Option<Vec<u8>>) -> Option<Bytes> {
        if self.parts.iter().map(SparsePart::len).sum::<usize>() > most {
            return None;
        }
        let mut all = Vec::with_capacity(most);
        for part in &self.parts {
            match part {
                SparsePart::Bytes(bytes) => all.extend_from_slice(bytes),
                SparsePart::Known(part) => all.extend(known(part)?),
            }
        }
        (*blake3::hash(&all).as_bytes() == self.hash).then(|| all.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cut::tests::noise;
    use oncrpc::xdr::Xdr;

    fn attr() -> Attr {
        super::super::agent::server::tests::attr(3)
    }

    /// What is sent of the middle of `new` to somebody who has `old`.
    fn sent(old: &[u8], new: &[u8], at: usize, len: usize) -> usize {
        let have: Vec<Range<usize>> = chunks(old).collect();
        let known: Vec<u64> = have.iter().map(|chunk| name(&old[chunk.clone()])).collect();
        let (before, after) =
            (&new[at.saturating_sub(AROUND)..at], &new[at + len..(at + len + AROUND).min(new.len())]);
        let data = Bytes::copy_from_slice(&new[at..at + len]);
        let sparse = Sparse::of(attr(), before, &data, after, &known);
        let part = |part: &KnownPart| {
            let chunk = have.get(part.index as usize)?.clone();
            Some(old[chunk][part.skip as usize..][..part.len as usize].to_vec())
        };
        assert_eq!(sparse.whole(len, part), Some(data.clone()));
        assert_eq!(sparse.whole(len - 1, part), None, "more than was asked for");
        assert_eq!(Sparse { hash: [0; 32], ..sparse.clone() }.whole(len, part), None);
        let bytes = |part: &SparsePart| if let SparsePart::Bytes(b) = part { b.len() } else { 0 };
        sparse.parts.iter().map(bytes).sum()
    }

    #[test]
    fn only_what_is_not_known_is_sent() {
        let old = noise(1 << 20, 1);
        let (at, len) = (300_000, 500_000);
        assert_eq!(sent(&old, &old, at, len), 0);
        assert_eq!(sent(&old, &old, 0, len), 0);
        assert_eq!(sent(&old, &noise(1 << 20, 2), at, len), len);
        let inserted = [&old[..400_000], b"something", &old[400_000..]].concat();
        let more = sent(&old, &inserted, at, len);
        assert!((9..64 << 10).contains(&more), "{more} bytes for an insertion");
        let appended = [&old[..], &noise(5000, 3)].concat();
        assert!(sent(&old, &appended, 1_000_000, appended.len() - 1_000_000) < 5000 + (64 << 10));
        assert_eq!(sent(&[], &old, at, len), len);
    }

    #[test]
    fn chunks_have_their_bounds() {
        for data in [noise(1 << 20, 4), vec![0; 1 << 20], noise(100, 5)] {
            let lens: Vec<usize> = chunks(&data).map(|chunk| chunk.len()).collect();
            assert_eq!(lens.iter().sum::<usize>(), data.len());
            assert!(lens.iter().rev().skip(1).all(|len| (LEN.start..=LEN.end).contains(len)), "{lens:?}");
        }
        assert_eq!(chunks(&[]).count(), 0);
    }

    #[test]
    fn names_and_chunks_are_golden() {
        let data = noise(1 << 17, 6);
        assert_eq!(chunks(&data).map(|chunk| chunk.end).take(3).collect::<Vec<_>>(), [7303, 35028, 40598]);
        assert_eq!(name(b"abc"), 0x6437_b3ac_3846_5133);
        let parts = vec![
            SparsePart::Bytes(Bytes::from_static(b"ab")),
            SparsePart::Known(KnownPart { index: 1, skip: 2, len: 3 }),
        ];
        let sparse = Sparse { attr: attr(), parts, hash: [7; 32] };
        let golden = b"\0\0\0\x02\0\0\0\0\0\0\0\x02ab\0\0\0\0\0\x01\0\0\0\x01\0\0\0\x02\0\0\0\x03";
        assert_eq!(sparse.to_bytes(), [&attr().to_bytes()[..], golden, &[7; 32]].concat());
    }
}
