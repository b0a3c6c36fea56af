//! New files, made together.
//!
//! A file that is made, written and given its attributes by neighbours of one batch is made under a name of ours beside its
//! own one, over any channel and in any order, because nobody looks there. When all files of a flight are whole and durable,
//! they get their names: over the first channel, in the order of the operations, without waiting for each other. OpenSSH's
//! server does one request after the other, so that whenever it is cut off, what is seen there is what some first ones of the
//! operations leave. If a name cannot be given, those behind it are taken away again.
//!
//! What was staged and not used is removed when its operation is sent again, or with its directory.

use super::apply::{Memo, SET_ID, all_done, put_attrs, put_two, seconds, times_of};
use super::link::Link;
use super::look::{known_here, settled};
use super::wide::{Handle, put_open};
use super::wire::{self, Ask, Attrs};
use super::write::{Step, inline, plan, send_write};
use super::{Session, absolute};
use crate::limits::remote::SFTP_STAGED;
use crate::op::{Done, New, Op, OpId, Outcome, Payload, Piece, Placed, SetAttr, SetTime};
use crate::{Attr, ErrorKind, HomePath, Name, Result};
use futures_util::future::join_all;
use oncrpc::xdr::Writer;
use std::sync::Arc;

/// Operations that make one file and are neighbours.
struct Unit<'a> {
    ops: &'a [Placed],
    dir: &'a HomePath,
    path: HomePath,
    staged: HomePath,
    bytes: usize,
}

/// What begins the name of what is staged.
const STAGED: &str = ".trellis-new-";

fn staged_name(op: OpId) -> Option<Name> {
    Name::new(format!("{STAGED}{:x}-{:x}-{:x}", op.gateway, op.volume, op.seq).as_bytes()).ok()
}

/// Whether it is the name of something staged.
pub(super) fn is_staged(name: &Name) -> bool {
    let Some(rest) = name.as_bytes().strip_prefix(STAGED.as_bytes()) else { return false };
    let hex = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_hexdigit);
    rest.split(|b| *b == b'-').map(hex).eq([true; 3])
}

/// Whether it is the name of something that this gateway has staged.
pub(super) fn is_staged_by(gateway: u64, name: &Name) -> bool {
    is_staged(name) && name.as_bytes().starts_with(format!("{STAGED}{gateway:x}-").as_bytes())
}

/// What a flight came to.
pub(super) struct Flown {
    pub outcomes: Vec<Outcome>,
    /// It was given up in between.
    pub broken: bool,
}

/// Cuts the first operations into those of one new file each, as far as that is what they are.
fn units<'a>(memo: &Memo, ops: &'a [Placed]) -> Vec<Unit<'a>> {
    let mut units: Vec<Unit> = Vec::new();
    for (i, placed) in ops.iter().enumerate() {
        if placed.plain || placed.resent || memo.outcomes.get(&placed.id).is_some() {
            break;
        }
        match (&placed.op, units.last_mut()) {
            (Op::Create { dir, name, new: New::File, .. }, _) if known_here(dir).is_ok() => {
                let (Some(staged), path) = (staged_name(placed.id), dir.path.join(name)) else { break };
                if units.iter().any(|unit| unit.path == path) {
                    break;
                }
                let staged = dir.path.join(&staged);
                units.push(Unit { ops: &ops[i..=i], dir: &dir.path, path, staged, bytes: 0 });
            }
            (Op::Write { file, pieces, .. }, Some(unit)) if file.path == unit.path => {
                let bytes = unit.bytes + pieces.iter().map(inline_len).sum::<usize>();
                if known_here(file).is_err() || bytes > SFTP_STAGED {
                    // Without its content it would be a file that is not whole; it is made on its own.
                    units.pop();
                    break;
                }
                unit.bytes = bytes;
                unit.ops = &ops[i - unit.ops.len()..=i];
            }
            (Op::SetAttr { object, set, .. }, Some(unit)) if object.path == unit.path && is_plain(set) => {
                unit.ops = &ops[i - unit.ops.len()..=i];
            }
            _ => break,
        }
    }
    units
}

fn inline_len(piece: &Piece<Payload>) -> usize {
    match piece {
        Piece::Data(_, Payload::Inline(data)) => data.len(),
        // Too many, so that it is refused elsewhere.
        Piece::Data(_, Payload::Staged(_) | Payload::Spooled(_)) => SFTP_STAGED + 1,
        Piece::Truncate(_) => 0,
    }
}

fn is_plain(set: &SetAttr) -> bool {
    let known = |time: Option<SetTime>| !matches!(time, Some(SetTime::Now));
    set.uid.is_none() && set.gid.is_none() && known(set.atime) && known(set.mtime)
}

