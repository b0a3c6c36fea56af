//! Whether a file has what an earlier execution of an operation left of its content: all of it, or a part.

use super::super::claim::{Image, Run};
use super::super::sys::{Mode, Sys, Sysult};
use super::Batch;
use super::content::{final_size, is_append};
use crate::attr::{Attr, HomeId, Version};
use crate::limits;
use crate::op::{Piece, Placed};
use crate::posix::resolve::Found;
use crate::posix::spool::Data;
use bytes::Bytes;
use std::iter::once;
use std::ops::Range;

impl<S: Sys> Batch<'_, S> {
    /// Whether an earlier execution of this very operation left the file as it is.
    pub(super) fn is_done(
        &self,
        placed: &Placed,
        base: &Version,
        file: &Found<S>,
        pieces: &[Piece<Data<S::Fd>>],
    ) -> bool {
        let (attr, size) = (&file.attr, final_size(base.size, pieces));
        attr.size == size
            && attr.mtime == placed.time
            && self.holds(file, pieces, 0, size)
            && cut_away(base.size, pieces).into_iter().all(|range| self.is_zero(file, range))
    }

    /// Whether an earlier execution wrote a part of what is wanted into the file and then died, or a power cut left a part
    /// of it: it was about to, or the file has the mark of the operation, or a part of what it appends.
    pub(super) fn is_half_done(
        &self,
        placed: &Placed,
        base: &Version,
        file: &Found<S>,
        pieces: &[Piece<Data<S::Fd>>],
    ) -> bool {
        // What the gateway knows to be somebody else's has a base that nothing has.
        if base.id == HomeId::default() {
            return false;
        }
        let (attr, size) = (&file.attr, final_size(base.size, pieces));
        let Some(known) = self.images(placed, file, pieces) else { return false };
        let claim = self.claim.as_ref();
        if claim.is_some_and(|claim| claim.was_torn_later(placed.id.seq, attr)) {
            return true;
        }
        // Of bytes that were added at the end others may have added theirs behind a part, but not where the length came first.
        let length_first = matches!(pieces, [Piece::Truncate(to), ..] if *to == size);
        if let Some(claim) = claim
            && (length_first || !is_append(base.size, pieces))
            && (claim.was_torn(placed.id.seq, attr) && self.may_be_torn(file, pieces, base.size)
                || claim.was_in_place(placed.id.seq, attr.id)
                    && self.has_begun(file, pieces, base.size)
                    && self.holds_no_other(file, pieces, base.size))
        {
            return true;
        }
        if self.is_half_of_another_try(placed, file, pieces) {
            return true;
        }
        let is_marked = base.id == attr.id && attr.mtime == placed.time;
        // What has the old length may be the old content with another time, if what was begun before the power failed left no
        // more, or an agent was killed before it gave back the time of what it took back; but somebody else may have written it as
        // well. An empty file has none.
        let cut = claim.is_some_and(|claim| claim.was_cut(placed.id.seq, attr));
        let killed = claim.is_some_and(|claim| claim.was_in_place(placed.id.seq, attr.id));
        let may_be_old = base.size == 0 || (cut || killed) && known || cut && base.size > limits::IMAGE_MAX;
        is_marked
            || self.same(Some(base.id), attr.id)
                && is_append(base.size, pieces)
                && (base.size + u64::from(!may_be_old)..=size).contains(&attr.size)
                && (cut && self.may_be_torn(file, pieces, base.size)
                    || self.holds_no_other(file, pieces, base.size))
    }

    /// Whether a file may be as the power failed amid a write to it, and is too long for an [`Image`]. It is put right in a copy:
    /// who dies on the way there leaves it with the time that tells so, whereas nothing could tell then what was in a file that
    /// was written in place.
    pub(super) fn is_long_and_torn(&self, placed: &Placed, file: &Attr) -> bool {
        let (seq, claim) = (placed.id.seq, self.claim.as_ref());
        file.size > limits::IMAGE_MAX
            && claim.is_some_and(|claim| claim.was_torn(seq, file) || claim.was_torn_later(seq, file))
    }

    /// Whether an earlier execution that died had found more in the file than the base: what it took for a part of ours, as the
    /// image that it left tells.
    fn is_half_of_another_try(
        &self,
        placed: &Placed,
        file: &Found<S>,
        pieces: &[Piece<Data<S::Fd>>],
    ) -> bool {
        let claim = self.claim.as_ref();
        let Some(image) = claim.and_then(|claim| claim.image(placed.id.seq, file.attr.id)) else {
            return false;
        };
        let end = image.old.iter().map(|run| run.at + run.data.len() as u64).max().unwrap_or(0);
        let is_whole = image.old.iter().any(|run| run.at == 0 && run.data.len() as u64 >= image.cut);
        is_whole
            && !is_append(end, pieces)
            && self.is_of_images(file, pieces, &[image])
            && self.has_begun(file, pieces, end)
            && self.holds_no_other(file, pieces, end)
    }

    /// Whether it is known what a file had in it before what was not ended, so that the file has nothing else in it; `None` where
    /// it has.
    fn images(&self, placed: &Placed, file: &Found<S>, pieces: &[Piece<Data<S::Fd>>]) -> Option<bool> {
        let images = self.claim.as_ref().map(|claim| claim.images(file.attr.id)).unwrap_or_default();
        let known = images.iter().any(|image| image.seq <= placed.id.seq);
        (images.is_empty() || self.is_of_images(file, pieces, &images)).then_some(known)
    }

    /// Whether a file is not cut elsewhere, and has nothing else where the images tell of it: what it had, what was to be written, or
    /// zeros where it was cut.
    fn is_of_images(&self, file: &Found<S>, pieces: &[Piece<Data<S::Fd>>], images: &[&Image]) -> bool {
        let Ok(fd) = self.sys().reopen(&file.fd, Mode::Read) else { return false };
        let told = || images.iter().flat_map(|image| image.old.iter().chain(&image.new));
        let known: Vec<_> = told().map(|run| Piece::Data(run.at, run.data.clone())).collect();
        let cut = images.iter().map(|image| image.cut).min().unwrap_or(u64::MAX);
        let is_of_them = |run: &Run| {
            let end = file.attr.size.min(run.at + run.data.len() as u64);
            let mut there = vec![0; end.saturating_sub(run.at) as usize];
            let Ok(of_pieces) = self.within(pieces, run.at..end) else { return false };
            self.read_all(&fd, run.at, &mut there) == Ok(there.len())
                && are_of(&there, run.at, &[&known[..], &of_pieces].concat(), cut..u64::MAX)
        };
        file.attr.size >= cut && told().all(is_of_them)
    }

    /// What is to be known of a file before its content is changed in place, so that it can be told afterwards what somebody else
    /// has written to it. `None` if that is nothing, or too much.
    pub(super) fn image(
        &self,
        placed: &Placed,
        (fd, file): (&S::Fd, &Attr),
        pieces: &[Piece<Data<S::Fd>>],
    ) -> Option<Image> {
        let (size, appends) = (file.size, is_append(file.size, pieces));
        let data =
            || pieces.iter().filter_map(|p| if let Piece::Data(at, d) = p { Some((*at, d)) } else { None });
        let cuts = pieces.iter().filter_map(|p| if let Piece::Truncate(to) = p { Some(*to) } else { None });
        let cut = cuts.fold(size, u64::min);
        let overwritten = data().map(|(at, d)| at..at + d.len()).chain(once(cut..size));
        let old: Vec<Range<u64>> = match size <= limits::IMAGE_MAX {
            true => once(0..size).collect(),
            false if appends => return None,
            false => overwritten.map(|r| r.start.min(size)..r.end.min(size)).collect(),
        };
        // What is behind the end is nobody else's if it is of the pieces.
        let new = || data().filter(|_| !appends);
        let bytes = old.iter().map(|r| r.end - r.start).sum::<u64>();
        let more = new().map(|(_, data)| data.len()).sum::<u64>();
        if size == 0 || bytes + more > limits::IMAGE_MAX {
            return None;
        }
        let read = |range: Range<u64>| {
            let mut data = vec![0; (range.end - range.start) as usize];
            let whole = self.read_all(fd, range.start, &mut data) == Ok(data.len());
            whole.then(|| Run { at: range.start, data: data.into() })
        };
        let old = old.into_iter().filter(|r| !r.is_empty()).map(read).collect::<Option<_>>()?;
        let run = |(at, data): (u64, &Data<S::Fd>)| {
            Some(Run { at, data: data.part(self.sys(), 0, data.len() as usize).ok()? })
        };
        let new = new().map(run).collect::<Option<_>>()?;
        Some(Image { seq: placed.id.seq, file: file.id, cut, old, new })
    }

    /// Whether all that the file has behind its first `end` bytes comes from the pieces, of which the last may be missing:
    /// their bytes, and zeros where one makes the file longer.
    fn holds_no_other(&self, file: &Found<S>, pieces: &[Piece<Data<S::Fd>>], end: u64) -> bool {
        let longer = pieces.iter().zip(lengths(end, pieces)).map(|(piece, longer)| match piece {
            Piece::Truncate(_) => longer,
            Piece::Data(from, _) => longer.min(*from),
        });
        self.holds_only(file, pieces, end, 0..longer.max().unwrap_or(end))
    }

    /// Whether all that the file has behind its first `end` bytes comes from the pieces, or is zero and in `zeros`.
    fn holds_only(
        &self,
        file: &Found<S>,
        pieces: &[Piece<Data<S::Fd>>],
        end: u64,
        zeros: Range<u64>,
    ) -> bool {
        let Ok(fd) = self.sys().reopen(&file.fd, Mode::Read) else { return false };
        let longest = lengths(end, pieces).max().unwrap_or(end);
        let mut at = end;
        while at < file.attr.size.min(longest) {
            let (start, stop) = match self.sys().data_range(&fd, at, file.attr.size) {
                Ok(Some(range)) => range,
                // Only zeros follow.
                Ok(None) => break,
                Err(_) => return false,
            };
            let part = start..stop.min(start + u64::from(limits::READ_MAX));
            let mut there = vec![0; (part.end - part.start) as usize];
            let Ok(wanted) = self.within(pieces, part.clone()) else { return false };
            if self.read_all(&fd, part.start, &mut there) != Ok(there.len())
                || !are_of(&there, part.start, &wanted, zeros.clone())
            {
                return false;
            }
            at = part.end;
        }
        file.attr.size <= longest
    }

    /// Whether a file that was `size` long may be what a power cut left of the pieces: any mixture of what it had and what
    /// they write, and behind what it had nothing else but zeros where a part was not written.
    fn may_be_torn(&self, file: &Found<S>, pieces: &[Piece<Data<S::Fd>>], size: u64) -> bool {
        file.attr.size <= size || self.holds_only(file, pieces, size, 0..u64::MAX)
    }

    /// Whether a file that was `size` long shows that the first of the pieces was begun: else it was somebody else who changed
    /// it. A killed process has written a page or not.
    fn has_begun(&self, file: &Found<S>, pieces: &[Piece<Data<S::Fd>>], size: u64) -> bool {
        match pieces {
            [] => false,
            // A length that it had before shows nothing.
            [Piece::Truncate(to), rest @ ..] => {
                *to != size && file.attr.size == *to || self.has_begun(file, rest, size)
            }
            [Piece::Data(at, data), ..] => {
                let end = (at + data.len()).min(at + limits::PAGE - at % limits::PAGE);
                file.attr.size >= end
                    && (self.holds(file, &pieces[..1], *at, end) || self.holds(file, pieces, *at, end))
            }
        }
    }

    /// Whether the file has the bytes of the pieces between two offsets. Where pieces overlap, only the last
    /// one counts.
    fn holds(&self, file: &Found<S>, pieces: &[Piece<Data<S::Fd>>], from: u64, to: u64) -> bool {
        let Ok(fd) = self.sys().reopen(&file.fd, Mode::Read) else { return false };
        pieces.iter().enumerate().all(|(n, piece)| {
            let Piece::Data(at, data) = piece else { return true };
            let end = at + data.len();
            let overwritten = pieces[n + 1..].iter().any(|later| match later {
                Piece::Truncate(size) => *size < end,
                Piece::Data(start, d) => *start < end && start + d.len() > *at,
            });
            let (start, stop) = ((*at).max(from), end.min(to));
            overwritten || start >= stop || self.shows(&fd, start..stop, (*at, data))
        })
    }

    /// Whether a file has these bytes of what is written at an offset.
    fn shows(&self, fd: &S::Fd, range: Range<u64>, (at, data): (u64, &Data<S::Fd>)) -> bool {
        range.clone().step_by(limits::COPY_BUFFER).all(|from| {
            let mut there = vec![0; limits::COPY_BUFFER.min((range.end - from) as usize)];
            let wanted = data.part(self.sys(), from - at, there.len());
            self.read_all(fd, from, &mut there) == Ok(there.len())
                && wanted.is_ok_and(|wanted| wanted == there)
        })
    }

    /// What the pieces write to a range of a file.
    fn within(&self, pieces: &[Piece<Data<S::Fd>>], range: Range<u64>) -> Sysult<Vec<Piece<Bytes>>> {
        let part = |piece: &Piece<Data<S::Fd>>| {
            let Piece::Data(at, data) = piece else { return None };
            let (start, stop) = (range.start.max(*at), range.end.min(at + data.len()));
            let bytes = || data.part(self.sys(), start - at, (stop - start) as usize);
            (start < stop).then(|| bytes().map(|bytes| Piece::Data(start, bytes)))
        };
        pieces.iter().filter_map(part).collect()
    }

    /// Whether the file has nothing but zeros there. A power cut may keep a length and not what was done on the way to it.
    fn is_zero(&self, file: &Found<S>, range: Range<u64>) -> bool {
        let Ok(fd) = self.sys().reopen(&file.fd, Mode::Read) else { return false };
        let part = u64::from(limits::READ_MAX);
        range.clone().step_by(part as usize).all(|at| {
            let mut there = vec![0; part.min(range.end - at) as usize];
            self.read_all(&fd, at, &mut there) == Ok(there.len()) && there.iter().all(|b| *b == 0)
        })
    }
}

