//! What operations of ours do to the ctimes of files: by those it is told whether somebody else has changed a file without
//! changing its length and its time.

use super::super::sys::{Mode, Sys};
use super::{Act, Batch, Fail, exchange};
use crate::attr::{Attr, Kind};
use crate::op::{Op, Outcome, Placed};
use crate::posix::resolve::Found;
use crate::posix::step::Step;
use crate::posix::{Posix, lock};

impl<S: Sys> Batch<'_, S> {
    /// Whether the ctime of what an operation meets tells anything: one that may have been executed meets what it left itself.
    pub(super) fn compares_ctime(&self, placed: &Placed) -> bool {
        self.home.takes(Step::CompareCtime) && !placed.resent
    }

    /// Notes what an operation has found, before it does anything to that.
    pub(super) fn finds(&mut self, found: &Attr) {
        self.found.push((found.id, found.ctime));
    }

    /// Does what takes a file away that is as it was found: what somebody wrote after the last look would not be seen, as this
    /// moves its ctime, too.
    pub(super) fn untouched<T>(&mut self, file: &Found<S>, act: impl FnOnce(&mut Self) -> Act<T>) -> Act<T> {
        self.held(file, |batch| match batch.home.attr_of(&file.fd) {
            Ok(now) if batch.home.takes(Step::Verify) && !is_untouched(&file.attr, &now) => {
                Err(Fail::Conflict(Some(now)))
            }
            _ => act(batch),
        })
    }

    /// Does what moves the ctime of a file, and not its content: what somebody writes meanwhile would pass for that.
    pub(super) fn moving<T>(
        &mut self,
        placed: &Placed,
        file: &Found<S>,
        act: impl FnOnce(&mut Self) -> Act<T>,
    ) -> Act<T> {
        if placed.plain || file.attr.kind != Kind::File {
            return act(self);
        }
        self.held(file, |batch| {
            let now = batch.home.attr_of(&file.fd)?;
            batch.found.retain(|(id, _)| *id != now.id);
            batch.finds(&now);
            act(batch)
        })
    }

    /// Does something to a file that nobody opens for writing meanwhile, where the home can see to that.
    fn held<T>(&mut self, file: &Found<S>, act: impl FnOnce(&mut Self) -> Act<T>) -> Act<T> {
        let id = file.attr.id;
        // What this batch has open for writing looks like somebody else's.
        let written = self.take_open(id);
        let opened = match (&written, file.attr.kind) {
            (None, Kind::File) => self.sys().reopen(&file.fd, Mode::Read).ok(),
            _ => None,
        };
        let held = match &written {
            Some(fd) => Some(fd).filter(|fd| self.sys().lease(fd).is_ok()),
            None => opened.as_ref().filter(|fd| self.sys().hold(fd).is_ok()),
        };
        let done = act(self);
        if let Some(fd) = held {
            self.sys().unlease(fd);
        }
        if let Some(fd) = written {
            self.keep_open(fd, id, true);
        }
        done
    }

    /// A file has lost a name, which moves its ctime where it has another one.
    pub(super) fn loses_name(&self, before: &Found<S>) {
        if before.attr.kind == Kind::File
            && before.attr.nlink > 1
            && let Ok(after) = self.home.attr_of(&before.fd)
        {
            lock(&self.home.memo).moved(after.id, Some(before.attr.ctime), after.ctime);
        }
    }

    /// Notes how an operation moved the ctime of its file. Of what it left the content of as it was the outcome tells since when
    /// nobody else has moved it.
    pub(super) fn with_ctimes(&self, placed: &Placed, mut outcome: Outcome) -> Outcome {
        let Outcome::Done(done) = &mut outcome else { return outcome };
        let Some(attr) = done.attr.filter(|attr| attr.kind == Kind::File) else { return outcome };
        let before = self.found.iter().find(|(id, _)| *id == attr.id).map(|(_, ctime)| *ctime);
        let since = lock(&self.home.memo).moved(attr.id, before, attr.ctime);
        if !matches!(placed.op, Op::Create { .. } | Op::Write { .. }) {
            done.dirs.push(Attr { ctime: since, ..attr });
        }
        outcome
    }
}

/// Whether nobody has changed an object since it was found. What its mode forbids its owner is lent to open it, which moves ctime.
pub(super) fn is_untouched(found: &Attr, now: &Attr) -> bool {
    let is_lent = found.mode & 0o600 != 0o600;
    let has_content = found.kind == Kind::File;
    now.version().same_content(&found.version()) && (!has_content || is_lent || now.ctime == found.ctime)
}

/// What an operation left, after others of its batch: `now`. A ctime that somebody else has moved since is none that is known.
pub(super) fn own_since<S: Sys>(home: &Posix<S>, left: Attr, now: Attr) -> Attr {
    let own = exchange::own(left, now);
    match lock(&home.memo).is_sure(&left.version(), &own.version()) {
        true => own,
        false => Attr { ctime: left.ctime, ..own },
    }
}
