//! Whether the gateway that claims a volume is the one that claimed it last, and no earlier state of it.
//!
//! A state directory that is put back from a backup, or used twice, gives out numbers again, and what is sent under a number that was
//! executed before has its first outcome: it would be lost without a word. So each claim brings a word of its own, which the gateway
//! keeps before it sends it, and the last of them stays in the fence. Who does not know that one is not the gateway that it
//! is from. Any other that it knows is no sign of anything: an agent that was left behind may have come late with it. And a
//! copy of before the last claim's first operations shows in the numbers.

use super::super::Posix;
use super::super::sys::Sys;
use super::record::Record;
use super::{Claim, Progress};
use crate::op::Term;
use rustix::io::Errno;

/// Why a volume is not claimed.
pub(super) enum Refused {
    /// The files of the claim cannot be kept, or somebody else is at them.
    Sys(Errno),
    /// The home knows more of the gateway than it does itself.
    Superseded,
}

pub(super) type Taken<T> = std::result::Result<T, Refused>;

impl From<Errno> for Refused {
    fn from(e: Errno) -> Refused {
        Refused::Sys(e)
    }
}

impl<S: Sys> Claim<S> {
    /// Fails where the last word is none that the gateway knows. With the fence locked.
    pub(super) fn check_word(&self, home: &Posix<S>, term: Option<&Term>) -> Taken<()> {
        let last = self.fence.term(&home.sys);
        match term.is_none_or(|term| last.is_none_or(|word| term.knows(&word))) {
            true => Ok(()),
            false => Err(Refused::Superseded),
        }
    }

    /// Fails where an operation was begun that the gateway has not sent yet, and notes its word else, before anything is
    /// changed. A gateway that brings no word leaves the one that is there: it may be a later one at its next start.
    pub(super) fn begin_term(
        &mut self,
        home: &Posix<S>,
        term: Option<&Term>,
        records: &[Record],
    ) -> Taken<()> {
        let Some(term) = term else { return Ok(()) };
        let told = records.iter().filter_map(last_of).max();
        let ran = self.progress.as_ref().and_then(Progress::last);
        if told.max(ran).is_some_and(|last| last >= term.next) {
            return Err(Refused::Superseded);
        }
        // Else an earlier word of the same gateway stays, or none.
        self.keeps_term = self.fence.set_term(&home.sys, term.new).is_ok();
        Ok(())
    }
}

/// The last operation that was begun by what a record tells.
fn last_of(record: &Record) -> Option<u64> {
    match record {
        Record::Begun(seq) => Some(*seq),
        Record::Ended(ended) => Some(ended.seq),
        Record::Image(image) => Some(image.seq),
        Record::Unknown(all) => all.iter().map(|one| one.seq).max(),
        Record::Taken(_) | Record::Anew(_) | Record::Intent(_) | Record::Durable => None,
        Record::Staged(_) | Record::Left(_) => None,
    }
}