impl Session {
    /// Makes the new files that the operations begin with, at least two operations, or does nothing.
    pub(super) async fn make_together(&self, memo: &mut Memo, ops: &[Placed]) -> Result<Flown> {
        let mut units = if self.link.can.limits { units(memo, ops) } else { Vec::new() };
        let none = Flown { outcomes: Vec::new(), broken: false };
        if units.iter().map(|unit| unit.ops.len()).sum::<usize>() < 2 {
            return Ok(none);
        }
        let mut left: Vec<Vec<Attr>> = Vec::new();
        let mut broken = false;
        for made in join_all(units.iter().map(|unit| self.stage_file(unit))).await {
            match made {
                Ok(attrs) if !broken => left.push(attrs),
                Err(e) if e.kind == ErrorKind::Unreachable => return Err(e),
                _ => broken = true,
            }
        }
        let useless = units.split_off(left.len());
        self.unstage(&useless).await?;
        let (named, dirs) = self.give_names(&units, &left).await?;
        broken |= named < units.len();
        let mut outcomes = Vec::new();
        for (unit, attrs) in units.iter().zip(left).take(named) {
            self.listings.lock().forget(unit.dir);
            if let Some(last) = attrs.last() {
                memo.leave(&unit.path, last);
                self.note(&unit.path, last);
            }
            for (placed, attr) in unit.ops.iter().zip(attrs) {
                let is_new = matches!(placed.op, Op::Create { .. });
                let dir = dirs.iter().filter(|(path, _)| is_new && path == unit.dir).map(|(_, attr)| *attr);
                let outcome = Outcome::Done(Done { attr: Some(attr), dirs: dir.collect() });
                memo.outcomes.put(placed.id, outcome.clone());
                outcomes.push(outcome);
            }
        }
        Ok(Flown { outcomes, broken })
    }

    /// Makes one file whole and durable beside its name, where there is nothing yet. Answers its attributes after each
    /// operation.
    async fn stage_file(&self, unit: &Unit<'_>) -> Result<Vec<Attr>> {
        let turn = self.wide.turn(unit.bytes as u64);
        let link = &turn.lane.link;
        let handle = self.open_staged(link, unit).await?;
        let requests = unit.ops.len() * 3 + 1 + unit.bytes.div_ceil(link.can.write_max as usize);
        let _room = link.room(requests, unit.bytes).await?;
        let (mut sent, mut looks) = (Vec::new(), Vec::new());
        let set = |attrs: &Attrs| link.send(Ask::Fsetstat, |w| put_attrs(w, &handle.bytes, attrs));
        let mut times = None;
        for placed in unit.ops {
            times = times_of(placed).or(times);
            match &placed.op {
                Op::Create { mode, .. } => {
                    sent.push(set(&Attrs { mode: Some(mode & !SET_ID), times, ..Attrs::default() })?);
                }
                Op::Write { pieces, .. } => {
                    for step in plan(inline(pieces)?, link.can.write_max as usize) {
                        match step {
                            Step::Truncate(size) => {
                                sent.push(set(&Attrs { size: Some(size), ..Attrs::default() })?);
                            }
                            Step::Parts(parts) => {
                                for (at, data) in parts {
                                    sent.push(send_write(link, &handle.bytes, at, &data)?);
                                }
                            }
                        }
                    }
                    sent.push(set(&Attrs { times, ..Attrs::default() })?);
                }
                Op::SetAttr { set: wanted, .. } => {
                    let attrs = attrs_of(wanted, &mut times);
                    if attrs != Attrs::default() {
                        sent.push(set(&attrs)?);
                    }
                }
                _ => return Err(ErrorKind::Invalid.into()),
            }
            looks.push(link.send_about(Ask::Fstat, &handle.bytes)?);
        }
        if link.can.fsync {
            sent.push(link.send_extended("fsync@openssh.com", |w| wire::put_string(w, &handle.bytes))?);
        }
        all_done(sent).await?;
        let mut attrs = Vec::new();
        for look in looks {
            attrs.push(settled(self.account.attr(&look.attrs().await?)?));
        }
        self.wide.carried(&turn.lane, unit.bytes as u64, true);
        Ok(attrs)
    }

    /// Opens a new file beside the name of a unit, if there is nothing under that.
    async fn open_staged(&self, link: &Arc<Link>, unit: &Unit<'_>) -> Result<Handle> {
        let staged = absolute(&unit.staged);
        // Nobody else is to read what may become a secret.
        let attrs = Attrs { mode: Some(0o600), ..Attrs::default() };
        let open = || {
            let flags = wire::WRITE | wire::CREAT | wire::EXCL;
            link.send(Ask::Open, |w| put_open(w, &staged, flags, &attrs))
        };
        let _room = link.room(3, 0).await?;
        let look = link.send_about(Ask::Lstat, &absolute(&unit.path))?;
        let opened = open()?;
        let there = self.found(&unit.path, look).await;
        let handle = match opened.handle().await {
            // Left by an attempt that was cut off.
            Err(e) if e.kind == ErrorKind::Io => {
                link.send_about(Ask::Remove, &staged)?.done().await?;
                open()?.handle().await?
            }
            opened => opened?,
        };
        let handle = Handle::new(link, handle);
        match there? {
            None => Ok(handle),
            Some(_) => Err(ErrorKind::Exists.into()),
        }
    }

