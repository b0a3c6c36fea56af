//! Reading, writing, committing.

use super::live;
use super::object::strip_set_ids;
use crate::data::{Part, Pin, Room};
use crate::fetch::{Want, is_whole};
use crate::hold::held;
use crate::inode::{Inode, local};
use crate::journal::{INLINE_MAX, Stored};
use crate::mutate::{Ticket, come_again, keep_only_base};
use crate::overlay::changed;
use crate::sync::queue::demand::Demand;
use crate::sync::queue::objects;
use crate::types::{AppendOk, CommitOk, Ctx, Oid, ReadOk, Stability, Verifier, WriteOk};
use crate::volume::Volume;
use crate::{Vfs, limits, meta};
use bytes::Bytes;
use home::{Attr, Chunk, Error, ErrorKind, Kind, Op, Piece, Result};
use std::sync::Arc;
use std::time::Duration;

/// Where a write goes.
#[derive(Debug, Clone, Copy)]
enum Position {
    /// To this offset.
    At(u64),
    /// To the end that the file has in the critical section of the write.
    End,
}

impl Position {
    /// The offset in a file of `size` bytes; fails where `len` bytes would end beyond the largest file.
    fn in_file(self, size: u64, len: u64) -> Result<u64> {
        let at = match self {
            Position::At(at) => at,
            Position::End => size,
        };
        let end = at.checked_add(len).filter(|end| *end <= limits::FILE_MAX);
        end.map(|_| at).ok_or_else(|| ErrorKind::TooBig.into())
    }
}

/// A write that is asked for.
struct Write {
    file: u64,
    position: Position,
    data: Bytes,
    want: Stability,
}

/// A write that was taken, with attributes from inside its critical section.
struct Taken {
    at: u64,
    before: Option<crate::Before>,
    /// `None` where there was nothing to write.
    ticket: Option<Ticket>,
    after: Option<crate::FileAttr>,
    /// The answer may tell of it before its record is durable.
    covered: bool,
}

impl Vfs {
    /// At most `len` bytes from offset `at`; short only at the end of the file.
    pub async fn read(&self, ctx: Ctx<'_>, oid: Oid, at: u64, len: u32) -> Result<ReadOk> {
        if oid.volume == Oid::ROOT_VOLUME {
            return self.read_own(ctx, oid, at, len).await;
        }
        let volume = self.volume(oid)?;
        volume.ensure_attr(oid.id, volume.need_of_call(ctx, oid.id)).await?;
        for _ in 0..4 {
            let (shown, base_len) = {
                let mut tree = volume.tree.lock();
                let inode = live(&mut tree, oid.id)?;
                is_file(inode.kind)?;
                let attr = inode.attr.ok_or_else(|| Error::from(ErrorKind::Stale))?;
                volume.may_read_as(ctx, oid.id, &attr)?;
                let found = (volume.show(inode, &attr), inode.base_len);
                volume.lay_late(&mut tree, oid.id, Room::Within)?;
                keep_only_base(&mut tree, &volume.data, oid.id);
                found
            };
            let end = shown.size.min(at.saturating_add(u64::from(len.min(limits::IO_MAX))));
            if at >= end {
                return Ok(ReadOk { data: Vec::new(), eof: at >= shown.size, attr: shown });
            }
            let parts = zeros_beyond(volume.data.get(oid.id, at, (end - at) as u32), base_len);
            volume.read_ahead(oid.id, at, end, base_len);
            if is_whole(&parts) {
                if at == 0 {
                    volume.alike.touch(oid.id, base_len);
                }
                if at == 0 && base_len <= limits::SMALL_FILE {
                    volume.files_ahead(oid.id, true, &volume.need(oid.id));
                }
                return Ok(ReadOk { data: bytes_of(parts), eof: end == shown.size, attr: shown });
            }
            if at == 0 {
                let foreseen = volume.is_asked(&Want::Data(oid.id, 0));
                volume.files_ahead(oid.id, foreseen, &volume.need(oid.id));
            }
            volume.fill(oid.id, &parts).await?;
        }
        volume.read_around(ctx, oid.id, at, len).await
    }

    /// Takes bytes at offset `at`. With [`Stability::Stable`] they are stable when this returns.
    pub async fn write(
        &self,
        ctx: Ctx<'_>,
        oid: Oid,
        at: u64,
        data: Bytes,
        want: Stability,
    ) -> Result<WriteOk> {
        Ok(self.write_at(ctx, oid, Position::At(at), data, want).await?.written)
    }

