//! Who may change a home for a volume, and what became of the operations that were begun.
//!
//! For each volume of a gateway that writes here `~/.cache/trellis/volumes/GATEWAY-VOLUME` has three files, and [spools](super::spool).
//!
//! - `fence` holds a random word of the agent that took over last, and is locked (flock(2)) while a batch runs. Who
//!   takes over writes its word first, so that the agent before it stops at its next operation, and then waits for the
//!   lock. An agent of this machine that does not give it back is ended. After that nothing of it has an effect. It tells, too,
//!   whether anything was begun since, and the word of the [term] in which that was; see [`fence`].
//! - `log` has a [`Record`] before and after each operation: it tells exactly what an agent that was killed had done. It is
//!   synced when a batch has become durable, before a file is overwritten in place and before a staging directory is made
//!   outside the account's cache directory: after the machine was restarted it tells what was durable, which files are neither
//!   old nor new, and where we may have left something. Of all else it tells nothing then.
//! - `ran` tells after a power cut which operations left their names and attributes; see [`progress`].
//!
//! Where the files cannot be kept there is neither fence nor log, as on a read-only home directory, or one that was full when they
//! were to be made. As soon as that has room for them the gateway has to claim again, and an agent that was left behind without them
//! begins nothing more.

mod fence;
mod log;
mod progress;
mod record;
mod term;
mod unfenced;

use super::account::{cache_dir, keep_token};
use super::step::Step;
use super::sys::{FileType, Make, Mode, Rename, Sys, Sysult};
use super::{Posix, failed, lock};
use crate::attr::{Attr, HomeId, Time, Version};
use crate::error::{Error, ErrorKind, Result};
use crate::limits;
use crate::op::Term;
use crate::{Claimed, Done, Entered, OpId, Outcome};
use bytes::Bytes;
use fence::Fence;
use log::{Log, zero};
use progress::Progress;
pub(super) use record::{Ended, Image, Intent, Run, Stage, Swap, TakeOut};
use record::{HEAD, Record, Unknown, decode, encode, in_place};
use rustix::io::Errno;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashSet, VecDeque};
use term::{Refused, Taken};
pub(super) use unfenced::{enter_unfenced, is_fenced_since};

/// A gateway and a volume of it.
pub(super) type Volume = (u64, u32);

/// The right of this process to change the home for a volume, as long as nobody takes it over.
pub(super) struct Claim<S: Sys> {
    volume: Volume,
    dir: S::Fd,
    fence: Fence<S>,
    /// Whether the fence has the word of the gateway's term.
    keeps_term: bool,
    boot: Vec<u8>,
    log: Option<Log<S>>,
    /// A log that tells nothing of this process, until there is one that does.
    earlier: Option<Log<S>>,
    /// The gateway knows the outcomes of all operations before this one.
    since: u64,
    /// Operations that were done, the oldest first, for the next log.
    kept: VecDeque<Ended>,
    /// What operations that were not done left of files that no later one was done to.
    left: VecDeque<Version>,
    /// Operations that were done and that may not be durable.
    unsettled: HashSet<u64>,
    /// Operations that were begun and not ended, each with what it was about to do.
    doubt: BTreeMap<u64, Option<Intent>>,
    /// What files had in them before operations that may not have been ended.
    images: BTreeMap<u64, Image>,
    /// The one that was begun last, and what it was about to do when it was begun before and not ended.
    current: u64,
    before: Option<Option<Intent>>,
    /// Staging directories that an earlier agent may have left.
    stages: Vec<Stage>,
    /// Whether the log told of everything that was begun when the volume was claimed.
    complete: bool,
    /// The machine's start before the power failed, which left what operations may have been executed then as nobody knows.
    cut: Option<Bytes>,
    /// When the machine was started.
    booted: Time,
    /// Whether the log says that it tells of everything from here on.
    taken: bool,
    /// Operations that may have been executed before the log begins, and have no outcome since; each with the file that
    /// it was about to write in place.
    unknown: BTreeMap<u64, Option<HomeId>>,
    /// How far the operations came, where that can be kept.
    progress: Option<Progress<S>>,
}

