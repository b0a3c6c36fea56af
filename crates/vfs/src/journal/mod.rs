//! The journal: what was accepted here and the home does not know yet.
//!
//! Each volume has a [`Lane`] of its own, so that a dead home holds back nothing but itself; one thread of the
//! [`Env`] commits them all ([`Journal`]). A record is appended in memory, gets its number there, and becomes durable
//! with the next group commit: the extents of the data log that it names first, then the segment. A record
//! is promised to nobody before. Only what is synced may be sent home, because after a power cut the number
//! of a lost record is given to another one.
//!
//! # Layout
//! - [`record`]: what records say.
//! - `segment`: their bytes. `docs/JOURNAL.md` shows them.
//! - `writer`: the end of a lane on disk. `space`: what is held there, and for whom.
//! - `lane`: buffering, waiting, poison.
//! - `recover`: reading it all back; tells a torn tail from damage.
//! - `terms`: words of claims, by which a home tells an earlier state of all this.

#[cfg(test)]
mod golden;
mod lane;
pub mod record;
mod recover;
mod segment;
mod space;
mod terms;
#[cfg(test)]
mod tests;
mod writer;

pub use lane::Lane;
pub use record::{Amend, Binding, Body, Change, Extent, Fate, Place, Retire, Stored};
pub use terms::Terms;

use crate::data::DataLog;
use crate::env::{Clock, Ended, Env, Error, Result};
use home::io_text;
use parking_lot::Mutex;
use space::Space;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use writer::Writer;

/// Most bytes of a write that stand in the record itself; more go to the data log first.
pub const INLINE_MAX: usize = 64 << 10;
/// Bytes of a segment.
pub const SEGMENT_LEN: u64 = 16 << 20;
/// Most bytes of a lane that wait to become durable.
pub const BUFFER_MAX: u64 = 64 << 20;
/// So many bytes are committed without anybody waiting for them.
pub const EAGER_BYTES: u64 = 4 << 20;
/// Bytes that a change holds for the record of its outcome. Most take less: of changes that go home as one, only the
/// last one's outcome names objects.
pub const OUTCOME: u64 = 384;
/// Records that nobody waits for are committed after this time.
pub const LAZY_COMMIT: Duration = Duration::from_millis(500);

/// The limits of a journal; tests have smaller ones.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    segment: u64,
    buffer: u64,
    eager: u64,
    outcome: u64,
    lazy: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            segment: SEGMENT_LEN,
            buffer: BUFFER_MAX,
            eager: EAGER_BYTES,
            outcome: OUTCOME,
            lazy: LAZY_COMMIT,
        }
    }
}

impl Limits {
    /// In proportion to segments of so many bytes, at least twice the largest record.
    #[cfg(feature = "testing")]
    pub fn of_segments(segment: u64) -> Limits {
        let d = Limits::default();
        Limits { segment, buffer: segment * (d.buffer / d.segment), eager: segment / 4, ..d }
    }

    /// Largest record.
    fn record_max(&self) -> u64 {
        self.segment / 2
    }
    /// Bytes for changes that are held ahead of them.
    fn wanted(&self) -> u64 {
        self.segment / 2
    }
    /// Bytes that are kept for outcomes of unusual size.
    fn slack(&self) -> u64 {
        self.segment / 16
    }
}

/// The records of a lane with their numbers, oldest first.
pub type Records = Vec<(u64, Body)>;

/// Where all lanes are.
const DIR: &str = "journal";

fn dir_of(volume: u32) -> String {
    format!("{DIR}/{volume:08x}")
}

/// The volumes that have a lane.
pub fn volumes(env: &Env) -> Vec<u32> {
    let names = env.disk.list(DIR).unwrap_or_default();
    names.iter().filter_map(|name| u32::from_str_radix(name, 16).ok()).collect()
}

/// How many changes of a volume have no outcome yet, without opening it: nothing is changed on disk.
///
/// # Errors
/// As [`Journal::open_lane`].
pub fn unsent(env: &Env, volume: u32) -> Result<u64> {
    let records = recover::read(env, volume, &dir_of(volume))?;
    Ok(record::open_forms(&records).len() as u64)
}

/// The shared group-commit thread.
pub struct Journal {
    shared: Arc<Shared>,
    env: Env,
    thread: Mutex<Option<Ended>>,
}

/// What lanes and the commit thread share.
struct Shared {
    limits: Limits,
    clock: Arc<dyn Clock>,
    work: Mutex<Work>,
    wake: Notify,
    /// Whether some lane may hold records that nobody waits for.
    dirty: AtomicBool,
}