    /// Takes bytes at the end of the file, wherever that is when they are taken: of several appends none overlaps
    /// another. Programs at the home know nothing of this; what they append meanwhile is a conflict, as with writes.
    pub async fn append(&self, ctx: Ctx<'_>, oid: Oid, data: Bytes, want: Stability) -> Result<AppendOk> {
        self.write_at(ctx, oid, Position::End, data, want).await
    }

    async fn write_at(
        &self,
        ctx: Ctx<'_>,
        oid: Oid,
        position: Position,
        data: Bytes,
        want: Stability,
    ) -> Result<AppendOk> {
        let volume = self.writable(oid)?;
        let count = u32::try_from(data.len()).ok().filter(|count| *count <= limits::IO_MAX);
        let count = count.ok_or_else(|| Error::from(ErrorKind::TooBig))?;
        volume.ensure_attr(oid.id, volume.need_of_call(ctx, oid.id)).await?;
        if !data.is_empty() && volume.leaves_a_hole(oid.id, position)? {
            volume.ensure_attr(oid.id, volume.need(oid.id)).await?;
        }
        let verifier = self.verifier(&volume);
        let needs = volume.growth(oid.id, position, u64::from(count))?;
        let admitted = volume.admit(oid.id, needs).await?;
        let taken = volume.take_write(ctx, Write { file: oid.id, position, data, want }).await?;
        drop(admitted);
        if want == Stability::Stable
            && let Some(ticket) = taken.ticket
        {
            if volume.shared.spool_from.is_some() {
                volume.tree.lock().queue.committed(oid.id);
            }
            volume.settled(ticket).await?;
            volume.kept(oid.id).await?;
        } else if let (false, Some(ticket)) = (taken.covered, taken.ticket) {
            // It was taken. Where the disk fails, the next one hears of it.
            let _ = volume.lane.synced(ticket.seq).await;
        }
        let through = volume.plain() && want == Stability::Stable;
        let after = if through { volume.shown_if_known(&volume.tree.lock(), oid.id) } else { taken.after };
        let wcc = crate::Wcc { before: taken.before, after };
        Ok(AppendOk { at: taken.at, written: WriteOk { count, stability: want, verifier, wcc } })
    }

    /// Makes everything that was written to a file stable.
    pub async fn commit(&self, _ctx: Ctx<'_>, oid: Oid) -> Result<CommitOk> {
        let volume = self.volume(oid)?;
        let (before, last) = {
            let mut tree = volume.tree.lock();
            let before = volume.before(&tree, oid.id);
            let inode = tree.get(oid.id)?;
            is_file(inode.kind)?;
            let last =
                if inode.pending > 0 || !volume.lane.is_synced(inode.last_seq) { inode.last_seq } else { 0 };
            tree.queue.committed(oid.id);
            if volume.plain() {
                tree.queue.hurry(last);
            }
            (before, last)
        };
        if last > 0 {
            volume.lane.synced(last).await.map_err(come_again)?;
            volume.is_found(last).await;
        }
        if volume.plain() {
            volume.wake.notify_one();
            volume.at_home(oid.id, last).await?;
            // Else a restart would look for what was committed, and might send it over what others did since.
            volume.lane.synced(volume.lane.last()).await.map_err(come_again)?;
        }
        let kept = volume.kept(oid.id).await;
        let mut tree = volume.tree.lock();
        tell_refusal(tree.get(oid.id)?)?;
        kept?;
        Ok(CommitOk { verifier: self.verifier(&volume), wcc: volume.wcc(&tree, oid.id, before) })
    }

    /// Makes the names in a directory as durable as the mode promises for what is committed.
    pub async fn commit_dir(&self, _ctx: Ctx<'_>, oid: Oid) -> Result<()> {
        match oid.volume {
            Oid::ROOT_VOLUME => Ok(()),
            _ => self.volume(oid)?.kept(oid.id).await,
        }
    }