/// What an earlier agent may have left in the middle of an operation.
#[derive(Default)]
pub(super) struct Leftovers {
    /// What it was about to do.
    pub intents: Vec<Intent>,
    /// How it left files that it may not have been done with.
    pub left: Vec<Version>,
    /// Staging directories that it made.
    pub stages: Vec<Stage>,
    /// What those end with that it made in the account's own directory, where the log does not tell all of them.
    pub unlogged: Option<Vec<u8>>,
}

/// Takes over a volume, after `recover` has mended what an earlier agent left. See [`crate::Home::claim`].
pub(super) fn claim<S: Sys>(
    home: &Posix<S>,
    volume: Volume,
    lost: Vec<u64>,
    term: Option<&Term>,
    recover: impl FnOnce(&Posix<S>, Leftovers),
) -> Result<Entered> {
    let _no_batch_runs = lock(&home.applying);
    let mut claims = lock(&home.claims);
    claims.remove(&volume);
    lock(&home.unfenced).remove(&volume);
    // Without it the next agent would have another one.
    keep_token(home).ok();
    let mut claim = match Claim::take(home, volume, (&lost, term), recover) {
        Ok(claim) => claim,
        Err(Refused::Superseded) => {
            let text = "the home has later changes of this state directory than it knows of itself";
            return Err(Error::new(ErrorKind::Superseded, text));
        }
        Err(Refused::Sys(Errno::AGAIN)) => {
            let text = "an earlier agent is still at work there and cannot be ended";
            return Err(Error::new(ErrorKind::Unreachable, text));
        }
        Err(Refused::Sys(e @ (Errno::IO | Errno::NOMEM | Errno::MFILE | Errno::NFILE))) => {
            return Err(failed(e, "take over the volume at the home"));
        }
        // Full, read-only, not ours, without locks: what will not pass by itself does not stop a volume.
        Err(Refused::Sys(e)) => {
            unfenced::go_on(home, volume, e);
            make_durable(home, &lost)?;
            return Ok(Entered { kept: false, known: None });
        }
    };
    // The gateway has asked for those that it goes on with.
    home.clear_spools(volume, &claim.dir).ok();
    // Who does not send again what was begun, as in mode strict, takes what is found of it for done.
    if !claim.complete || claim.is_open(&lost) {
        make_durable(home, &lost)?;
    }
    let mut memo = lock(&home.memo);
    for ended in &claim.kept {
        let op = OpId { gateway: volume.0, volume: volume.1, seq: ended.seq };
        if let (Some(old), Outcome::Done(Done { attr: Some(new), .. })) = (ended.succeeds, &ended.outcome) {
            memo.succeed(old, new.id);
        }
        memo.done(op, &ended.outcome, ended.left());
    }
    claim.left.iter().for_each(|version| memo.left_in_part(*version));
    let (kept, known) = (claim.keeps_term, claim.known(lost));
    claims.insert(volume, claim);
    Ok(Entered { kept, known })
}

/// The gateway looks for what was done of these without a log, and takes what it finds for done for good: whoever did it may
/// have been killed before it was durable. Goes as far as the file system of the account's home directory. Where a sync of that
/// has failed, nothing that is found there is known to be durable: the next one would succeed.
fn make_durable<S: Sys>(home: &Posix<S>, lost: &[u64]) -> Result<()> {
    let Ok(dir) = home.sys.open_root(&home.account.home_dir) else { return Ok(()) };
    if lost.is_empty() {
        return Ok(());
    }
    // What is not shown is on none that anything else is noted of.
    let fs = home.attr_of(&dir).map_or(0, |attr| attr.id.fs);
    let synced = match home.is_broken(fs) {
        true => Err(Errno::IO),
        false => home.note_sync(fs, home.sys.sync_file_system(&dir)),
    };
    synced.map_err(|e| failed(e, "make durable what an earlier agent did"))
}

pub(super) fn volume_dir<S: Sys>(home: &Posix<S>, volume: Volume) -> Sysult<S::Fd> {
    let all = directory(home, &cache_dir(home)?, b"volumes")?;
    directory(home, &all, volume_name(volume).as_bytes())
}

