//! Changes: a batch of operations, each executed and then made durable together.
//!
//! # Layout
//! - this file: the order of a batch, what is synced and restored at its end.
//! - [`create`]: new objects and further names.
//! - [`content`]: changes of content: which way, and in place.
//! - [`half_done`]: what an earlier execution left of a change of content.
//! - [`exchange`]: changes of content in a copy that then takes the file's place.
//! - [`ctimes`]: what tells of changes under an old length and time.
//! - [`names`]: removal and renaming.
//! - [`attrs`]: mode, group and times. [`xattrs`]: extended attributes.
//! - [`recover`]: what an agent left that was killed in the middle of an operation.
//! - [`staging`]: private directories for copies and for what was moved aside.
//!
//! # Two ways
//! A `plain` operation does what a local program would. The others never destroy what the gateway has not
//! read: the old object is first taken out of its place by an atomic rename, then verified, and only
//! then disposed of. What is not as expected goes back, and the outcome is a conflict.
//!
//! Executing is idempotent: an operation that is found done says so, because the answer to its
//! first execution may have been lost.

pub(super) mod attrs;
pub(super) mod content;
pub(super) mod create;
pub(super) mod ctimes;
pub(super) mod exchange;
pub(super) mod half_done;
pub(super) mod names;
pub(super) mod recover;
pub(super) mod staging;
pub(super) mod xattrs;

use super::claim::{self, Claim};
use super::resolve::Found;
use super::step::Step;
use super::sys::{Make, Stamp, Sys, Sysult};
use super::{Posix, lock};
use crate::attr::{Attr, HomeId, Kind, Time, Version};
use crate::error::{Error, ErrorKind, Result};
use crate::op::{Done, Op, Outcome, Payload, Piece, Placed, Spooled};
use crate::posix::spool::{self, Data};
use crate::{HomePath, Loc, Name, OpId, limits};
use rustix::io::Errno;
use staging::Staging;
use std::collections::HashMap;
use std::sync::atomic::Ordering;

/// Why an operation was not done.
pub(super) enum Fail {
    /// Something else is there.
    Conflict(Option<Attr>),
    /// The home does not do it.
    Refused(ErrorKind),
}

/// The result of a step of an operation.
pub(super) type Act<T> = std::result::Result<T, Fail>;

impl From<Error> for Fail {
    fn from(e: Error) -> Fail {
        Fail::Refused(e.kind)
    }
}

impl From<Errno> for Fail {
    fn from(e: Errno) -> Fail {
        match e {
            // A mount point or a swap file is in use for good: to try again does not help.
            Errno::BUSY => Fail::Refused(ErrorKind::TextBusy),
            e => Fail::Refused(Error::from_errno(e.raw_os_error(), "").kind),
        }
    }
}

impl From<ErrorKind> for Fail {
    fn from(kind: ErrorKind) -> Fail {
        Fail::Refused(kind)
    }
}

/// A directory that was changed.
struct Touched<S: Sys> {
    fd: S::Fd,
    id: HomeId,
    /// The modification time that it shall have after the batch.
    restore: Option<Time>,
}

/// A file that was changed.
struct Open<S: Sys> {
    fd: S::Fd,
    id: HomeId,
    /// Whether the descriptor can write, so that later operations of the batch use it.
    writes: bool,
}

/// What one batch has under way.
pub(super) struct Batch<'a, S: Sys> {
    home: &'a Posix<S>,
    touched: Vec<Touched<S>>,
    open: Vec<Open<S>>,
    stagings: Vec<Staging<S>>,
    /// File systems with effects of an earlier execution that may not be durable.
    file_systems: Vec<(u64, S::Fd)>,
    /// How a sync failed that an operation needed. The kernel tells it once, and any operation before may have lost bytes.
    sync_failed: Option<Errno>,
    /// Our right to do this, where it was claimed.
    claim: Option<&'a mut Claim<S>>,
    /// What the names of staging directories end with, by which the next agent that claims the volume finds them: also those of
    /// one that could not claim it.
    mark: Vec<u8>,
    /// What the batch's operations left at a place: what later ones mean that know no identity.
    left_at: HashMap<HomePath, HomeId>,
    /// Objects that the operation that is being executed has found, and their ctimes before it.
    found: Vec<(HomeId, Time)>,
    /// Files made by the operation that is being executed.
    made: bool,
    /// Whether the operation that is being executed set the time of a file whose content is ours.
    stamped: bool,
    /// The file in whose place the operation that is being executed put another.
    succeeds: Option<HomeId>,
    results: Vec<Executed>,
    /// How many of `results` are durable.
    settled: usize,
}