    /// Changes exactly when acknowledged unstable writes of the volume may have been lost: in `strict`, where the home
    /// refuses one or its outcome stays unknown; in every mode, when the journal ends because it could not be synced.
    fn verifier(&self, volume: &Volume) -> Verifier {
        let ended = u64::from(volume.lane.poisoned().is_some());
        let losses = volume.losses.lock().wrapping_add(ended);
        (self.boot_verifier() ^ losses.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_be_bytes()
    }
}

impl Volume {
    /// Fetches the chunks that gaps lie in.
    async fn fill(self: &Arc<Self>, id: u64, parts: &[Part]) -> Result<()> {
        let mut wanted: Vec<u64> = Vec::new();
        for part in parts {
            if let Part::Gap { at, len } = part {
                let first = at / limits::FETCH_CHUNK;
                let last = (at + len - 1) / limits::FETCH_CHUNK;
                wanted.extend((first..=last).map(|c| c * limits::FETCH_CHUNK));
            }
        }
        wanted.dedup();
        let asks = wanted.into_iter().map(|at| self.ask(Want::Data(id, at), false));
        futures_util::future::try_join_all(asks).await.map(drop)
    }

    /// Mode `strict`: whether a write leaves out what is behind the end that a file with unsent writes is known to have. Others
    /// may have written there: from now on that end counts as not known.
    fn leaves_a_hole(&self, id: u64, position: Position) -> Result<bool> {
        let (true, Position::At(at)) = (self.plain(), position) else { return Ok(false) };
        let mut tree = self.tree.lock();
        let attr = Volume::attr_of(&mut tree, id)?;
        let leaves = at > length(&tree, id, attr.size);
        let inode = tree.get(id)?;
        let is_guess = leaves && inode.kind == Kind::File && inode.pending > 0;
        inode.recalled |= is_guess;
        Ok(is_guess)
    }

    /// How many of `count` bytes would be behind the end of a file.
    fn growth(&self, id: u64, position: Position, count: u64) -> Result<Demand> {
        let mut tree = self.tree.lock();
        let attr = Volume::attr_of(&mut tree, id)?;
        let size = length(&tree, id, attr.size);
        let end = position.in_file(size, count)?.saturating_add(count);
        Ok(Demand { bytes: end.saturating_sub(size).min(count), files: 0 })
    }

    /// Keeps a sequential reader ahead of the home.
    fn read_ahead(self: &Arc<Self>, id: u64, at: u64, end: u64, base_len: u64) {
        let ahead = {
            let mut tree = self.tree.lock();
            let Ok(inode) = tree.get(id) else { return };
            inode.front.reads(at, end)
        };
        let next = end.div_ceil(limits::FETCH_CHUNK);
        let starts = (next..next + ahead).map(|chunk| chunk * limits::FETCH_CHUNK);
        let is_missing = |at: &u64| {
            let len = limits::FETCH_CHUNK.min(base_len - at);
            !self.data.gaps(id, *at, len).is_empty()
        };
        let mut missing = starts.take_while(|at| *at < base_len).filter(is_missing).peekable();
        // Who reads what is in the cache has no business with the connection.
        if missing.peek().is_none() {
            return;
        }
        let carried = |window: u64| window.div_ceil(limits::FETCH_CHUNK) + limits::READ_AHEAD_MORE;
        let most = self.home.window().map_or(limits::READ_AHEAD_CHUNKS, carried);
        let last = (next + most) * limits::FETCH_CHUNK;
        missing.take_while(|at| *at < last).for_each(|at| self.ask_ahead(Want::Data(id, at)));
    }

    /// Reads past the cache: it is full of what must not be dropped.
    async fn read_around(self: &Arc<Self>, ctx: Ctx<'_>, id: u64, at: u64, len: u32) -> Result<ReadOk> {
        let (shown, base, base_len) = {
            let mut tree = self.tree.lock();
            let attr = Volume::attr_of(&mut tree, id)?;
            self.may_read_as(ctx, id, &attr)?;
            let shown = self.shown(&mut tree, id)?;
            let inode = tree.get(id)?;
            (shown, inode.base.filter(|_| inode.pending == 0), inode.base_len)
        };
        let end = shown.size.min(at.saturating_add(u64::from(len.min(limits::IO_MAX))));
        let mut data = Vec::new();
        for part in zeros_beyond(self.data.get(id, at, end.saturating_sub(at) as u32), base_len) {
            match part {
                Part::Have(bytes) => data.push(bytes),
                Part::Gap { at, len } => {
                    let Chunk { attr, data: bytes } = self.read_through(id, at, len as u32).await?;
                    let other = base.is_some_and(|base| base != attr.version());
                    if other || (bytes.len() as u64) < len {
                        return Err(Error::new(ErrorKind::Busy, "the file changed while it was read"));
                    }
                    data.push(bytes);
                }
                Part::Lost { at, .. } => return Err(lost(at)),
            }
        }
        Ok(ReadOk { data, eof: end >= shown.size, attr: shown })
    }