fn volume_name((gateway, volume): Volume) -> String {
    format!("{gateway:016x}-{volume:08x}")
}

/// What the names of staging directories of a volume end with.
pub(super) fn mark(volume: Volume) -> Vec<u8> {
    format!("-{}", volume_name(volume)).into_bytes()
}

impl Ended {
    /// The state that it left a file's content in, and whether it made the file.
    fn left(&self) -> Option<(crate::Attr, bool)> {
        match &self.outcome {
            Outcome::Done(done) if self.wrote => done.attr.map(|attr| (attr, self.made)),
            _ => None,
        }
    }
}

impl<S: Sys> Claim<S> {
    fn take(
        home: &Posix<S>,
        volume: Volume,
        (lost, term): (&[u64], Option<&Term>),
        recover: impl FnOnce(&Posix<S>, Leftovers),
    ) -> Taken<Claim<S>> {
        let sys = &home.sys;
        let dir = volume_dir(home, volume)?;
        let (fence, rested) = Fence::take(home, &dir)?;
        let mut claim = Claim {
            volume,
            dir,
            fence,
            keeps_term: false,
            boot: sys.boot_id(),
            log: None,
            earlier: None,
            since: lost.first().copied().unwrap_or(u64::MAX),
            kept: VecDeque::new(),
            left: VecDeque::new(),
            unsettled: HashSet::new(),
            doubt: BTreeMap::new(),
            images: BTreeMap::new(),
            current: 0,
            before: None,
            stages: Vec::new(),
            complete: false,
            cut: None,
            booted: sys.booted(),
            taken: false,
            unknown: BTreeMap::new(),
            progress: None,
        };
        let ready = claim.start(home, term, recover, rested);
        if rested && matches!(ready, Err(Refused::Superseded)) {
            // Nothing was begun.
            claim.fence.rest(sys);
        }
        if ready.is_ok() && lost.is_empty() && !claim.complete {
            // The answer tells nothing that could be lost with it.
            claim.unknown.clear();
            claim.taken = claim.begin_log(home).is_ok();
        }
        if ready.is_ok() && claim.taken && claim.is_settled() {
            if lost.is_empty() {
                claim.progress.iter_mut().for_each(|progress| progress.begins(sys));
            }
            claim.rest(home);
        }
        claim.fence.leave(sys);
        ready.map(|()| claim)
    }

    /// Whether it is known of all that was begun what became of it, and durable.
    fn is_settled(&self) -> bool {
        self.unknown.is_empty() && self.doubt.is_empty() && self.unsettled.is_empty()
    }

    /// Lets the fence tell that nothing was begun since what the log says, once this is durable, and is the log after a power cut.
    fn rest(&mut self, home: &Posix<S>) {
        let Some(log) = &self.log else { return };
        if home.sys.sync(&log.fd).and_then(|()| home.sync_dir(&self.dir)).is_ok() {
            self.fence.rest(&home.sys);
        }
    }

