//! What a run of changes of one file's content comes to: bytes that a later change overwrites or cuts off never travel.

use crate::journal::{Change, Stored};
use home::{Op, Piece};
use std::collections::BTreeMap;

/// A part of what is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct Slice {
    /// What it is a part of.
    pub stored: Stored,
    /// Bytes before it.
    pub skip: usize,
    /// Its length in bytes, not 0.
    pub len: usize,
}

impl Slice {
    /// All of it.
    pub fn whole(stored: &Stored) -> Slice {
        Slice { skip: 0, len: length(stored), stored: stored.clone() }
    }
}

/// Bytes of what is stored.
pub fn length(stored: &Stored) -> usize {
    match stored {
        Stored::Inline(bytes) => bytes.len(),
        Stored::Extent(extent) => extent.len as usize,
    }
}

/// Changes of one file's content, laid one over the other.
#[derive(Debug, Default)]
pub struct Content {
    /// What is left of the bytes written, by offset; no two overlap.
    live: BTreeMap<u64, Slice>,
    bytes: u64,
    /// The smallest size that the file was given meanwhile: of what it held before nothing is left beyond.
    cut: Option<u64>,
    /// Its size in the end, if it was given one.
    size: Option<u64>,
}

impl Content {
    /// Lays a change over those before.
    pub fn lay(&mut self, change: &Change) {
        let Op::Write { pieces, .. } = &change.op else { return };
        for piece in pieces {
            match piece {
                Piece::Truncate(size) => {
                    self.clear(*size, u64::MAX);
                    self.cut = Some(self.cut.map_or(*size, |cut| cut.min(*size)));
                    self.size = Some(*size);
                }
                Piece::Data(at, stored) => self.put(*at, Slice::whole(stored)),
            }
        }
    }

    /// Operations that are left: bytes that belong together, and sizes.
    pub fn ops(&self) -> usize {
        self.live.len() + usize::from(self.cut.is_some())
    }

    /// Whether nothing is left of what the file held before.
    pub fn is_anew(&self) -> bool {
        self.cut == Some(0)
    }

    /// Bytes that are left.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The shortest list of pieces that does the same: what is cut off, then the bytes by offset, so that the home sees
    /// an append as what it is, and last a size beyond them.
    pub fn into_pieces(self) -> Vec<Piece<Slice>> {
        let end = self.live.last_key_value().map_or(0, |(at, slice)| at + slice.len as u64);
        let reached = self.cut.map_or(end, |cut| cut.max(end));
        let longer = self.size.filter(|size| *size > reached);
        let bytes = self.live.into_iter().map(|(at, slice)| Piece::Data(at, slice));
        let cut = self.cut.into_iter().map(Piece::Truncate);
        cut.chain(bytes).chain(longer.map(Piece::Truncate)).collect()
    }

    fn put(&mut self, at: u64, slice: Slice) {
        if slice.len == 0 {
            return;
        }
        let end = at + slice.len as u64;
        self.clear(at, end);
        self.bytes += slice.len as u64;
        self.live.insert(at, slice);
        self.size = self.size.map(|size| size.max(end));
    }

    /// Forgets the bytes of [from, to).
    fn clear(&mut self, from: u64, to: u64) {
        let first = self.live.range(..=from).next_back().map_or(from, |(at, _)| *at);
        let hit: Vec<u64> = self.live.range(first..to.max(first)).map(|(at, _)| *at).collect();
        for at in hit {
            let Some(slice) = self.live.remove(&at) else { continue };
            self.bytes -= slice.len as u64;
            for (start, stop) in [(at, from), (to, u64::MAX)] {
                let (start, stop) = (start.max(at), stop.min(at + slice.len as u64));
                if start < stop {
                    let (skip, len) = (slice.skip + (start - at) as usize, (stop - start) as usize);
                    self.bytes += len as u64;
                    self.live.insert(start, Slice { skip, len, stored: slice.stored.clone() });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};

    fn change(piece: Piece<Stored>) -> Change {
        let op = Op::Write { file: 1, base: None, pieces: vec![piece] };
        let time = home::Time::default();
        Change { time, object: 1, after: None, op, retry: None, verifier: None, plain: false }
    }

    fn apply(file: &mut Vec<u8>, piece: &Piece<Slice>) {
        match piece {
            Piece::Truncate(size) => file.resize(*size as usize, 0),
            Piece::Data(at, slice) => {
                let Stored::Inline(bytes) = &slice.stored else { panic!("an extent") };
                let end = *at as usize + slice.len;
                file.resize(file.len().max(end), 0);
                file[*at as usize..end].copy_from_slice(&bytes[slice.skip..slice.skip + slice.len]);
            }
        }
    }

    #[test]
    fn what_is_left_does_the_same_with_fewer_bytes() {
        for seed in 0..400 {
            let mut rng = StdRng::seed_from_u64(seed);
            let mut content = Content::default();
            let base = vec![b'.'; rng.random_range(0..120)];
            let (mut want, mut sent) = (base.clone(), 0);
            for i in 0..rng.random_range(1..40u8) {
                let piece = match rng.random_bool(0.3) {
                    true => Piece::Truncate(rng.random_range(0..120)),
                    false => {
                        let bytes = Bytes::from(vec![b'A' + i; rng.random_range(1..50)]);
                        sent += bytes.len();
                        Piece::Data(rng.random_range(0..100), Stored::Inline(bytes))
                    }
                };
                content.lay(&change(piece.clone()));
                let whole = match piece {
                    Piece::Truncate(size) => Piece::Truncate(size),
                    Piece::Data(at, stored) => Piece::Data(at, Slice::whole(&stored)),
                };
                apply(&mut want, &whole);
            }
            let (ops, bytes) = (content.ops(), content.bytes());
            let pieces = content.into_pieces();
            let left = pieces.iter().map(|p| if let Piece::Data(_, s) = p { s.len } else { 0 });
            assert_eq!(left.sum::<usize>() as u64, bytes, "seed {seed}");
            assert!(bytes <= sent as u64 && bytes <= want.len() as u64, "seed {seed}");
            assert!((ops..=ops + 1).contains(&pieces.len()), "seed {seed}");
            let mut have = base;
            pieces.iter().for_each(|piece| apply(&mut have, piece));
            assert_eq!(have, want, "seed {seed}: {pieces:?}");
        }
    }
}