    /// Puts bytes into the data log and the journal. While the volume's unsent data are nearly all that they may be the
    /// writer is slowed down; while they are he waits in line, and then is told to come again.
    async fn take_write(self: &Arc<Self>, ctx: Ctx<'_>, write: Write) -> Result<Taken> {
        let share = self.data.share();
        let len = write.data.len() as u64;
        let free = || len <= limits::SMALL_WRITE || share.line().is_empty();
        let pause = share.pause(len, self.env.clock.instant());
        let taken = async {
            if !self.passes(&write) && pause > Duration::ZERO && free() {
                tokio::time::sleep(pause).await;
            }
            match self.try_write(ctx, &write, free())? {
                Some(taken) => Ok(taken),
                None => self.write_in_turn(ctx, &write).await,
            }
        };
        let is_stuck = || share.is_stuck(self.env.clock.instant());
        held(pause + limits::HOLD, is_stuck, taken).await.unwrap_or_else(|| {
            Err(Error::new(
                ErrorKind::Full,
                "the cache or its disk is full of changes that the home does not have",
            ))
        })
    }

    async fn write_in_turn(self: &Arc<Self>, ctx: Ctx<'_>, write: &Write) -> Result<Taken> {
        let place = self.data.share().line().stand(write.file);
        // What is at home already may make room as soon as that is durable here.
        self.lane.hurry();
        loop {
            // Nor does what would make room wait for company.
            self.tree.lock().queue.hurry(self.lane.last());
            self.wake.notify_one();
            place.turn().await;
            if let Some(taken) = self.try_write(ctx, write, true)? {
                place.served();
                return Ok(taken);
            }
        }
    }

    /// Mode `strict`: whether the caller waits for the home, so that nothing has to be kept here.
    fn passes(&self, write: &Write) -> bool {
        self.plain() && write.want == Stability::Stable
    }

    /// Takes a write if there is room; for what goes to the cache also only `in_turn`.
    fn try_write(self: &Arc<Self>, ctx: Ctx<'_>, write: &Write, in_turn: bool) -> Result<Option<Taken>> {
        let Write { file: id, position, data, .. } = write;
        let (id, len) = (*id, data.len() as u64);
        let mut tree = self.tree.lock();
        let before = self.before(&tree, id);
        let attr = Volume::attr_of(&mut tree, id)?;
        is_file(attr.kind)?;
        self.may_write_as(ctx, id, &attr)?;
        self.guard.lock().clone().check_object(&mut tree, id)?;
        tell_refusal(tree.get(id)?)?;
        let at = position.in_file(length(&tree, id, attr.size), len)?;
        if data.is_empty() {
            let after = self.shown_if_known(&tree, id);
            return Ok(Some(Taken { at, before, ticket: None, after, covered: true }));
        }
        if self.passes(write) && self.lane.has_room(0) {
            let stored = Stored::Inline(data.clone());
            let ticket = self.write_record(&mut tree, ctx, id, (at, stored), data)?;
            return Ok(Some(Taken { at, before, ticket: Some(ticket), after: None, covered: true }));
        }
        keep_only_base(&mut tree, &self.data, id);
        let inline = if data.len() <= INLINE_MAX { len } else { 0 };
        let fits = in_turn && self.data.share().takes_unsent(len) && self.lane.has_room(inline);
        if !fits || self.passes(write) {
            return Ok(None);
        }
        match self.data.put(id, at, std::slice::from_ref(data), Pin::Dirty) {
            Ok(extent) => {
                let ticket = self.write_record(&mut tree, ctx, id, (at, Stored::Extent(extent)), data)?;
                let after = self.shown_if_known(&tree, id);
                let durable = self.lane.durable();
                let covered = after.is_none_or(|after| tree.ctimes.covers(after.mtime, durable));
                Ok(Some(Taken { at, before, ticket: Some(ticket), after, covered }))
            }
            Err(crate::env::Error::Full(_)) => Ok(None),
            Err(e) => Err(local(e)),
        }
    }