#[derive(Default)]
struct Work {
    lanes: Vec<Arc<Lane>>,
    asked: bool,
    stop: bool,
}

impl Journal {
    /// Starts the thread.
    pub fn start(env: &Env) -> Arc<Journal> {
        Journal::start_with(env, Limits::default())
    }

    /// The same with other limits.
    pub fn start_with(env: &Env, limits: Limits) -> Arc<Journal> {
        let shared = Arc::new(Shared {
            limits,
            clock: env.clock.clone(),
            work: Mutex::default(),
            wake: Notify::new(),
            dirty: AtomicBool::new(false),
        });
        let inside = shared.clone();
        let thread = env.work.keep("journal", Box::pin(async move { inside.run().await }));
        let thread = match thread {
            Ok(t) => Some(t),
            Err(e) => {
                tracing::error!("journal: no thread: {}", io_text(&e));
                shared.work.lock().stop = true;
                None
            }
        };
        Arc::new(Journal { shared, env: env.clone(), thread: Mutex::new(thread) })
    }

    /// Opens or makes the lane of a volume; answers the records found, oldest first, without a gap in their
    /// numbers. `data` is the data log of the same volume.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where a promised record is damaged: nothing was changed on disk, and the volume is
    /// not served until a person has looked. [`Error::Newer`] where a later program wrote: nothing was changed either.
    /// [`Error::Poisoned`] after [`Journal::stop`].
    pub fn open_lane(self: &Arc<Self>, volume: u32, data: Arc<DataLog>) -> Result<(Arc<Lane>, Records)> {
        let dir = dir_of(volume);
        let limits = self.shared.limits;
        let mut found = recover::recover(&self.env, volume, &dir, limits.segment, &data)?;
        let open = record::open_forms(&found.records);
        // What an earlier form named was let go when the change got another one.
        let forms = open.values().filter_map(|at| found.records.get(*at));
        forms.flat_map(|(_, body)| body.extents()).for_each(|e| data.hold(e));
        data.allow_eviction();
        let disk = &self.env.disk;
        let space = Space::new(&self.env, dir.clone(), limits, &found, open.len())?;
        let writer = Writer::new(disk.clone(), dir, volume, limits.segment, &mut found)?;
        let lane = Arc::new(Lane::new(self.shared.clone(), data, writer, space, found.last));
        let mut work = self.shared.work.lock();
        if work.stop {
            return Err(Error::Poisoned("the journal was stopped".into()));
        }
        work.lanes.push(lane.clone());
        Ok((lane, found.records))
    }

    /// Commits what is buffered and ends the thread. Lanes refuse everything from then on.
    pub fn stop(&self) {
        self.shared.work.lock().stop = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("journal: the commit thread panicked");
        }
        for lane in std::mem::take(&mut self.shared.work.lock().lanes) {
            // Work without a thread of its own was not waited for.
            if lane.has_work() {
                lane.commit();
            }
            lane.close();
        }
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    /// Asks for a commit of `lane`, and that it be given space, as soon as possible.
    fn request(&self, lane: &Lane) {
        if lane.mark_queued() {
            self.work.lock().asked = true;
            self.wake.notify_one();
        }
    }

    /// Notes that a lane holds records.
    fn note_dirty(&self) {
        if !self.dirty.swap(true, Ordering::AcqRel) {
            self.wake.notify_one();
        }
    }

    /// The commit thread.
    async fn run(&self) {
        let mut last_sweep = self.clock.instant();
        loop {
            let (lanes, all, stop) = self.wait().await;
            let now = self.clock.instant();
            let all = all || now.saturating_sub(last_sweep) >= self.limits.lazy;
            if all {
                last_sweep = now;
                self.dirty.store(false, Ordering::Release);
            }
            for lane in lanes {
                if lane.is_queued() || (all && lane.has_work()) {
                    lane.commit();
                }
                if lane.is_stalled() {
                    self.dirty.store(true, Ordering::Release);
                }
            }
            if stop {
                return;
            }
        }
    }

    /// Waits for work: the lanes, whether all of them should be committed, and whether to end after that.
    async fn wait(&self) -> (Vec<Arc<Lane>>, bool, bool) {
        let mut late = false;
        loop {
            {
                let mut work = self.work.lock();
                if work.asked || work.stop || late {
                    work.asked = false;
                    return (work.lanes.clone(), late || work.stop, work.stop);
                }
            }
            // A notice that comes before this is kept for it.
            match self.dirty.load(Ordering::Acquire) {
                true => late = tokio::time::timeout(self.limits.lazy, self.wake.notified()).await.is_err(),
                false => self.wake.notified().await,
            }
        }
    }
}