/// An operation with its outcome.
struct Executed {
    op: OpId,
    outcome: Outcome,
    /// Whether the outcome comes from an earlier execution, and is durable.
    repeated: bool,
}

/// Executes operations in order; see [`crate::Home::apply`].
pub(super) fn apply<S: Sys>(home: &Posix<S>, ops: Vec<Placed>) -> Result<Vec<Outcome>> {
    let _one_at_a_time = lock(&home.applying);
    check_staged(home, &ops)?;
    home.watches.begin(&ops);
    let outcomes = execute(home, &ops);
    home.watches.end(&ops, outcomes.as_deref().unwrap_or_default());
    outcomes
}

/// Executes a batch, of which nobody is told as of a change.
fn execute<S: Sys>(home: &Posix<S>, ops: &[Placed]) -> Result<Vec<Outcome>> {
    let mut claims = lock(&home.claims);
    let mut claim = match ops.first().map(|first| volume_of(first.id)) {
        Some(volume) if ops.iter().all(|placed| volume_of(placed.id) == volume) => claims.get_mut(&volume),
        Some(_) => return Err(Error::new(ErrorKind::Invalid, "a batch of several volumes")),
        None => None,
    };
    match (&mut claim, ops.first()) {
        (Some(claim), _) => claim.enter(home)?,
        (None, Some(first)) => claim::enter_unfenced(home, volume_of(first.id))?,
        (None, None) => {}
    }
    let mut batch = Batch::new(home, claim);
    batch.mark = ops.first().map(|first| claim::mark(volume_of(first.id))).unwrap_or_default();
    batch.take_back_exchanges(ops);
    for placed in ops {
        if !batch.may_go_on(placed.id) || !batch.run(placed) {
            break;
        }
        if batch.touched.len() + batch.open.len() >= limits::BATCH_OPEN && !batch.settle() {
            break;
        }
    }
    batch.settle();
    let results = std::mem::take(&mut batch.results);
    if let Some(claim) = &batch.claim {
        claim.leave(&home.sys);
    }
    drop(batch);
    remember(home, ops, &results);
    Ok(results.into_iter().map(|r| r.outcome).collect())
}

fn volume_of(op: OpId) -> claim::Volume {
    (op.gateway, op.volume)
}

/// Refuses the whole batch while nothing has happened.
fn check_staged<S: Sys>(home: &Posix<S>, ops: &[Placed]) -> Result<()> {
    let mut spooled = Vec::new();
    {
        let memo = lock(&home.memo);
        let staged = lock(&home.staged);
        for placed in ops.iter().filter(|p| memo.outcome(p.id).is_none()) {
            let Op::Write { pieces, .. } = &placed.op else { continue };
            spooled.extend(spool::used(pieces));
            for piece in pieces {
                if let Piece::Data(_, Payload::Staged(range)) = piece
                    && !staged.holds(range)
                {
                    return Err(ErrorKind::NotStaged.into());
                }
            }
        }
    }
    // Without these locks: it may have to read much.
    match spooled.into_iter().all(|spooled| home.is_whole(spooled)) {
        true => Ok(()),
        false => Err(ErrorKind::NotStaged.into()),
    }
}

/// Keeps the outcomes of what was done, and drops the staged bytes that it used. What of them lies on disk goes in any case: who
/// hears of a refusal or a conflict stages anew, and may need its room.
fn remember<S: Sys>(home: &Posix<S>, ops: &[Placed], results: &[Executed]) {
    let new = || ops.iter().zip(results).filter(|(_, result)| !result.repeated);
    note_done(home, new().filter(|(_, result)| matches!(result.outcome, Outcome::Done(_))));
    // Without these locks: the disk is asked to remove them.
    for (placed, _) in new() {
        let Op::Write { pieces, .. } = &placed.op else { continue };
        for spooled in spool::used(pieces) {
            home.unspool(spooled.range.op);
        }
    }
}