/// Whether these bytes, which a file has at an offset, all come from the pieces; in `zeros` they may be zeros.
fn are_of(there: &[u8], at: u64, pieces: &[Piece<Bytes>], zeros: Range<u64>) -> bool {
    let within = |offset: u64| (offset.saturating_sub(at) as usize).min(there.len());
    let mut ours: Vec<bool> =
        there.iter().zip(at..).map(|(byte, at)| *byte == 0 && zeros.contains(&at)).collect();
    for piece in pieces {
        let Piece::Data(from, data) = piece else { continue };
        let range = within(*from)..within(from + data.len() as u64);
        let skipped = at.saturating_sub(*from).min(data.len() as u64) as usize;
        let compared = ours[range.clone()].iter_mut().zip(&there[range]).zip(&data[skipped..]);
        compared.for_each(|((ours, there), wanted)| *ours |= there == wanted);
    }
    ours.into_iter().all(|ours| ours)
}

/// Where a file of `size` bytes has zeros after the pieces, because they cut away what it had there and made it longer again.
fn cut_away<F>(mut size: u64, pieces: &[Piece<Data<F>>]) -> Vec<Range<u64>> {
    let (mut zeros, mut longest) = (Vec::new(), size);
    for piece in pieces {
        // What is written, and how long the file is then.
        let (from, to, end) = match piece {
            Piece::Truncate(to) => (*to, u64::MAX, *to),
            Piece::Data(_, data) if data.len() == 0 => continue,
            Piece::Data(at, data) => (*at, at + data.len(), size.max(at + data.len())),
        };
        zeros.push(size..from.min(longest));
        let left = |zero: Range<u64>| [zero.start..zero.end.min(from), zero.start.max(to)..zero.end];
        zeros = zeros.into_iter().flat_map(left).filter(|zero| !zero.is_empty()).collect();
        (size, longest) = (end, longest.max(end));
    }
    zeros
}

/// The lengths that a file of `size` bytes has after each of the pieces.
fn lengths<F>(size: u64, pieces: &[Piece<Data<F>>]) -> impl Iterator<Item = u64> {
    (1..=pieces.len()).map(move |n| final_size(size, &pieces[..n]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_of_the_pieces_or_zeros_where_one_makes_the_file_longer() {
        let data = |at, bytes: &'static [u8]| Piece::Data(at, Bytes::from_static(bytes));
        let pieces = [Piece::Truncate(8), data(2, b"abc"), data(3, b"xy")];
        for (there, at, is_ours) in [
            (&b"\0\0abc\0\0\0"[..], 0, true),
            (b"\0\0axy\0\0\0", 0, true),
            // A part, and what came after it.
            (b"\0\0\0xy\0", 0, true),
            (b"bc\0", 3, true),
            (b"\0\0abd\0\0", 0, false),
            (b"others!!", 0, false),
            (b"\0\0abc\0\0o", 0, false),
            // Behind what any piece makes of it.
            (b"\0\0", 7, false),
        ] {
            assert_eq!(are_of(there, at, &pieces, 0..8), is_ours, "{there:?} at {at}");
        }
    }
}
