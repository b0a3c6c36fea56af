//! Bytes of files: what is written, in which parts, and in which order.

use super::apply::{After, Memo, all_done, put_attrs, refused, times_of};
use super::link::{Link, Pending};
use super::look::{about, known_here};
use super::wide::{Handle, put_open};
use super::wire::{self, Ask, Attrs};
use super::{Session, absolute};
use crate::op::{Outcome, Payload, Piece, Placed};
use crate::{Attr, Error, ErrorKind, HomePath, Kind, Loc, Result, Version};
use bytes::Bytes;
use futures_util::future::join_all;
use oncrpc::xdr::Writer;

/// How a file is opened that may be a pipe by now: one that is opened for reading, too, waits for nobody at its other end.
const TO_WRITE: u32 = wire::READ | wire::WRITE;

impl Session {
    pub(super) async fn write(
        &self,
        memo: &mut Memo,
        placed: &Placed,
        file: &Loc,
        base: Option<&Version>,
        pieces: &[Piece<Payload>],
    ) -> Result<Outcome> {
        known_here(file)?;
        let path = &file.path;
        let base = base.filter(|_| !placed.plain);
        let pieces = inline(pieces)?;
        let (there, opened) = self.look_and_open(path).await?;
        let Some(there) = there else {
            return match base {
                Some(_) => Ok(Outcome::Conflict(None)),
                None => refused(ErrorKind::NotFound),
            };
        };
        match there.kind {
            Kind::File => {}
            _ if base.is_some() => return Ok(Outcome::Conflict(Some(there))),
            Kind::Dir => return refused(ErrorKind::IsDir),
            _ => return refused(ErrorKind::Invalid),
        }
        if base.is_some_and(|base| !memo.matches(path, base, &there)) {
            return match placed.resent && self.is_written(path, &there, &pieces).await? {
                true => self.done(memo, Some(path), &[]).await,
                false => Ok(Outcome::Conflict(Some(there))),
            };
        }
        let handle = match opened {
            Some(opened) => opened,
            None => self.open(path, TO_WRITE, &Attrs::default()).await,
        };
        let handle = match handle {
            Err(e) if e.kind == ErrorKind::Access => self.open_forbidden(path, &there, e).await?,
            handle => handle?,
        };
        self.write_pieces(memo, placed, &there, (path, &handle), pieces).await
    }

    /// What there is under a path; opened, too, where it was a file when it was last seen, as in [`Session::bytes`].
    async fn look_and_open(&self, path: &HomePath) -> Result<(Option<Attr>, Option<Result<Handle>>)> {
        let _room = self.link.room(2, 0).await?;
        let known = self.files.lock().get(path).is_some();
        let look = self.link.send_about(Ask::Lstat, &absolute(path))?;
        let open = |w: &mut Writer| put_open(w, &absolute(path), TO_WRITE, &Attrs::default());
        let open = known.then(|| self.link.send(Ask::Open, open)).transpose()?;
        let there = self.found(path, look).await;
        let opened = match open {
            Some(open) => Some(open.handle().await.map(|handle| Handle::new(&self.link, handle))),
            None => None,
        };
        Ok((there?, opened))
    }

    /// A file, as it was found to be just now, that may not be read, or not be written to. The owner may write what is
    /// read-only to him, as programs that made it so expect.
    async fn open_forbidden(&self, path: &HomePath, there: &Attr, why: Error) -> Result<Handle> {
        let is_owner = self.account.ids.is_some_and(|(uid, _)| uid == there.uid);
        if !is_owner || there.mode & 0o200 != 0 {
            return match self.open(path, wire::WRITE, &Attrs::default()).await {
                Err(e) if e.kind == ErrorKind::Access => Err(why),
                opened => opened,
            };
        }
        let mode = |mode| Attrs { mode: Some(mode), ..Attrs::default() };
        self.ask_path(Ask::Setstat, path, &mode(there.mode | 0o200)).await?;
        let handle = self.open(path, wire::WRITE, &Attrs::default()).await;
        self.ask_path(Ask::Setstat, path, &mode(there.mode)).await?;
        handle
    }

