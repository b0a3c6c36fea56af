//! What goes on over a lost connection, a silence, or this machine's sleep: that all changes are told. The agent is asked for that, by
//! KEEP, and until it has answered nothing is believed for longer than anywhere else.

use super::super::frame::Class;
use super::super::keep::KeepName;
use super::super::verbs::{KeepArgs, Reply, Request};
use super::{Shared, unexpected};
use crate::agent::deploy::random;
use crate::{ErrorKind, Result, Turn};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::sync::Notify;

/// What is not certain of a session.
pub(super) struct Doubts {
    /// Changes that were heard before it.
    heard: u64,
    /// Whether its agent keeps watches.
    keeps: AtomicBool,
    /// As of which silence it is certain that all is told.
    certain: AtomicU64,
    /// It is to be asked for again.
    asked: Notify,
}

impl Doubts {
    pub fn new(heard: u64) -> Doubts {
        Doubts { heard, keeps: AtomicBool::new(false), certain: AtomicU64::new(0), asked: Notify::new() }
    }
}

/// Of watches that nobody goes on with.
pub(super) fn no_name() -> KeepName {
    [0; 16]
}

/// A name that nobody can guess.
pub fn new_name() -> KeepName {
    let mut name = [0; 16];
    name[..8].copy_from_slice(&random().to_be_bytes());
    name[8..].copy_from_slice(&random().to_be_bytes());
    name
}

impl Shared {
    /// Whether all is told that happened since the last session, or silence.
    pub async fn keep(&self) -> Result<bool> {
        let args = KeepArgs { name: self.told.name, heard: self.doubts.heard };
        match self.call_as(Class::Metadata, Turn::Now, Request::Keep(args)).await? {
            Reply::Keep(goes_on) => Ok(goes_on),
            other => Err(unexpected(&other)),
        }
    }

    /// Takes over the first answer.
    pub fn goes_on(&self, answer: Result<bool>) {
        self.keeps(answer.is_ok());
        tracing::debug!(?answer, "whether all was told since the last connection");
        match answer {
            Ok(true) => self.told.goes_on(),
            _ => self.told.breaks(),
        }
    }

    fn keeps(&self, keeps: bool) {
        self.told.keeps(keeps);
        self.doubts.keeps.store(keeps, Ordering::SeqCst);
    }

    /// See [`crate::Home::epoch`].
    pub fn epoch(&self) -> Option<u64> {
        let silences = self.life.silences()?;
        if !self.doubts.keeps.load(Ordering::SeqCst) {
            return Some(self.told.epoch()? + silences);
        }
        if self.doubts.certain.load(Ordering::SeqCst) != silences {
            self.doubts.asked.notify_one();
            return None;
        }
        self.told.epoch()
    }
}

/// Asks an agent for the first time, of which there is nothing to go on with.
pub(super) async fn begin(shared: Arc<Shared>) {
    let answer = shared.keep().await;
    // After a silence it is another span, of one that keeps nothing.
    if answer.is_ok() && shared.life.silences() == Some(0) {
        shared.keeps(true);
    }
}

/// Asks the agent after each silence.
pub(super) async fn prove(shared: Arc<Shared>) {
    loop {
        shared.doubts.asked.notified().await;
        let Some(silences) = shared.life.silences() else { continue };
        if shared.doubts.certain.load(Ordering::SeqCst) == silences {
            continue;
        }
        match shared.keep().await {
            // What was told during the silence may not have been taken in yet.
            Ok(true) => shared.told.goes_on(),
            Err(e) if e.kind == ErrorKind::Unreachable => continue,
            _ => shared.told.breaks(),
        }
        shared.doubts.certain.store(silences, Ordering::SeqCst);
    }
}
