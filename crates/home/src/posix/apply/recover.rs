//! What an agent left that was killed in the middle of an operation. The log tells what it was about to do; what it did of
//! that is seen. Afterwards the operation is done or not, and nothing is left of it: what was taken out of its place is
//! removed if it is what might be removed, and goes back otherwise.

use super::super::account::cache_dir;
use super::super::claim::{Intent, Leftovers, Stage, Swap, TakeOut};
use super::super::sys::{FileType, Mode, Rename, Sys};
use super::names::gone;
use super::staging::{COPY, MARKER, OLD, READY, Ready, mark, of_volume, place_of};
use super::{Act, Batch};
use crate::attr::{Attr, HomeId, Kind, Version};
use crate::op::{Done, Placed};
use crate::posix::Posix;
use crate::posix::resolve::Found;
use crate::{HomePath, Loc, Name, limits};
use bytes::Bytes;
use rustix::io::Errno;

/// Mends what an earlier agent left. What cannot be mended stays, and is shown after a while.
pub(in crate::posix) fn recover<S: Sys>(home: &Posix<S>, left: Leftovers) {
    let batch = Batch::new(home, None);
    for intent in &left.intents {
        // Without its staging directory there is nothing to put right.
        let _ = match intent {
            Intent::Swap(swap) => {
                let made = left.left.iter().rfind(|version| version.id == swap.new);
                batch.put_right(&swap.old, Some((swap.new, made)))
            }
            Intent::TakeOut(old) => batch.put_right(old, None),
            Intent::InPlace(_) => Ok(()),
        };
    }
    let after_cut = left.unlogged.is_some();
    let unlogged = left.unlogged.and_then(|mark| of_volume(home, &mark).ok()).unwrap_or_default();
    for stage in left.stages.iter().chain(&unlogged) {
        let _ = if after_cut { batch.put_away(stage) } else { batch.clear_away(stage) };
    }
}