    fn write_record(
        &self,
        tree: &mut crate::inode::Tree,
        ctx: Ctx<'_>,
        id: u64,
        (at, stored): (u64, Stored),
        data: &Bytes,
    ) -> Result<Ticket> {
        let time = self.env.clock.now();
        let inode = live(tree, id)?;
        let attr = inode.attr.ok_or_else(|| Error::from(ErrorKind::Stale))?;
        let end = at + data.len() as u64;
        let size = attr.size.max(end);
        let used = (attr.used + data.len() as u64).min(size.next_multiple_of(4096)).max(attr.used);
        let last = meta::shown_ctime(inode, &attr);
        let after =
            Attr { size, used, mtime: time, mode: strip_set_ids(&attr), ..changed(&attr, last, time) };
        let through = matches!(stored, Stored::Inline(_));
        let op = Op::Write { file: id, base: inode.base, pieces: vec![Piece::Data(at, stored)] };
        let inline = (data.len() <= INLINE_MAX).then(|| data.clone());
        let change = self.change(ctx, time, id, Some(after), op);
        match through {
            true => self.submit_through(tree, (ctx.origin, change)),
            false => self.submit_write(tree, (ctx.origin, change), inline),
        }
    }

    /// What commits an object waits for beyond its own journal: in mode `cto` for all that was accepted before.
    async fn kept(&self, id: u64) -> Result<()> {
        match self.mode_of(id).commits_at_home() {
            true => self.committed_at_home().await,
            false => Ok(()),
        }
    }

    /// Waits until nothing of an object up to record `last` is unsent.
    pub(super) async fn at_home(&self, id: u64, last: u64) -> Result<()> {
        let _awaits = self.awaits();
        let mut outcomes = self.outcomes.subscribe();
        loop {
            outcomes.borrow_and_update();
            if !self.is_unsent(id, last) {
                return Ok(());
            }
            // The time is for a home that does not answer at all.
            let _ = tokio::time::timeout(limits::OUTCOME_PATIENCE, outcomes.changed()).await;
            if let Some(why) = self.lane.poisoned() {
                return Err(Error::new(ErrorKind::Io, why));
            }
            if let Some(why) = self.superseded() {
                return Err(Error::new(ErrorKind::Io, why));
            }
            if self.is_given_up() {
                return Err(self.out_of_reach(None));
            }
        }
    }

    fn is_unsent(&self, id: u64, last: u64) -> bool {
        let mut tree = self.tree.lock();
        tree.get(id).is_ok_and(|n| n.pending > 0)
            && tree
                .queue
                .iter()
                .take_while(|(seq, _)| *seq <= last)
                .any(|(_, p)| objects(&p.change).any(|object| object == id))
    }
}

/// The length of a file of `size` bytes when all writes are done that nobody sees yet.
fn length(tree: &crate::inode::Tree, id: u64, size: u64) -> u64 {
    let hidden = tree.queue.hidden().filter(|p| p.change.object == id);
    hidden.fold(size, |size, p| crate::overlay::length_after(size, &p.change))
}

fn is_file(kind: Kind) -> Result<()> {
    match kind {
        Kind::File => Ok(()),
        Kind::Dir => Err(ErrorKind::IsDir.into()),
        _ => Err(ErrorKind::Invalid.into()),
    }
}

/// Tells a caller once that the home refused a write to the file which had been taken.
fn tell_refusal(inode: &mut Inode) -> Result<()> {
    match inode.refused.take() {
        None => Ok(()),
        Some(kind) => Err(Error::new(kind, "the home refused a write that had been taken")),
    }
}

/// Where the home has no bytes and we wrote none, there are zeros.
fn zeros_beyond(parts: Vec<Part>, base_len: u64) -> Vec<Part> {
    let mut out = Vec::with_capacity(parts.len());
    for part in parts {
        match part {
            Part::Gap { at, len } if at + len > base_len => {
                let known = base_len.saturating_sub(at).min(len);
                if known > 0 {
                    out.push(Part::Gap { at, len: known });
                }
                out.push(Part::Have(Bytes::from(vec![0; (len - known) as usize])));
            }
            part => out.push(part),
        }
    }
    out
}

fn bytes_of(parts: Vec<Part>) -> Vec<Bytes> {
    parts.into_iter().filter_map(|p| if let Part::Have(b) = p { Some(b) } else { None }).collect()
}

/// Bytes that only we had and that the local disk does not give back.
pub(crate) fn lost(at: u64) -> Error {
    Error::new(ErrorKind::Io, format!("unsent bytes at {at} are damaged on the local disk"))
}