    /// Gives the names, in order. Answers how many first ones were given, and the attributes of the directories then.
    async fn give_names(
        &self,
        units: &[Unit<'_>],
        left: &[Vec<Attr>],
    ) -> Result<(usize, Vec<(HomePath, Attr)>)> {
        let link = &self.link;
        let body = |from: &HomePath, to: &HomePath| {
            let (from, to) = (absolute(from), absolute(to));
            link.send(Ask::Rename, |w| put_two(w, &from, &to))
        };
        let mut dirs: Vec<&HomePath> = units.iter().map(|unit| unit.dir).collect();
        dirs.dedup();
        let room = link.room(units.len() + dirs.len(), 0).await?;
        let sent: Vec<_> = units.iter().map(|u| body(&u.staged, &u.path)).collect::<Result<_>>()?;
        let looks = dirs.iter().map(|dir| link.send_about(Ask::Lstat, &absolute(dir)));
        let looks = looks.collect::<Result<Vec<_>>>()?;
        let mut given = Vec::new();
        for name in sent {
            match name.done().await {
                Err(e) if e.kind == ErrorKind::Unreachable => return Err(e),
                answer => given.push(answer.is_ok()),
            }
        }
        let mut after = Vec::new();
        for (dir, look) in dirs.into_iter().zip(looks) {
            after.extend(self.found(dir, look).await?.map(|attr| (dir.clone(), attr)));
        }
        // What follows waits for room of its own.
        drop(room);
        let first = given.iter().position(|given| !given).unwrap_or(given.len());
        for i in (first..units.len()).rev().filter(|i| given[*i]) {
            self.take_name(&units[i], &left[i]).await?;
        }
        self.unstage(&units[first..]).await?;
        Ok((first, after))
    }

    /// Takes away a name that was given out of turn. What another program has put or written there meanwhile keeps it.
    async fn take_name(&self, unit: &Unit<'_>, left: &[Attr]) -> Result<()> {
        let (staged, path) = (absolute(&unit.staged), absolute(&unit.path));
        let _room = self.link.room(3, 0).await?;
        let taken = self.link.send(Ask::Rename, |w| put_two(w, &path, &staged))?;
        let look = self.link.send_about(Ask::Lstat, &staged)?;
        match taken.done().await {
            Err(e) if e.kind == ErrorKind::Unreachable => return Err(e),
            _ => {}
        }
        let there = self.found(&unit.staged, look).await?;
        let is_ours = |there: &Attr| {
            left.last().is_some_and(|ours| {
                let what = |attr: &Attr| (attr.kind, attr.size, attr.mtime.sec, attr.mode);
                what(ours) == what(there)
            })
        };
        match there.is_some_and(|there| !is_ours(&there)) {
            true => self.give_back(unit).await,
            false => Ok(()),
        }
    }

    /// Gives what another program has made its name again, or one that is seen where something else has that by now. Not under
    /// the name of what is staged: what has that is removed.
    async fn give_back(&self, unit: &Unit<'_>) -> Result<()> {
        let id = unit.ops[0].id;
        let kept = format!("trellis-kept-{:x}-{:x}-{:x}", id.gateway, id.volume, id.seq);
        let mut given = Ok(());
        for name in [&unit.path, &unit.dir.join(&Name::new(kept.as_bytes())?)] {
            let body = |w: &mut Writer| put_two(w, &absolute(&unit.staged), &absolute(name));
            given = self.link.send(Ask::Rename, body)?.done().await;
            if !matches!(&given, Err(e) if e.kind != ErrorKind::Unreachable) {
                break;
            }
        }
        given
    }

    /// Removes what was staged for nothing.
    async fn unstage(&self, units: &[Unit<'_>]) -> Result<()> {
        let _room = self.link.room(units.len(), 0).await?;
        let remove = |unit: &Unit| self.link.send_about(Ask::Remove, &absolute(&unit.staged));
        for removed in units.iter().map(remove).collect::<Result<Vec<_>>>()? {
            match removed.done().await {
                Err(e) if e.kind == ErrorKind::Unreachable => return Err(e),
                // It was never made, or cannot be reached: then it goes with its directory.
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes what an earlier attempt to make a file may have staged, without waiting.
    pub(super) fn forget_staged(&self, op: OpId, path: &HomePath) -> Result<()> {
        if let (Some((dir, _)), Some(name)) = (path.split(), staged_name(op)) {
            drop(self.link.send_about(Ask::Remove, &absolute(&dir.join(&name)))?);
        }
        Ok(())
    }
}

/// What SETSTAT is told; `times` are those that the file has, and then has.
fn attrs_of(set: &SetAttr, times: &mut Option<(u32, u32)>) -> Attrs {
    let at = |time: Option<SetTime>, old: u32| match time {
        Some(SetTime::At(time)) => seconds(time),
        _ => old,
    };
    let (atime, mtime) = times.unwrap_or_default();
    let some_time = set.atime.is_some() || set.mtime.is_some();
    let new = (at(set.atime, atime), at(set.mtime, mtime));
    if some_time {
        *times = Some(new);
    }
    let mode = set.mode.map(|mode| mode & 0o7777 & !SET_ID);
    Attrs { mode, times: some_time.then_some(new), ..Attrs::default() }
}