impl<S: Sys> Batch<'_, S> {
    /// The place for the log of what is about to be taken out of a directory.
    pub(super) fn taking_out(
        &self,
        staging: usize,
        aside: &[u8],
        (dir, name): (&HomePath, &Name),
        found: &Attr,
        sole: bool,
    ) -> TakeOut {
        TakeOut {
            version: found.version(),
            dir: dir.clone(),
            name: name.clone(),
            stage: self.stagings[staging].stage.clone(),
            aside: Bytes::copy_from_slice(aside),
            sole,
        }
    }

    /// Notes what the operation is about to do.
    pub(super) fn intend(&mut self, intent: Intent) {
        if let Some(claim) = &mut self.claim {
            claim.intend(&self.home.sys, intent);
        }
    }

    /// Notes that a copy is about to take a name; and what it is like, which tells later whether somebody wrote to it there.
    pub(super) fn intend_swap(&mut self, copy: &Attr, old: TakeOut) {
        if let Some(claim) = &mut self.claim {
            claim.leaves(&self.home.sys, copy.version());
        }
        self.intend(Intent::Swap(Swap { new: copy.id, old }));
    }

    /// What an earlier agent was about to do when it was killed.
    pub(super) fn intent(&self, placed: &Placed) -> Option<&Intent> {
        self.claim.as_ref()?.intent(placed.id.seq)
    }

    /// The outcome of a change of content whose copy has the name already.
    pub(super) fn swapped_before(&mut self, placed: &Placed, at: &Loc) -> Act<Option<Done>> {
        let Some(Intent::Swap(swap)) = self.intent(placed) else { return Ok(None) };
        let (old, new) = (swap.old.version.id, swap.new);
        let Ok((_, dir, name)) = self.parent(&at.path) else { return Ok(None) };
        let Some(file) = self.home.find_in(&dir.fd, &name)?.filter(|f| f.attr.id == new) else {
            return Ok(None);
        };
        self.succeed(old, new);
        // What somebody has made of it since must not pass for ours.
        let mtime = if placed.plain { file.attr.mtime } else { placed.time };
        let attr = Attr { mtime, ..file.attr };
        self.sync_attrs(placed, at, file)?;
        Ok(Some(Done { attr: Some(attr), dirs: vec![self.disturb(&dir, placed)?] }))
    }

    /// Removes what was taken out of its place, or gives it back. `copy`: ours, which was to have the name instead, and what
    /// it was like, where that is known.
    fn put_right(&self, old: &TakeOut, copy: Option<(HomeId, Option<&Version>)>) -> Act<()> {
        let stage = self.open_stage(&old.stage)?;
        let there = match self.sys().open_name(&stage, &old.aside) {
            Ok(fd) => self.home.attr_of(&fd)?,
            // Nothing was taken out, or it is removed already.
            Err(Errno::NOENT) => return Ok(()),
            Err(e) => return Err(e.into()),
        };
        let (dir, is_there) = self.nearest(&old.dir)?;
        let (aside, to) = ((&stage, &old.aside[..]), (&dir.fd, old.name.as_bytes()));
        if let Some((copy, made)) = copy.filter(|(copy, _)| *copy == there.id) {
            // It never had the name, or not for long.
            let is_ours = made.is_none_or(|made| self.is_as_found(aside.0, aside.1, made, true));
            return self.put_copy_away(aside, to, copy, is_ours);
        }
        let now = match is_there {
            true => self.home.find_in(&dir.fd, &old.name)?.map(|now| now.attr.id),
            false => None,
        };
        let in_place = copy.filter(|(copy, _)| Some(*copy) == now);
        // By exchange it came here only when the copy took the name.
        let wanted = copy.is_none()
            || in_place.is_some()
            || [READY, COPY].iter().any(|prefix| old.aside.starts_with(prefix));
        if wanted && self.is_as_found(&stage, &old.aside, &old.version, old.sole) {
            return Ok(self.sys().unlink(&stage, &old.aside, false)?);
        }
        if let Some((copy, made)) = in_place
            && self.sys().rename(aside.0, aside.1, to.0, to.1, Rename::Exchange).is_ok()
        {
            let is_ours = made.is_none_or(|made| self.is_as_found(aside.0, aside.1, made, true));
            return self.put_copy_away(aside, to, copy, is_ours);
        }
        // Somebody has its name by now, and it has another one: nothing of it is lost.
        if copy.is_none() && now.is_some() && there.kind != Kind::Dir && there.nlink > 1 {
            return Ok(self.sys().unlink(&stage, &old.aside, false)?);
        }
        self.give_back(aside, to, is_there)
    }

    /// Gives what was taken out of its place back, or puts it beside, or near, if its directory is not there.
    fn give_back(&self, aside: (&S::Fd, &[u8]), to: (&S::Fd, &[u8]), is_there: bool) -> Act<()> {
        match is_there.then(|| self.move_free(aside, to)) {
            Some(Ok(())) => Ok(()),
            _ => self.rescue(aside, to.0, to.1),
        }
    }

    /// The directory at a path, or, where somebody has taken it away, the nearest one above it; and whether it is the former.
    fn nearest(&self, path: &HomePath) -> Act<(Found<S>, bool)> {
        let mut at = path.clone();
        loop {
            match self.home.find_dir(&Loc { path: at.clone(), id: None }) {
                Ok(dir) => return Ok((dir, at == *path)),
                Err(e) => at = at.split().ok_or(e)?.0,
            }
        }
    }

    /// Gives back what lies in a staging directory of which nobody knows any more what it was to become, and removes the rest.
    pub(super) fn put_away(&self, stage: &Stage) -> Act<()> {
        self.put_back_aside(stage).and_then(|()| self.clear_away(stage))
    }

    /// Gives what was taken out of its place back, where the power failed and nobody knows any more what it was to become:
    /// another program may have written to it. What has other names is removed: nothing of it is lost.
    fn put_back_aside(&self, stage: &Stage) -> Act<()> {
        let fd = self.open_stage(stage)?;
        let all = self.sys().names(&self.sys().reopen(&fd, Mode::Read)?, limits::NAMES_MAX)?;
        // One that stays keeps no other there.
        all.iter().map(|aside| self.put_back_one((&fd, aside))).fold(Ok(()), Result::and)
    }

    fn put_back_one(&self, aside: (&S::Fd, &[u8])) -> Act<()> {
        let stat = self.sys().stat(&self.sys().open_name(aside.0, aside.1)?)?;
        if stat.kind != FileType::Dir && stat.nlink > 1 {
            return Ok(self.sys().unlink(aside.0, aside.1, false)?);
        }
        match Ready::of_out(aside.1) {
            Some(out) => self.put_back_out(aside, &out),
            None if aside.1.starts_with(OLD) => self.put_back_old(aside),
            None => Ok(()),
        }
    }

    /// Removes a file whose place our copy has taken, if both are as they were then. Else it goes back.
    fn put_back_out(&self, aside: (&S::Fd, &[u8]), out: &Ready) -> Act<()> {
        let here = self.home.attr_of(&self.sys().open_name(aside.0, aside.1)?)?;
        let Some((dir, name)) = &out.place else { return self.put_at_home(aside) };
        let (dir, is_there) = self.nearest(dir)?;
        let now = if is_there { self.home.find_in(&dir.fd, name)? } else { None };
        let is_copy = now.is_some_and(|now| mark(&now.attr.version()) == out.copy);
        if is_copy && mark(&here.version()) == out.old {
            return Ok(self.sys().unlink(aside.0, aside.1, false)?);
        }
        self.give_back(aside, (&dir.fd, name.as_bytes()), is_there)
    }

    /// Gives what has such a name back; where that does not tell the place, into the home directory.
    fn put_back_old(&self, aside: (&S::Fd, &[u8])) -> Act<()> {
        let Some((dir, name)) = place_of(aside.1) else { return self.put_at_home(aside) };
        let (dir, is_there) = self.nearest(&dir)?;
        self.give_back(aside, (&dir.fd, name.as_bytes()), is_there)
    }

    /// Removes a staging directory with the copies in it that were never used. What else is in it stays, and is shown.
    fn clear_away(&self, stage: &Stage) -> Act<()> {
        let parent = self.stage_parent(stage)?;
        let fd = self.sys().open_name(&parent, &stage.name)?;
        let names = self.sys().names(&self.sys().reopen(&fd, Mode::Read)?, limits::NAMES_MAX)?;
        for name in &names {
            match Ready::of(name) {
                Some(ready) => self.clear_away_ready((&fd, name), &ready)?,
                None if name.starts_with(COPY) => self.sys().unlink(&fd, name, false)?,
                None => {}
            }
        }
        self.sys().unlink(&fd, MARKER, false).or_else(gone)?;
        Ok(self.sys().unlink(&parent, &stage.name, true)?)
    }

    /// Removes a copy that never took a file's name, or the file that it took the name from. What else came here with the name goes
    /// back: somebody had put it in the place of that file.
    fn clear_away_ready(&self, aside: (&S::Fd, &[u8]), ready: &Ready) -> Act<()> {
        let here = mark(&self.home.attr_of(&self.sys().open_name(aside.0, aside.1)?)?.version());
        if here == ready.copy || here == ready.old {
            return Ok(self.sys().unlink(aside.0, aside.1, false)?);
        }
        let Some((dir, name)) = &ready.place else { return self.put_at_home(aside) };
        let (dir, is_there) = self.nearest(dir)?;
        let to = (&dir.fd, name.as_bytes());
        let now = if is_there { self.home.find_in(&dir.fd, name)? } else { None };
        if let Some(copy) = now.filter(|now| mark(&now.attr.version()) == ready.copy)
            && self.sys().rename(aside.0, aside.1, to.0, to.1, Rename::Exchange).is_ok()
        {
            let is_ours = self.is_as_found(aside.0, aside.1, &copy.attr.version(), true);
            return self.put_copy_away(aside, to, copy.attr.id, is_ours);
        }
        self.give_back(aside, to, is_there)
    }

    fn put_at_home(&self, aside: (&S::Fd, &[u8])) -> Act<()> {
        let dir = self.sys().open_root(&self.home.account.home_dir)?;
        self.rescue(aside, &dir, b"taken-out")
    }

    fn stage_parent(&self, stage: &Stage) -> Act<S::Fd> {
        match &stage.below {
            None => Ok(cache_dir(self.home)?),
            Some(path) => Ok(self.home.open_path(path)?),
        }
    }

    fn open_stage(&self, stage: &Stage) -> Act<S::Fd> {
        let parent = self.stage_parent(stage)?;
        Ok(self.sys().open_name(&parent, &stage.name)?)
    }
}