fn note_done<'r, S: Sys>(home: &Posix<S>, done: impl Iterator<Item = (&'r Placed, &'r Executed)>) {
    let mut memo = lock(&home.memo);
    let mut staged = lock(&home.staged);
    for (placed, result) in done {
        // What it left is noted since it ended; later operations may have changed it.
        memo.done(result.op, &result.outcome, None);
        let Op::Write { pieces, .. } = &placed.op else { continue };
        for piece in pieces {
            if let Piece::Data(_, Payload::Staged(range)) = piece {
                staged.forget(range.op);
            }
        }
    }
}

impl<'a, S: Sys> Batch<'a, S> {
    fn new(home: &'a Posix<S>, claim: Option<&'a mut Claim<S>>) -> Self {
        Batch {
            home,
            touched: Vec::new(),
            open: Vec::new(),
            stagings: Vec::new(),
            file_systems: Vec::new(),
            sync_failed: None,
            left_at: HashMap::new(),
            found: Vec::new(),
            claim,
            mark: Vec::new(),
            made: false,
            stamped: false,
            succeeds: None,
            results: Vec::new(),
            settled: 0,
        }
    }

    /// Whether whoever sent the batch is still there, and nobody has taken the volume over.
    fn may_go_on(&self, next: OpId) -> bool {
        let is_ours = || match &self.claim {
            Some(claim) => claim.holds(self.home),
            None => !claim::is_fenced_since(self.home, volume_of(next)),
        };
        !self.home.leaving.load(Ordering::Relaxed) && is_ours()
    }

    /// Executes one operation; whether it was done.
    fn run(&mut self, placed: &Placed) -> bool {
        // Not held while it is made durable: to find a directory needs it, too.
        let first = lock(&self.home.memo).outcome(placed.id).cloned();
        if let Some(first) = first {
            self.note_place(&placed.op, &first);
            if let Outcome::Done(done) = &first {
                lock(&self.home.memo).moved_before(done);
            }
            let unsettled = self.claim.as_ref().is_some_and(|claim| claim.is_unsettled(placed.id.seq));
            if unsettled && let Err(Fail::Refused(kind)) = self.secure(placed) {
                let outcome = Outcome::Refused(kind);
                self.results.push(Executed { op: placed.id, outcome, repeated: true });
                return false;
            }
            self.results.push(Executed { op: placed.id, outcome: first, repeated: !unsettled });
            return true;
        }
        (self.made, self.stamped, self.succeeds) = (false, false, None);
        self.found.clear();
        if let Some(claim) = &mut self.claim {
            claim.begin(&self.home.sys, placed.id.seq);
        }
        let outcome = match self.execute(placed) {
            Ok(done) => Outcome::Done(done),
            Err(Fail::Conflict(there)) => self.shown(placed, there),
            Err(Fail::Refused(kind)) => Outcome::Refused(kind),
        };
        let outcome = self.with_ctimes(placed, outcome);
        let done = matches!(outcome, Outcome::Done(_));
        self.note_place(&placed.op, &outcome);
        if let Outcome::Done(done) = &outcome
            && let Some(attr) = placed.op.leaves(done.attr)
        {
            lock(&self.home.memo).left(&attr, self.made);
        }
        if let Some(claim) = &mut self.claim {
            let wrote = self.stamped
                || matches!(&outcome, Outcome::Done(done) if placed.op.leaves(done.attr).is_some());
            let (seq, made, outcome) = (placed.id.seq, self.made, outcome.clone());
            claim.end(&self.home.sys, claim::Ended { seq, outcome, wrote, made, succeeds: self.succeeds });
        }
        self.results.push(Executed { op: placed.id, outcome, repeated: false });
        done
    }

    /// A conflict with what is there, or with nothing. It may be what the operation comes to, and then the gateway drops its
    /// own bytes: so what is told of is made durable first.
    fn shown(&mut self, placed: &Placed, there: Option<Attr>) -> Outcome {
        match self.sync_shown(placed, there.as_ref()) {
            Err(Fail::Refused(ErrorKind::Io)) => Outcome::Refused(ErrorKind::Io),
            // What we may not open, nobody reads over us; a place that is gone holds nothing.
            _ => Outcome::Conflict(there),
        }
    }

