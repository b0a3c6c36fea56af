//! What agents told of changes, until somebody asks: one after the other, as far as each goes on with the watches of the one
//! before.

use super::super::keep::KeepName;
use super::super::verbs::News;
use crate::limits::agent::{CHANGES_HELD, CHANGES_MAX, WATCH_NAMES};
use crate::{Changed, Error, ErrorKind, Result};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::Notify;

/// Changes of sessions with one home.
pub struct Told {
    /// Under which the agents keep the watches.
    pub name: KeepName,
    /// The number of the span, of which there are [`SPANS`] until nothing goes on.
    epoch: AtomicU64,
    /// Whether the last agent that was asked keeps watches.
    kept: AtomicBool,
    /// What was told while nobody was connected may not have been taken in yet.
    behind: AtomicBool,
    heard: Mutex<Heard>,
    more: Notify,
}

#[derive(Default)]
struct Heard {
    /// The last session; what others still bring was told to that again.
    session: u64,
    /// How many changes.
    count: u64,
    changes: VecDeque<Changed>,
}

/// Numbers of spans in a row: no two of a process have one in common.
const SPANS: u64 = 1 << 32;
static ROWS: AtomicU64 = AtomicU64::new(1);

fn new_row() -> u64 {
    ROWS.fetch_add(1, Ordering::Relaxed).wrapping_mul(SPANS)
}

impl Told {
    /// Nothing is told yet.
    pub fn new(name: KeepName) -> Told {
        Told {
            name,
            epoch: AtomicU64::new(new_row()),
            kept: AtomicBool::new(false),
            behind: AtomicBool::new(false),
            heard: Mutex::default(),
            more: Notify::new(),
        }
    }

    /// A session begins. Answers its number, and how many changes were heard before.
    pub fn begin(&self) -> (u64, u64) {
        let mut heard = self.heard.lock();
        heard.session += 1;
        (heard.session, heard.count)
    }

    /// Whether an agent keeps what is told, so that another may go on.
    pub fn is_kept(&self) -> bool {
        self.kept.load(Ordering::Relaxed)
    }

    /// An agent keeps it, or none does.
    pub fn keeps(&self, kept: bool) {
        self.kept.store(kept, Ordering::Relaxed);
    }

    /// Nothing was untold since the session before: what this one told first is taken in before anything is believed.
    pub fn goes_on(&self) {
        self.behind.store(true, Ordering::SeqCst);
        self.more.notify_one();
    }

    /// Nobody knows what went untold.
    pub fn breaks(&self) {
        let mut heard = self.heard.lock();
        heard.count = 0;
        heard.changes.clear();
        self.epoch.store(new_row(), Ordering::SeqCst);
        self.behind.store(false, Ordering::SeqCst);
    }

    /// The number of the span in which nothing went untold, if all that was told is taken in.
    pub fn epoch(&self) -> Option<u64> {
        let epoch = self.epoch.load(Ordering::SeqCst);
        (!self.behind.load(Ordering::SeqCst)).then_some(epoch)
    }

    /// Takes over what the agent of a session says. Before an answer that arrives later is given out.
    pub fn hear(&self, session: u64, news: News) -> Result<()> {
        let mut heard = self.heard.lock();
        if heard.session != session {
            return Ok(());
        }
        match news {
            News::Lost => {
                heard.count += 1;
                self.lose(&mut heard.changes);
            }
            News::Changed(all) => {
                if all.len() > CHANGES_MAX || all.iter().any(|c| c.names.len() > WATCH_NAMES) {
                    let text = "the agent tells of more changes than allowed";
                    return Err(Error::new(ErrorKind::Unreachable, text));
                }
                heard.count += all.len() as u64;
                heard.changes.extend(all);
                if heard.changes.len() > CHANGES_HELD {
                    self.lose(&mut heard.changes);
                }
            }
        }
        self.more.notify_one();
        Ok(())
    }

    /// Changes went untold.
    fn lose(&self, changes: &mut VecDeque<Changed>) {
        changes.clear();
        self.epoch.fetch_add(1, Ordering::SeqCst);
    }

    /// Waits for changes. Who asks again has taken in those of before.
    pub async fn changes(&self) -> Vec<Changed> {
        loop {
            {
                let mut heard = self.heard.lock();
                if !heard.changes.is_empty() {
                    return std::mem::take(&mut heard.changes).into();
                }
                self.behind.store(false, Ordering::SeqCst);
            }
            self.more.notified().await;
        }
    }
}