    /// Writes, and only then gives the file its time. The part that ends last goes last, so that a file that was begun
    /// never has the length of one that is whole.
    async fn write_pieces(
        &self,
        memo: &mut Memo,
        placed: &Placed,
        there: &Attr,
        (path, handle): (&HomePath, &Handle),
        pieces: Vec<Flat>,
    ) -> Result<Outcome> {
        let mut plan = plan(pieces, self.link.can.write_max as usize);
        let last = match plan.last_mut() {
            Some(Step::Parts(parts)) => take_last(parts),
            _ => None,
        };
        let len = plan.iter().fold(there.size, |len, step| match step {
            Step::Truncate(size) => *size,
            Step::Parts(parts) => parts.iter().map(end).fold(len, u64::max),
        });
        let wrote = self.write_steps(handle, plan).await;
        wrote.map_err(|e| about(path, e))?;
        let _room = self.link.room(5, last.as_ref().map_or(0, |(_, data)| data.len())).await?;
        let mut finish = Vec::new();
        if let Some((at, data)) = last {
            let write = send_write(&self.link, &handle.bytes, at, &data)?;
            // If this fails, the length tells. Where it would not, the answer comes first.
            match at + data.len() as u64 > len {
                true => finish.push(write),
                false => write.done().await.map_err(|e| about(path, e))?,
            }
        }
        let set = Attrs { times: times_of(placed), ..Attrs::default() };
        finish.extend(self.send_finish(&handle.bytes, &set)?);
        let held = self.link.send_about(Ask::Fstat, &handle.bytes)?;
        let after = self.ask_after(Some(path), &[])?;
        all_done(finish).await.map_err(|e| about(path, e))?;
        let held = self.account.attr(&held.attrs().await?)?;
        self.written_after(memo, placed, (path, held), after).await
    }

    /// The outcome of a write to what is `held`. Where its name leads elsewhere by now, or nowhere, nobody will find there
    /// what was written.
    async fn written_after(
        &self,
        memo: &mut Memo,
        placed: &Placed,
        (path, held): (&HomePath, Attr),
        after: After<'_>,
    ) -> Result<Outcome> {
        let done = self.outcome(after).await?;
        let what = |attr: &Attr| (attr.kind, attr.size, attr.mtime.sec, attr.mode, attr.uid, attr.gid);
        if !placed.plain && done.attr.as_ref().map(what) != Some(what(&held)) {
            return Ok(Outcome::Conflict(done.attr));
        }
        Ok(memo.left_by(Some(path), done))
    }

    /// Over the first channel alone, through one handle: another one would open by its path what another program may have
    /// put there meanwhile.
    async fn write_steps(&self, handle: &Handle, plan: Vec<Step>) -> Result<()> {
        for step in plan {
            match step {
                Step::Truncate(size) => {
                    let attrs = Attrs { size: Some(size), ..Attrs::default() };
                    self.link.ask(Ask::Fsetstat, |w| put_attrs(w, &handle.bytes, &attrs)).await?;
                }
                Step::Parts(parts) => {
                    let writes = parts.into_iter().map(|(at, data)| self.write_part(handle, at, data));
                    // All have to end: one that is left behind could go over what comes after this write.
                    join_all(writes).await.into_iter().collect::<Result<()>>()?;
                }
            }
        }
        Ok(())
    }

    async fn write_part(&self, handle: &Handle, at: u64, data: Bytes) -> Result<()> {
        let _room = self.link.room(1, data.len()).await?;
        send_write(&self.link, &handle.bytes, at, &data)?.done().await
    }