    fn sync_shown(&mut self, placed: &Placed, there: Option<&Attr>) -> Act<()> {
        let place = placed.op.leaves_at();
        let (_, dir, name) = self.parent(&place)?;
        if placed.resent && self.home.is_broken(dir.attr.id.fs) {
            return Err(ErrorKind::Io.into());
        }
        let found = self.home.find_in(&dir.fd, &name)?;
        if let Some(found) = found.filter(|found| there.is_some_and(|there| there.id == found.attr.id)) {
            self.sync_attrs(placed, &Loc { path: place, id: None }, found)?;
        }
        self.restore_later(&dir, None, false).map(drop)
    }

    /// Notes which object an operation left where.
    fn note_place(&mut self, op: &Op<Loc, Payload>, outcome: &Outcome) {
        let Outcome::Done(done) = outcome else { return };
        let place = op.leaves_at();
        match op {
            Op::Rename { from, name, .. } => {
                let old = from.path.join(name);
                self.left_at.remove(&old);
                if done.attr.is_some_and(|attr| attr.kind == Kind::Dir) {
                    self.move_left(&old, &place);
                }
            }
            Op::Remove { .. } => {
                self.left_at.remove(&place);
                return;
            }
            _ => {}
        }
        if let Some(attr) = done.attr {
            self.left_at.insert(place, attr.id);
        }
    }

    /// Everything in a directory has another path now.
    fn move_left(&mut self, old: &HomePath, new: &HomePath) {
        let prefix = [old.as_bytes(), b"/"].concat();
        let inside: Vec<HomePath> =
            self.left_at.keys().filter(|p| p.as_bytes().starts_with(&prefix)).cloned().collect();
        for path in inside {
            let below = [new.as_bytes(), b"/", &path.as_bytes()[prefix.len()..]].concat();
            if let (Some(id), Ok(path)) = (self.left_at.remove(&path), HomePath::parse(&below)) {
                self.left_at.insert(path, id);
            }
        }
    }

    /// The identity of what an operation means by a place.
    fn meant(&self, at: &Loc) -> Option<HomeId> {
        at.id.or_else(|| self.left_at.get(&at.path).copied())
    }

    /// What an earlier agent did and perhaps did not make durable becomes so with this batch.
    fn secure(&mut self, placed: &Placed) -> Act<()> {
        for dir in placed.op.dirs() {
            if let Ok(found) = self.home.find_dir(dir) {
                self.touch(&found, placed)?;
            }
        }
        // Later operations may have moved or removed it: what is left of its path is on its file system.
        let mut at = placed.op.place().path.clone();
        loop {
            // Only directories: to open a device or a FIFO does something.
            match self.home.find_dir(&Loc { path: at.clone(), id: None }) {
                Ok(dir) => {
                    if self.file_systems.iter().all(|(known, _)| *known != dir.attr.id.fs) {
                        self.file_systems.push((dir.attr.id.fs, dir.fd));
                    }
                    return Ok(());
                }
                Err(e) => at = at.split().ok_or(e)?.0,
            }
        }
    }

    fn execute(&mut self, placed: &Placed) -> Act<Done> {
        match &placed.op {
            Op::Create { dir, name, new, mode } => self.create(placed, dir, name, new, *mode),
            Op::Write { file, base, pieces } => self.write(placed, file, base.as_ref(), pieces),
            Op::SetAttr { object, base, set } => self.set_attr(placed, object, base.as_ref(), set),
            Op::Remove { dir, name, object, is_dir, base } => {
                self.remove(placed, dir, name, object, *is_dir, base.as_ref())
            }
            Op::Rename { from, name, object, to, new_name, replaced } => {
                let replaced = replaced.as_ref().map(|(loc, base)| (loc, base.as_ref()));
                self.rename(placed, (from, name), object, (to, new_name), replaced)
            }
            Op::Link { object, dir, name } => self.link(placed, object, dir, name),
            Op::SetXattr { object, name, value, how } => {
                self.set_xattr(placed, object, name, value.as_ref(), *how)
            }
        }
    }

    /// Whether an agent that was killed began this operation.
    fn was_begun(&self, placed: &Placed) -> bool {
        placed.resent && self.claim.as_ref().is_some_and(|claim| claim.was_begun(placed.id.seq))
    }

