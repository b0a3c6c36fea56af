//! What an agent may say. It is a program of another machine, which its owner may have replaced: what could not be
//! true, or is more than was asked for, is refused before anybody calculates with it.

use super::super::verbs::{ConfirmResult, Reply, StatResult};
use crate::limits::{BEGUN_MAX, SYMLINK_MAX, agent::LIST_ENTRIES_MAX};
use crate::{Attr, Claimed, Done, Entered, Kind, Outcome, Page, Time};
use bytes::Bytes;

/// What of the answer cannot be true, if anything. A target in a listing that is none is only dropped.
pub(super) fn nonsense(reply: &mut Reply) -> Option<&'static str> {
    let (sound, what) = match reply {
        Reply::Failed(_) | Reply::Stage(_) | Reply::Stagec(_) | Reply::Copy(_) | Reply::Statfs(_) => {
            return None;
        }
        Reply::Keep(_) | Reply::Spool(_) | Reply::Unspool(_) => return None,
        Reply::Claim(claimed) | Reply::Claimt(Entered { known: claimed, .. }) => {
            let is_few = |c: &Claimed| c.begun.len().max(c.unknown.len()).max(c.torn.len()) <= BEGUN_MAX;
            let sound = |c: &Claimed| is_few(c) && c.booted.as_ref().is_none_or(is_time);
            (claimed.as_ref().is_none_or(sound), "list of operations")
        }
        Reply::Hello(accept) => (is_time(&accept.home.clock), "clock"),
        Reply::Stat(results) => {
            let sound = |r: &StatResult| match r {
                StatResult::Seen(seen) => is_attr(&seen.attr),
                StatResult::Failed(_) => true,
            };
            (results.iter().all(sound), "attributes")
        }
        Reply::List(page) => (is_page(page), "listing"),
        Reply::Listx(page) => (is_page(&mut page.page), "listing"),
        Reply::Watch(watched) => (is_page(&mut watched.page.page), "listing"),
        Reply::Walk(walked) => {
            let whole = |page: &mut Page| !page.more && page.dir.kind == Kind::Dir && is_page(page);
            (walked.pages.iter_mut().all(|walked| whole(&mut walked.page.page.page)), "listing")
        }
        Reply::Confirm(results) => {
            let sound = |r: &mut ConfirmResult| match r {
                ConfirmResult::Page(watched) => is_page(&mut watched.page.page),
                ConfirmResult::Unlike | ConfirmResult::Same(_) | ConfirmResult::Failed(_) => true,
            };
            (results.iter_mut().all(sound), "listing")
        }
        Reply::Xattrs(xattrs) => (is_attr(&xattrs.attr) && xattrs.is_sound(), "extended attribute"),
        Reply::Readc(checked) => (is_attr(&checked.chunk.attr), "attributes"),
        Reply::Readk(sparse) => (is_attr(&sparse.attr), "attributes"),
        Reply::Read(chunk) => (is_attr(&chunk.attr), "attributes"),
        Reply::Readlink(target) => (is_target(target), "symbolic link"),
        Reply::Apply(outcomes) | Reply::Applyc(outcomes) => (outcomes.iter().all(is_outcome), "outcome"),
    };
    (!sound).then_some(what)
}

fn is_page(page: &mut Page) -> bool {
    let entries = &mut page.entries;
    entries.iter_mut().for_each(|e| e.target = e.target.take().filter(is_target));
    entries.len() <= LIST_ENTRIES_MAX as usize
        && is_attr(&page.dir)
        && entries.iter().all(|e| e.attr.as_ref().is_none_or(is_attr))
        && entries.windows(2).all(|w| w[0].name < w[1].name)
}

fn is_outcome(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Done(Done { attr, dirs }) => attr.iter().chain(dirs).all(is_attr),
        Outcome::Conflict(attr) => attr.iter().all(is_attr),
        Outcome::Refused(_) => true,
    }
}

/// Sizes fit the signed offsets of clients.
fn is_attr(attr: &Attr) -> bool {
    const MAX: u64 = i64::MAX as u64;
    attr.size <= MAX
        && attr.used <= MAX
        && attr.mode <= 0o7777
        && [attr.atime, attr.mtime, attr.ctime].iter().all(is_time)
}

/// Any second is possible: some file systems take what they are given.
fn is_time(time: &Time) -> bool {
    time.nsec < 1_000_000_000
}

fn is_target(target: &Bytes) -> bool {
    (1..=SYMLINK_MAX).contains(&target.len()) && !target.contains(&0)
}