    /// Reads the log, with the fence locked. It tells of everything, too, if nothing was begun since the claim before this one.
    fn start(
        &mut self,
        home: &Posix<S>,
        term: Option<&Term>,
        recover: impl FnOnce(&Posix<S>, Leftovers),
        rested: bool,
    ) -> Taken<()> {
        if !self.holds(home) {
            // Somebody else took over meanwhile.
            return Err(Errno::AGAIN.into());
        }
        self.check_word(home, term)?;
        self.progress = Progress::open(home, &self.dir).ok();
        let (fd, size) = file(home, &self.dir, b"log")?;
        let mut bytes = vec![0; size.min(limits::LOG_BYTES_MAX) as usize];
        let mut have = 0;
        while have < bytes.len() {
            match home.sys.read(&fd, have as u64, &mut bytes[have..])? {
                0 => break,
                n => have += n,
            }
        }
        bytes.truncate(have);
        let (records, end) = match home.takes(Step::ReadLog) {
            true => decode(Bytes::from(bytes)),
            false => (vec![Record::Taken(Bytes::from(self.boot.clone()))], size),
        };
        self.begin_term(home, term, &records)?;
        let mut taken =
            records.iter().rev().filter_map(|r| if let Record::Taken(boot) = r { Some(boot) } else { None });
        let (is_whole, last) = (size <= limits::LOG_BYTES_MAX, taken.clone().next());
        let same_boot = is_whole && last.is_some_and(|boot| boot[..] == self.boot);
        let rested = rested && is_whole && last.is_some();
        self.cut = taken.find(|boot| boot[..] != self.boot).cloned();
        // An end that is not durable does not tell that the content is.
        let torn = if same_boot { BTreeMap::new() } else { in_place(&records) };
        records.into_iter().for_each(|record| self.replay(record));
        if !same_boot && rested && torn.is_empty() && self.is_settled() {
            (self.complete, self.cut) = (true, None);
        } else if same_boot {
            self.complete = true;
        } else {
            self.unknown = torn;
        }
        let intents = self.doubt.values().flatten().cloned().collect();
        let unlogged = (!same_boot).then(|| mark(self.volume));
        let (left, stages) = (self.left.iter().copied().collect(), std::mem::take(&mut self.stages));
        recover(home, Leftovers { intents, left, stages, unlogged });
        if !self.complete {
            // The machine was started again. What had become durable before is as it was.
            self.kept.retain(|ended| !self.unsettled.contains(&ended.seq));
            (self.unsettled, self.doubt) = Default::default();
            self.earlier = Some(Log { fd, end, size });
            return Ok(());
        }
        let unsettled = self.kept.iter().filter(|ended| self.unsettled.contains(&ended.seq));
        for ended in unsettled {
            if let (Outcome::Done(done), Some(progress)) = (&ended.outcome, &mut self.progress) {
                progress.ran(&home.sys, ended.seq, done);
            }
        }
        // Only now: an agent that dies while it mends leaves the rest of it to the next one.
        let mut log = Log { fd, end, size };
        log.clear_rest(&home.sys)?;
        self.log = Some(log);
        self.append(&home.sys, &Record::Taken(Bytes::from(self.boot.clone())));
        self.taken = true;
        Ok(())
    }

    fn replay(&mut self, record: Record) {
        match record {
            // The other is not told by a log that was read.
            Record::Taken(_) | Record::Anew(_) => {}
            Record::Begun(seq) => {
                (self.current, self.before) = (seq, self.doubt.get(&seq).cloned());
                self.question(seq);
            }
            Record::Intent(intent) => drop(self.doubt.insert(self.current, Some(intent))),
            Record::Ended(ended) => {
                self.clear(&ended);
                if matches!(ended.outcome, Outcome::Done(_)) {
                    self.unsettled.insert(ended.seq);
                    self.keep(ended);
                }
            }
            Record::Durable => {
                self.unsettled.clear();
                self.stages.clear();
            }
            Record::Staged(stage) => self.stages.push(stage),
            Record::Left(version) => self.keep_left(version),
            Record::Image(image) => match self.images.entry(image.seq) {
                Entry::Occupied(mut known) => known.get_mut().join(image),
                Entry::Vacant(new) => drop(new.insert(image)),
            },
            Record::Unknown(all) => self.unknown.extend(all.into_iter().map(|one| (one.seq, one.in_place))),
        }
    }

    /// The outcome of an operation is known. One that changed a file's content had in it what earlier ones were to write
    /// there that are not known: the gateway may send what it had sent in parts as one. One that was refused leaves what an earlier
    /// agent did of it.
    fn clear(&mut self, ended: &Ended) {
        self.doubt.remove(&ended.seq);
        if ended.is_for_now() {
            self.doubt.extend(self.before.take().map(|intent| (ended.seq, intent)));
        } else if matches!(ended.outcome, Outcome::Refused(_) | Outcome::Conflict(_)) {
            // What it misses may be what it moved or removed itself before the power failed, and what it meets what it put there.
            // Only the gateway can look for that, and it may never hear of this. No file is half written by it any more.
            self.unknown.get_mut(&ended.seq).into_iter().for_each(|file| *file = None);
        } else {
            self.unknown.remove(&ended.seq);
        }
        self.left.retain(|version| !ended.has_written(&version.id));
        self.unknown.retain(|seq, file| !file.is_some_and(|file| ended.covers(*seq, &file)));
        let covered = |seq: &u64, intent: &Option<Intent>| match intent {
            Some(Intent::InPlace(file)) => ended.covers(*seq, file),
            _ => false,
        };
        self.doubt.retain(|seq, intent| !covered(seq, intent));
    }

