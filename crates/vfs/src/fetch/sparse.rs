//! Bytes of a file that has changed at the home: those that it had before do not travel again.

use crate::data::When;
use crate::volume::Volume;
use home::sparse::{KnownPart, SparsePart};
use home::{Chunk, Loc, Result};

impl Volume {
    /// Reads bytes of which some may be known; `None` where all of them have to travel.
    pub(super) async fn fetch_sparse(
        &self,
        id: u64,
        loc: &Loc,
        (at, len): (u64, u64),
        later: bool,
    ) -> Option<Result<Chunk>> {
        if !self.home.knows() {
            return None;
        }
        let chunks = self.chunks.near(&self.data, id, at, len);
        if chunks.is_empty() {
            return None;
        }
        let names = chunks.iter().map(|chunk| chunk.name).collect();
        let answer = match self.home.read_known(loc, at, len as u32, names, later).await {
            Ok(answer) => answer,
            Err(e) if e.kind == home::ErrorKind::Unsupported => return None,
            Err(e) => return Some(Err(e)),
        };
        let place = |part: &KnownPart| {
            let chunk = chunks.get(part.index as usize)?;
            let end = part.skip.checked_add(part.len)?;
            (end <= chunk.len).then_some(chunk.at + u64::from(part.skip))
        };
        let data = answer.whole(len as usize, |part| {
            let bytes = self.data.clean(id, place(part)?, part.len as usize, When::Earlier);
            (bytes.len() == part.len as usize).then_some(bytes)
        });
        let (mut next, mut known, mut shift) = (at, 0, None);
        for part in &answer.parts {
            if let SparsePart::Known(part) = part {
                known += u64::from(part.len);
                shift = place(part).map(|place| place.wrapping_sub(next) as i64).or(shift);
            }
            next += part.len() as u64;
        }
        let known = if data.is_some() { known } else { 0 };
        self.chunks.heard(id, next - at, known, shift);
        data.map(|data| Ok(Chunk { attr: answer.attr, data }))
    }
}