    /// Whether the file already has what the pieces would write.
    async fn is_written(&self, path: &HomePath, there: &Attr, pieces: &[Flat]) -> Result<bool> {
        let Some(wanted) = visible(pieces) else { return Ok(false) };
        let long_enough = wanted.iter().all(|(at, data)| at + data.len() as u64 <= there.size);
        let size = pieces.iter().rev().find_map(|p| match p {
            Flat::Truncate(size) => Some(*size),
            Flat::Data(..) => None,
        });
        if !long_enough || size.is_some_and(|size| size > there.size) {
            return Ok(false);
        }
        let handle = self.open(path, wire::READ, &Attrs::default()).await?;
        for (at, data) in wanted {
            if self.read_parts(&handle, at, data.len()).await? != data {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

pub(super) fn send_write(link: &Link, handle: &[u8], at: u64, data: &[u8]) -> Result<Pending> {
    link.send(Ask::Write, |w| {
        wire::put_string(w, handle);
        w.u64(at);
        wire::put_string(w, data);
    })
}

/// What is written together.
pub(super) enum Step {
    Truncate(u64),
    /// In any order.
    Parts(Vec<(u64, Bytes)>),
}

/// Pieces in parts of at most so many bytes. Neighbours that do not overlap go together.
pub(super) fn plan(pieces: Vec<Flat>, part: usize) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    // Up to where the last step writes.
    let mut written: Vec<(u64, u64)> = Vec::new();
    for piece in pieces {
        let (at, data) = match piece {
            Flat::Truncate(size) => {
                steps.push(Step::Truncate(size));
                continue;
            }
            Flat::Data(at, data) => (at, data),
        };
        let end = at + data.len() as u64;
        let parts = (0..data.len()).step_by(part);
        let parts = parts.map(|i| (at + i as u64, data.slice(i..data.len().min(i + part))));
        match steps.last_mut() {
            Some(Step::Parts(last)) if written.iter().all(|(from, to)| end <= *from || *to <= at) => {
                last.extend(parts);
            }
            _ => {
                written.clear();
                steps.push(Step::Parts(parts.collect()));
            }
        }
        written.push((at, end));
    }
    steps
}

fn end((at, data): &(u64, Bytes)) -> u64 {
    at + data.len() as u64
}

/// The part that ends last.
fn take_last(parts: &mut Vec<(u64, Bytes)>) -> Option<(u64, Bytes)> {
    let last = (0..parts.len()).max_by_key(|i| end(&parts[*i]))?;
    Some(parts.swap_remove(last))
}

/// A piece with its bytes.
pub(super) enum Flat {
    Truncate(u64),
    Data(u64, Bytes),
}

pub(super) fn inline(pieces: &[Piece<Payload>]) -> Result<Vec<Flat>> {
    let flat = |piece: &Piece<Payload>| match piece {
        Piece::Truncate(size) => Ok(Flat::Truncate(*size)),
        Piece::Data(at, Payload::Inline(data)) if at.checked_add(data.len() as u64).is_some() => {
            Ok(Flat::Data(*at, data.clone()))
        }
        Piece::Data(_, Payload::Inline(_)) => Err(ErrorKind::TooBig.into()),
        Piece::Data(_, Payload::Staged(_) | Payload::Spooled(_)) => {
            Err(Error::new(ErrorKind::NotStaged, "an SFTP home holds no staged data"))
        }
    };
    pieces.iter().map(flat).collect()
}

/// The data that is left when all pieces are applied. `None` where they overlap, or cut each other.
fn visible(pieces: &[Flat]) -> Option<Vec<(u64, Bytes)>> {
    let mut data: Vec<(u64, Bytes)> = Vec::new();
    for piece in pieces {
        match piece {
            Flat::Truncate(size) if data.iter().any(|(at, d)| at + d.len() as u64 > *size) => return None,
            Flat::Truncate(_) => {}
            Flat::Data(at, bytes) => data.push((*at, bytes.clone())),
        }
    }
    data.sort_by_key(|(at, _)| *at);
    let apart = data.windows(2).all(|w| w[0].0 + w[0].1.len() as u64 <= w[1].0);
    apart.then_some(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visible_data_is_what_no_other_piece_touches() {
        let data = |at, text: &'static [u8]| Flat::Data(at, Bytes::from_static(text));
        let apart = visible(&[data(4, b"ef"), data(0, b"ab"), Flat::Truncate(10)]).unwrap();
        assert_eq!(apart.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 4]);
        assert!(visible(&[data(0, b"abc"), data(2, b"x")]).is_none());
        assert!(visible(&[data(0, b"abc"), Flat::Truncate(2)]).is_none());
    }

    #[test]
    fn pieces_that_do_not_overlap_go_together_and_the_end_goes_last() {
        let data = |at, len: usize| Flat::Data(at, Bytes::from(vec![0; len]));
        let shape = |steps: Vec<Step>| -> Vec<Vec<(u64, usize)>> {
            let parts = |step| match step {
                Step::Truncate(size) => vec![(size, 0)],
                Step::Parts(parts) => parts.iter().map(|(at, data)| (*at, data.len())).collect(),
            };
            steps.into_iter().map(parts).collect()
        };
        let apart = plan(vec![Flat::Truncate(0), data(10, 25), data(0, 10), data(35, 1)], 10);
        let together = vec![(10, 10), (20, 10), (30, 5), (0, 10), (35, 1)];
        assert_eq!(shape(apart), [vec![(0, 0)], together]);
        let over = plan(vec![data(0, 10), data(5, 10), data(20, 1), data(12, 1)], 10);
        assert_eq!(shape(over), [vec![(0, 10)], vec![(5, 10), (20, 1)], vec![(12, 1)]]);
        let mut parts: Vec<_> =
            [(20, 5), (24, 2), (0, 9)].map(|(at, n)| (at, Bytes::from(vec![0; n]))).into();
        assert_eq!(take_last(&mut parts).map(|(at, _)| at), Some(24));
        assert_eq!(parts.len(), 2);
    }
}