    /// The outcome of an operation is not known, or not any more.
    fn question(&mut self, seq: u64) {
        self.doubt.entry(seq).or_default();
        if self.unsettled.remove(&seq) {
            self.kept.retain(|ended| ended.seq != seq);
        }
    }

    fn keep(&mut self, ended: Ended) {
        self.kept.push_back(ended);
        if self.kept.len() > limits::OUTCOMES_KEPT {
            self.kept.pop_front();
        }
    }

    fn keep_left(&mut self, version: Version) {
        self.left.retain(|known| known.id != version.id);
        self.left.push_back(version);
        if self.left.len() > limits::OUTCOMES_KEPT {
            self.left.pop_front();
        }
    }

    /// Whether any of these was begun and may not be durable.
    fn is_open(&self, lost: &[u64]) -> bool {
        lost.iter().any(|seq| self.unsettled.contains(seq) || self.doubt.contains_key(seq))
    }

    /// What is known of these operations and all later ones.
    fn known(&mut self, lost: Vec<u64>) -> Option<Claimed> {
        let since = lost.first().copied().unwrap_or(u64::MAX);
        let ran = self.ran().filter(|ran| lost.last().is_some_and(|last| ran <= last));
        self.doubt.retain(|seq, _| *seq >= since);
        // What the gateway knows the outcome of was durable when it was told.
        self.unsettled.retain(|seq| lost.binary_search(seq).is_ok());
        let kept = self.kept.iter().map(|ended| ended.seq).filter(|seq| *seq >= since);
        let mut begun: Vec<u64> = kept.chain(self.doubt.keys().copied()).collect();
        begun.sort_unstable();
        if self.complete {
            self.unknown.retain(|seq, _| *seq >= since);
        } else {
            let old = std::mem::take(&mut self.unknown);
            let is_new = |seq: &u64| begun.binary_search(seq).is_err();
            let unknown = lost.into_iter().filter(is_new).map(|seq| (seq, old.get(&seq).copied().flatten()));
            self.unknown = unknown.collect();
        }
        self.images.retain(|seq, _| self.doubt.contains_key(seq) || self.unknown.contains_key(seq));
        let unknown: Vec<u64> = self.unknown.keys().copied().collect();
        let is_torn = |(seq, file): (&u64, &Option<HomeId>)| file.map(|_| *seq);
        let torn = self.unknown.iter().filter_map(is_torn).collect();
        (begun.len().max(unknown.len()) <= limits::BEGUN_MAX).then_some(Claimed {
            begun,
            unknown,
            torn,
            ran: ran.unwrap_or(0),
            ran_on: ran.and(self.progress.as_ref()).map(Progress::file_system),
            restarted: !self.complete,
            booted: self.cut.is_some().then_some(self.booted),
        })
    }

    /// The last operation that left its names and attributes, with all before it, where the log does not tell.
    fn ran(&self) -> Option<u64> {
        self.progress.as_ref().filter(|_| !self.complete).and_then(Progress::last)
    }

    /// Whether nobody has taken over, as far as can be seen. Certain while the fence is locked.
    pub fn holds(&self, home: &Posix<S>) -> bool {
        self.fence.holds(home)
    }

    /// Locks the fence for a batch; see [`Claim::leave`].
    pub fn enter(&mut self, home: &Posix<S>) -> Result<()> {
        self.fence.enter(home)?;
        let is_long = self.log.as_ref().is_some_and(|log| log.end > limits::LOG_BYTES);
        // A log that did not tell of everything begins anew only with the first batch, which shows that the gateway
        // heard so: if the answer to the claim is lost, the next claim has the same one.
        if !self.taken || ((is_long || self.log.is_none()) && self.unsettled.is_empty()) {
            self.taken = true;
            // Where there is no space for a second one the first one grows, or there is none until there is space.
            self.begin_log(home).ok();
        }
        Ok(())
    }

