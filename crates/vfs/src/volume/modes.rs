//! Which mode is in force for an object, and what follows from it for an answer.

use super::Volume;
use crate::freshness::Need;
use crate::inode::Tree;
use crate::mode::{Mode, Modes};
use crate::types::Ctx;
use home::{Error, ErrorKind, HomePath, Kind, Name, Result};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What is known not to be true any more, and what an earlier process has kept, is of no time at all: older than this.
const AN_INSTANT: Duration = Duration::from_nanos(1);

/// What others changed where we were promised to be alone.
#[derive(Debug, Default)]
pub struct Alarm {
    times: u64,
    last: String,
}

/// What is answered for a home that may not be asked.
pub fn offline(account: &str) -> Error {
    Error::new(ErrorKind::Io, format!("{account} is offline, because its mode says so"))
}

impl Volume {
    /// Counts a conflict about an object.
    pub fn count_conflict(&self, tree: &mut Tree, id: u64) {
        self.conflicts.fetch_add(1, Ordering::Relaxed);
        if !self.mode_in(tree, id).is_alone() {
            return;
        }
        let mut alarm = self.alarm.lock();
        alarm.times += 1;
        alarm.last =
            tree.local_path(id).map_or_else(|_| "a file without a name".into(), |path| path.to_string());
        if alarm.times == 1 {
            let text = "somebody else changes a home that is owned; both versions are kept, and `status` counts more";
            tracing::error!(account = %self.account, path = alarm.last, "{text}");
        }
    }

    /// What is to be said of others who changed what is owned, if they did.
    pub fn alarm(&self) -> Option<String> {
        let alarm = self.alarm.lock();
        let times = if alarm.times == 1 { "once".into() } else { format!("{} times", alarm.times) };
        (alarm.times > 0).then(|| {
            format!(
                "somebody else has changed what is owned here, {times}, last {}; both versions were kept",
                alarm.last
            )
        })
    }

    /// Whether changes are made like a local program at the home would.
    pub fn plain(&self) -> bool {
        self.policy.modes.read().whole().is_plain()
    }

    /// Whether the home may be asked and written to.
    pub fn connects(&self) -> bool {
        self.policy.modes.read().whole().connects()
    }

    /// What is answered for a home that may not be asked.
    pub fn offline(&self) -> Error {
        offline(&self.account)
    }

    /// Gives the home as a whole another mode. How strict a change is was recorded with it, and its caller waits for
    /// that: [`ErrorKind::Invalid`] from or to `strict`.
    pub fn switch(&self, whole: Mode) -> Result<()> {
        let mut modes = self.policy.modes.write();
        if modes.whole() != whole && (modes.whole().is_plain() || whole.is_plain()) {
            let why = format!("{}: {} becomes {whole} with a restart alone", self.account, modes.whole());
            return Err(Error::new(ErrorKind::Invalid, why));
        }
        *modes = Modes::new(whole, modes.below().to_vec())?;
        drop(modes);
        self.wake.notify_one();
        self.outcomes.send_modify(|n| *n += 1);
        Ok(())
    }

    /// The mode in force for an object: by all its names, as far as they are known.
    pub fn mode_in(&self, tree: &mut Tree, id: u64) -> Mode {
        let modes = self.policy.modes.read();
        if let Some(only) = modes.only() {
            return only;
        }
        let Ok(inode) = tree.get(id) else { return modes.whole() };
        let links: Vec<(u64, Name)> = inode.link.iter().chain(&inode.more_links).cloned().collect();
        let paths = links.into_iter().filter_map(|(dir, name)| Some(tree.local_path(dir).ok()?.join(&name)));
        // The root of the home has no name, and neither has what was removed.
        paths.map(|path| modes.at(&path)).max().unwrap_or_else(|| modes.at(&HomePath::root()))
    }

    /// The same, not under the tree's lock.
    pub fn mode_of(&self, id: u64) -> Mode {
        let only = self.policy.modes.read().only();
        only.unwrap_or_else(|| self.mode_in(&mut self.tree.lock(), id))
    }

    /// What an answer about an object has to be. In mode `strict` it is asked for from now on.
    pub fn need(&self, id: u64) -> Need {
        let now = self.env.clock.instant();
        if self.plain() {
            return Need { now, since: now, insist: true, epoch: None };
        }
        let since = match self.mode_of(id).expires() {
            true => (now + AN_INSTANT).saturating_sub(self.shared.staleness),
            false => Duration::ZERO,
        };
        let since = since.max(AN_INSTANT);
        let epoch = if self.is_silent() { None } else { self.home.epoch() };
        Need { now, since, insist: false, epoch }
    }

    /// The same for a part of a call that began a while ago: in mode `strict` it is asked for since then.
    pub fn need_of_call(&self, ctx: Ctx<'_>, id: u64) -> Need {
        let need = self.need(id);
        match ctx.since {
            Some(since) if self.plain() => Need { since: since.min(need.since).max(AN_INSTANT), ..need },
            _ => need,
        }
    }

    /// Whether answers about a directory may be good for longer where the home tells what changes in it.
    pub fn wants_told(&self, tree: &mut Tree, dir: u64) -> bool {
        let mode = self.mode_in(tree, dir);
        mode.expires() && !mode.is_plain()
    }

    /// What an answer has to be that somebody opens a file with.
    pub fn need_to_open(&self, ctx: Ctx<'_>, id: u64) -> Need {
        match self.mode_of(id).validates_at_open() {
            true => {
                let now = self.env.clock.instant();
                Need {
                    now,
                    since: ctx.since.unwrap_or(now).min(now).max(AN_INSTANT),
                    insist: true,
                    epoch: None,
                }
            }
            false => self.need_of_call(ctx, id),
        }
    }

    /// The same for a call that may be an open, because its protocol knows none. Directories are not opened.
    pub fn need_of_look(&self, ctx: Ctx<'_>, id: u64) -> Need {
        let opens = ctx.looks_open && !self.tree.lock().get(id).is_ok_and(|n| n.kind == Kind::Dir);
        if opens { self.need_to_open(ctx, id) } else { self.need_of_call(ctx, id) }
    }

    /// What an answer about a name in a directory has to be, as for the object that it stands for.
    pub fn need_of_name(&self, ctx: Ctx<'_>, dir: u64, name: &Name) -> Need {
        if !ctx.looks_open || !self.mode_of(dir).validates_at_open() {
            return self.need_of_call(ctx, dir);
        }
        let child = {
            let mut tree = self.tree.lock();
            let node = tree.names(dir).ok();
            node.and_then(|node| node.slot(name)).and_then(|slot| slot.child)
        };
        child.map_or_else(|| self.need_to_open(ctx, dir), |child| self.need_of_look(ctx, child))
    }

    /// Fails where a folder that must not change would get this name in a directory, would lose it, or would not be found
    /// by its path any more.
    pub fn check_fixed(&self, tree: &mut Tree, dir: u64, name: &Name) -> Result<()> {
        let modes = self.policy.modes.read();
        if modes.only().is_some() {
            return Ok(());
        }
        let path = tree.local_path(dir)?.join(name);
        let taken = tree.names(dir)?.slot(name).is_some_and(|s| s.child.is_some());
        match modes.at(&path).is_read_only() || taken && modes.is_fixed(&path) {
            true => {
                Err(Error::new(ErrorKind::ReadOnly, format!("{path} is or leads to what must not change")))
            }
            false => Ok(()),
        }
    }
}
