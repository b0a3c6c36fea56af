//! What the agent told of changes, until somebody asks.

use super::super::verbs::News;
use crate::limits::agent::{CHANGES_HELD, CHANGES_MAX, WATCH_NAMES};
use crate::{Changed, Error, ErrorKind, Result};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;

/// Changes of one session.
pub(super) struct Told {
    /// The number of the span, of which each session has [`SPANS`].
    epoch: AtomicU64,
    changes: Mutex<VecDeque<Changed>>,
    more: Notify,
}

/// Numbers of spans that a session may use: no two sessions of a process have one in common.
const SPANS: u64 = 1 << 32;
static SESSIONS: AtomicU64 = AtomicU64::new(1);

impl Told {
    pub fn new() -> Told {
        let epoch = SESSIONS.fetch_add(1, Ordering::Relaxed).wrapping_mul(SPANS);
        Told { epoch: AtomicU64::new(epoch), changes: Mutex::default(), more: Notify::new() }
    }

    /// The number of the span in which nothing went untold.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::SeqCst)
    }

    /// Takes over what the agent says. Before an answer that arrives later is given out.
    pub fn hear(&self, news: News) -> Result<()> {
        match news {
            News::Lost => self.lose(&mut self.changes.lock()),
            News::Changed(all) => {
                if all.len() > CHANGES_MAX || all.iter().any(|c| c.names.len() > WATCH_NAMES) {
                    let text = "the agent tells of more changes than allowed";
                    return Err(Error::new(ErrorKind::Unreachable, text));
                }
                let mut changes = self.changes.lock();
                changes.extend(all);
                if changes.len() > CHANGES_HELD {
                    self.lose(&mut changes);
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

    /// Waits for changes.
    pub async fn changes(&self) -> Vec<Changed> {
        loop {
            let changes = std::mem::take(&mut *self.changes.lock());
            if !changes.is_empty() {
                return changes.into();
            }
            self.more.notified().await;
        }
    }
}