    /// Unlocks the fence.
    pub fn leave(&self, sys: &S) {
        self.fence.leave(sys);
    }

    /// A new log with what is still wanted of the old one.
    fn begin_log(&mut self, home: &Posix<S>) -> Sysult<()> {
        let begun = self.begin_file(home).or_else(|e| match self.earlier.take() {
            Some(earlier) => self.begin_in(&home.sys, earlier),
            None => Err(e),
        });
        if begun.is_ok() {
            self.earlier = None;
        }
        begun
    }

    /// In a file of its own.
    fn begin_file(&mut self, home: &Posix<S>) -> Sysult<()> {
        let sys = &home.sys;
        match sys.unlink(&self.dir, b"log.new", false) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(e) => return Err(e),
        }
        let fd = sys.create(&self.dir, b"log.new", 0o600)?;
        let mut log = Log { fd, end: 0, size: 0 };
        log.append(sys, &self.still_wanted(0))?;
        sys.sync(&log.fd)?;
        sys.rename(&self.dir, b"log.new", &self.dir, b"log", Rename::Replace)?;
        self.log = Some(log);
        Ok(())
    }

    /// Behind what an earlier log tells, in its reserve, where the disk has no room for another file: as one record, so that
    /// it takes the place of all before it or is not there.
    fn begin_in(&mut self, sys: &S, mut log: Log<S>) -> Sysult<()> {
        log.clear_rest(sys)?;
        log.append(sys, &encode(&Record::Anew(Bytes::from(self.still_wanted(self.since)))))?;
        sys.sync(&log.fd)?;
        self.log = Some(log);
        Ok(())
    }

    /// The records with which a log begins; outcomes of operations from `since` on.
    fn still_wanted(&self, since: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        let cut = self.cut.iter().filter(|_| !self.unknown.is_empty());
        cut.for_each(|before| bytes.extend(encode(&Record::Taken(before.clone()))));
        bytes.extend(encode(&Record::Taken(Bytes::from(self.boot.clone()))));
        let kept = self.kept.iter().filter(|ended| ended.seq >= since);
        kept.for_each(|ended| bytes.extend(encode(&Record::Ended(ended.clone()))));
        self.left.iter().for_each(|version| bytes.extend(encode(&Record::Left(*version))));
        bytes.extend(encode(&Record::Durable));
        let unknown = self.unknown.iter().map(|(seq, in_place)| Unknown { seq: *seq, in_place: *in_place });
        bytes.extend(encode(&Record::Unknown(unknown.collect())));
        for (seq, intent) in &self.doubt {
            bytes.extend(encode(&Record::Begun(*seq)));
            bytes.extend(intent.iter().flat_map(|intent| encode(&Record::Intent(intent.clone()))));
        }
        let wanted = |seq: &u64| self.doubt.contains_key(seq) || self.unknown.contains_key(seq);
        let images = self.images.values().filter(|image| wanted(&image.seq));
        images.for_each(|image| bytes.extend(encode(&Record::Image(image.clone()))));
        bytes
    }

    /// An operation begins.
    pub fn begin(&mut self, sys: &S, seq: u64) {
        self.before = self.doubt.get(&seq).cloned();
        self.append(sys, &Record::Begun(seq));
    }

    /// A staging directory is about to be made: known even after a power cut, unless it lies in the account's own cache
    /// directory, which is looked through then.
    pub fn stage(&mut self, sys: &S, stage: &Stage) {
        self.append(sys, &Record::Staged(stage.clone()));
        if stage.below.is_some() {
            self.sync(sys);
        }
    }

    /// The operation that has begun is about to do this.
    pub fn intend(&mut self, sys: &S, intent: Intent) {
        self.append(sys, &Record::Intent(intent));
    }

    /// The operation that has begun is about to change this file in place: `is_synced`, known even after a power cut. What it leaves
    /// of the file then is neither what was there nor what is wanted, and who sends it again must not join it with a later one:
    /// of what both come to, a part of the first alone would look like somebody else's.
    pub fn intend_in_place(&mut self, sys: &S, file: HomeId, is_synced: bool, image: Option<Image>) {
        let image = image.map(|image| encode(&Record::Image(image)));
        let told = image.filter(|image| self.log.as_mut().is_some_and(|log| log.has_room(sys, image.len())));
        let mut records = told.unwrap_or_default();
        records.extend(encode(&Record::Intent(Intent::InPlace(file))));
        self.append_bytes(sys, &records);
        if is_synced {
            self.sync(sys);
        }
    }

    /// The operation that has begun leaves a file so, though it may not be done: what is done to the file later must not take
    /// it for somebody else's, nor somebody else's for it.
    pub fn leaves(&mut self, sys: &S, version: Version) {
        self.append(sys, &Record::Left(version));
        self.keep_left(version);
    }

    /// The same, and known even after a power cut.
    pub fn leaves_durably(&mut self, sys: &S, version: Version) {
        self.leaves(sys, version);
        self.sync(sys);
    }

    /// What a file had in it before what was not ended; nothing where that is not known of all of it.
    pub fn images(&self, file: HomeId) -> Vec<&Image> {
        let in_place = |intent: &Option<Intent>| *intent == Some(Intent::InPlace(file));
        let doubted = self.doubt.iter().filter(|(_, intent)| in_place(intent)).map(|(seq, _)| seq);
        let torn = self.unknown.iter().filter(|(_, torn)| **torn == Some(file)).map(|(seq, _)| seq);
        let image = |seq| self.images.get(seq).filter(|image| image.file == file);
        doubted.chain(torn).map(image).collect::<Option<_>>().unwrap_or_default()
    }

    /// What a file had in it before an earlier agent wrote it in place for this very operation, which it did not end.
    pub fn image(&self, seq: u64, file: HomeId) -> Option<&Image> {
        let is_in_doubt = self.doubt.get(&seq) == Some(&Some(Intent::InPlace(file)));
        self.images.get(&seq).filter(|image| is_in_doubt && image.file == file)
    }

    /// Whether an earlier agent was about to write this file in place for an operation that it did not end: this one, or
    /// one whose bytes this one has in it.
    pub fn was_in_place(&self, seq: u64, file: HomeId) -> bool {
        self.doubt.range(..=seq).any(|(_, intent)| *intent == Some(Intent::InPlace(file)))
    }

    /// The same before the power failed: of what should be in the file any part may be, as long as nobody has written to it
    /// since.
    pub fn was_torn(&self, seq: u64, file: &Attr) -> bool {
        !self.is_newer(file) && self.unknown.range(..=seq).any(|(_, torn)| *torn == Some(file.id))
    }

    /// The same for a later operation, which was made to what this one leaves: that is done again, too. A file with the name that
    /// this one was to give is then what it made.
    pub fn was_torn_later(&self, seq: u64, file: &Attr) -> bool {
        !self.is_newer(file) && self.unknown.range(seq + 1..).any(|(_, torn)| *torn == Some(file.id))
    }

    /// Whether a file was written after the machine was started, and by the machine's clock. What is put right after a power cut
    /// keeps its time of modification, and what we wrote has that of the gateway's clock, which may be ahead.
    fn is_newer(&self, file: &Attr) -> bool {
        self.booted < file.mtime && file.mtime <= file.ctime
    }

    /// The operation that had begun has an outcome.
    pub fn end(&mut self, sys: &S, ended: Ended) {
        self.clear(&ended);
        self.append(sys, &Record::Ended(ended.clone()));
        if let (Outcome::Done(done), Some(progress)) = (&ended.outcome, &mut self.progress) {
            progress.ran(sys, ended.seq, done);
        }
        if matches!(ended.outcome, Outcome::Done(_)) {
            self.unsettled.insert(ended.seq);
            self.keep(ended);
        }
    }

    /// Operations that were ended could not be made durable.
    pub fn unsettle(&mut self, sys: &S, seqs: impl IntoIterator<Item = u64>) {
        for seq in seqs {
            self.append(sys, &Record::Begun(seq));
            self.question(seq);
        }
    }

    /// These operations are durable. When all are, this is told even after a power cut.
    pub fn settle(&mut self, sys: &S, seqs: impl IntoIterator<Item = u64>) {
        let mut settled = false;
        for seq in seqs {
            settled |= self.unsettled.remove(&seq);
        }
        if settled && self.unsettled.is_empty() {
            self.progress.iter_mut().for_each(Progress::settled);
            self.append(sys, &Record::Durable);
            self.sync(sys);
        }
    }

    /// What an earlier agent was about to do with an operation that it did not end.
    pub fn intent(&self, seq: u64) -> Option<&Intent> {
        self.doubt.get(&seq)?.as_ref()
    }

    /// Whether an earlier agent began this operation and did not end it.
    pub fn was_begun(&self, seq: u64) -> bool {
        self.doubt.contains_key(&seq)
    }

    /// Whether a file may be as the power failed after an earlier agent began this operation.
    pub fn was_cut(&self, seq: u64, file: &Attr) -> bool {
        self.cut.is_some() && self.unknown.contains_key(&seq) && !self.is_newer(file)
    }

    /// Whether a file was put there, or written, after the power had failed and by nobody of ours, not even in part: an
    /// operation of before was not made to it, whatever the gateway found in the place of its object.
    pub fn is_anothers(&self, seq: u64, file: &Attr) -> bool {
        let is_it = |ended: &Ended| match &ended.outcome {
            Outcome::Done(done) => done.attr.is_some_and(|attr| attr.id == file.id),
            _ => false,
        };
        let of_before = self.cut.is_some() && self.unknown.contains_key(&seq);
        // Also what an agent of ours was at when it was killed, so that only the operation knows its part.
        let is_ours = || {
            self.was_in_place(seq, file.id)
                || self.kept.iter().any(is_it)
                || self.left.iter().any(|left| left.same_content(&file.version()))
        };
        of_before && self.is_newer(file) && !is_ours()
    }

    /// Whether this operation was done, and perhaps not durably.
    pub fn is_unsettled(&self, seq: u64) -> bool {
        self.unsettled.contains(&seq)
    }

    /// A log that tells a part would tell a lie: where a record cannot be added there is none from then on.
    fn append(&mut self, sys: &S, record: &Record) {
        self.append_bytes(sys, &encode(record));
    }

    fn append_bytes(&mut self, sys: &S, records: &[u8]) {
        if self.log.as_mut().is_some_and(|log| log.append(sys, records).is_err()) {
            self.give_up_log(sys);
        }
    }

    fn sync(&mut self, sys: &S) {
        if self.log.as_ref().is_some_and(|log| sys.sync(&log.fd).is_err()) {
            self.give_up_log(sys);
        }
    }

    fn give_up_log(&mut self, sys: &S) {
        let Some(log) = self.log.take() else { return };
        if zero(sys, &log.fd, 0, HEAD as u64).is_ok() {
            // It tells nothing, and keeps its room for the next one.
            self.earlier = Some(Log { end: 0, ..log });
            return;
        }
        sys.truncate(&log.fd, 0).ok();
        sys.unlink(&self.dir, b"log", false).ok();
    }
}

/// A directory of ours; made if need be.
fn directory<S: Sys>(home: &Posix<S>, parent: &S::Fd, name: &[u8]) -> Sysult<S::Fd> {
    match home.sys.make(parent, name, Make::Dir(0o700)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) => return Err(e),
    }
    let fd = home.sys.open_name(parent, name)?;
    let stat = home.sys.stat(&fd)?;
    if stat.kind == FileType::Dir && stat.uid == home.account.uid { Ok(fd) } else { Err(Errno::PERM) }
}

/// A file of ours, open for reading and writing, and its length; made if need be.
fn file<S: Sys>(home: &Posix<S>, dir: &S::Fd, name: &[u8]) -> Sysult<(S::Fd, u64)> {
    match home.sys.create(dir, name, 0o600) {
        Err(Errno::EXIST) => {}
        created => return created.map(|fd| (fd, 0)),
    }
    let fd = home.sys.open_name(dir, name)?;
    let stat = home.sys.stat(&fd)?;
    if stat.kind != FileType::File || stat.uid != home.account.uid {
        return Err(Errno::PERM);
    }
    Ok((home.sys.reopen(&fd, Mode::ReadWrite)?, stat.size))
}