    fn sys(&self) -> &'a S {
        &self.home.sys
    }

    /// Notes that a directory was changed at `time`, and answers its attributes.
    fn touch(&mut self, dir: &Found<S>, placed: &Placed) -> Act<Attr> {
        self.restore_later(dir, (!placed.plain).then_some(placed.time), true)
    }

    /// Notes that a directory's time was disturbed by our own doings alone.
    fn disturb(&mut self, dir: &Found<S>, placed: &Placed) -> Act<Attr> {
        let before = self.undisturbed(dir.attr.id, dir.attr.mtime);
        self.restore_later(dir, (!placed.plain).then_some(before), false)
    }

    fn restore_later(&mut self, dir: &Found<S>, time: Option<Time>, replace: bool) -> Act<Attr> {
        let account = &self.home.account;
        let time = time.filter(|_| account.uid == 0 || account.uid == dir.attr.uid);
        match self.touched.iter_mut().find(|t| t.id == dir.attr.id) {
            Some(known) if replace => known.restore = time,
            Some(_) => {}
            None => {
                let fd = self.sys().open_name(&dir.fd, b".")?;
                self.touched.push(Touched { fd, id: dir.attr.id, restore: time });
            }
        }
        Ok(self.home.attr_of(&dir.fd)?)
    }

    /// Notes that a file must be synced, and keeps its descriptor for later operations.
    fn keep_open(&mut self, fd: S::Fd, id: HomeId, writes: bool) {
        self.sys().write_back(&fd, false);
        match self.open.iter_mut().find(|o| o.id == id) {
            Some(known) if known.writes => {}
            Some(known) => *known = Open { fd, id, writes },
            None => self.open.push(Open { fd, id, writes }),
        }
    }

    /// Makes everything so far durable; whether it worked. A failed sync is the outcome of the first
    /// operation that it may have hit, and the rest counts as not executed.
    fn settle(&mut self) -> bool {
        self.remove_stagings();
        let synced = self.sync_all();
        if let Err(Fail::Refused(kind)) = synced {
            let fresh = || self.results.iter().skip(self.settled).filter(|r| !r.repeated);
            // What an earlier agent had done of them is to be done again, too.
            fresh().for_each(|r| lock(&self.home.memo).forget(r.op));
            if let Some(claim) = &mut self.claim {
                claim.unsettle(&self.home.sys, fresh().map(|r| r.op.seq));
            }
            let first =
                self.results.iter().skip(self.settled).position(|r| !r.repeated).map(|n| n + self.settled);
            if let Some(first) = first {
                self.results.truncate(first + 1);
                self.results[first].outcome = Outcome::Refused(kind);
            }
        }
        self.refresh();
        if let (Ok(()), Some(claim)) = (&synced, &mut self.claim) {
            let done = self.results.iter().skip(self.settled).filter(|r| !r.repeated).map(|r| r.op.seq);
            claim.settle(&self.home.sys, done);
        }
        self.settled = self.results.len();
        self.file_systems.clear();
        self.touched.clear();
        self.open.clear();
        synced.is_ok()
    }

    fn sync_all(&mut self) -> Act<()> {
        if !self.home.takes(Step::SyncAll) {
            return Ok(());
        }
        if let Some(e) = self.sync_failed.take() {
            return Err(e.into());
        }
        for (fs, fd) in &self.file_systems {
            self.home.note_sync(*fs, self.home.sys.sync_file_system(fd))?;
        }
        // With all data on its way first, one commit of the file system's journal serves many files.
        for file in &self.open {
            self.home.sys.write_back(&file.fd, true);
        }
        for file in &self.open {
            self.home.note_sync(file.id.fs, self.home.sys.sync(&file.fd))?;
        }
        for dir in &self.touched {
            self.prove_changeable(dir)?;
            if let Some(time) = dir.restore {
                // Without it only a listing is fetched again.
                self.home.sys.set_times(&dir.fd, Stamp::Keep, Stamp::At(time)).ok();
            }
            self.home.note_sync(dir.id.fs, self.home.sync_dir(&dir.fd))?;
        }
        Ok(())
    }

    /// Fails where names that were changed in a directory cannot become durable any more, although its sync succeeds: ext4
    /// takes no further change once its journal has ended.
    fn prove_changeable(&self, dir: &Touched<S>) -> Sysult<()> {
        if !self.home.is_unsynced(dir.id.fs) {
            return Ok(());
        }
        let name = self.unique(staging::PREFIX)?;
        match self.sys().make(&dir.fd, &name, Make::Dir(0o700)) {
            Ok(()) => self.sys().unlink(&dir.fd, &name, true),
            Err(e @ (Errno::IO | Errno::ROFS)) => Err(e),
            // Full, removed since, or not ours to change.
            Err(_) => Ok(()),
        }
    }

    /// Puts the attributes after all of it into the outcomes: times restored, blocks allocated.
    fn refresh(&mut self) {
        let dirs = self.touched.iter().map(|t| &t.fd);
        let files = self.open.iter().map(|o| &o.fd);
        let now: Vec<Attr> = dirs.chain(files).filter_map(|fd| self.home.attr_of(fd).ok()).collect();
        self.home.watches.stamped(&now);
        for result in self.results.iter_mut().skip(self.settled) {
            let Outcome::Done(done) = &mut result.outcome else { continue };
            // What tells since when nobody else has moved a file's ctime stays as it is.
            let dirs = done.dirs.iter_mut().filter(|dir| dir.kind == Kind::Dir);
            for attr in done.attr.iter_mut().chain(dirs) {
                if let Some(new) = now.iter().find(|n| n.id == attr.id && n.nlink > 0) {
                    *attr = if attr.kind == Kind::File {
                        ctimes::own_since(self.home, *attr, *new)
                    } else {
                        *new
                    };
                }
            }
        }
    }

    /// The directory at a place.
    fn dir(&self, at: &Loc) -> Act<Found<S>> {
        Ok(self.home.find_dir(at)?)
    }

    /// The directory that holds an object, and the object's name in it.
    fn parent(&self, path: &HomePath) -> Act<(HomePath, Found<S>, Name)> {
        let (dir, name) = path.split().ok_or(ErrorKind::Perm)?;
        let found = self.home.find_dir(&Loc { path: dir.clone(), id: None })?;
        Ok((dir, found, name))
    }

    /// Whether both are one object in our book.
    fn same(&self, then: Option<HomeId>, now: HomeId) -> bool {
        then.is_none_or(|then| lock(&self.home.memo).same_object(then, now))
    }

    /// See [`Claim::is_anothers`].
    fn is_anothers(&self, placed: &Placed, there: &Attr) -> bool {
        let claim = self.claim.as_ref().filter(|_| placed.resent && there.kind == Kind::File);
        claim.is_some_and(|claim| claim.is_anothers(placed.id.seq, there))
    }

    /// Whether an object has the content that an operation was made to.
    fn matches(&self, placed: &Placed, base: Option<&Version>, now: &Attr) -> bool {
        let Some(base) = base.filter(|_| self.home.takes(Step::Compare)) else { return true };
        let (memo, now) = (lock(&self.home.memo), now.version());
        memo.matches(base, &now) && (!self.compares_ctime(placed) || memo.is_sure(base, &now))
    }

    /// The pieces with their bytes.
    fn pieces(&self, pieces: &[Piece<Payload>]) -> Act<Vec<Piece<Data<S::Fd>>>> {
        let staged = lock(&self.home.staged);
        pieces
            .iter()
            .map(|piece| match piece {
                Piece::Truncate(size) if *size <= i64::MAX as u64 => Ok(Piece::Truncate(*size)),
                Piece::Data(at, Payload::Inline(data)) if ends_in_range(*at, data.len() as u64) => {
                    Ok(Piece::Data(*at, Data::Held(data.clone())))
                }
                Piece::Data(at, Payload::Staged(range)) if ends_in_range(*at, range.len) => {
                    Ok(Piece::Data(*at, Data::Held(staged.get(range).ok_or(ErrorKind::NotStaged)?)))
                }
                Piece::Data(at, Payload::Spooled(Spooled { range, .. })) if ends_in_range(*at, range.len) => {
                    Ok(Piece::Data(*at, self.home.spooled(range).ok_or(ErrorKind::NotStaged)?))
                }
                _ => Err(ErrorKind::TooBig.into()),
            })
            .collect()
    }
}

fn ends_in_range(at: u64, len: u64) -> bool {
    at.checked_add(len).is_some_and(|end| end <= i64::MAX as u64)
}
