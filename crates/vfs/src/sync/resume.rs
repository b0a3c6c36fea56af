//! Finds out how far a batch came whose answer was lost.
//!
//! Operations run in order, and each leaves the exact time of its record on what it changed. So the last
//! operation whose mark is found proves all before it. Only a write may have travelled later than its place, with
//! the last one of a run of writes to the same file: it counts as done if that one is proven, or if its own object
//! shows it or a later record of it. Where several records leave the same mark, it proves only the first of them.
//! What the home shows in the very version that a change is based on is no mark: it was so before. An operation that
//! was refused once may have been passed by later ones: only its own mark counts, and what depends on it waits with it.

use super::place::{Ready, place};
use super::queue::{Group, Waiting};
use crate::journal::Change;
use crate::volume::Volume;
use hashbrown::HashMap;
use home::{Attr, Class, Done, HomePath, Loc, Op, Result};
use std::sync::Arc;

/// A record that was sent, and what the home has where it would have left its mark.
struct Trace {
    seq: u64,
    change: Change,
    /// It was refused once.
    late: bool,
    mark: Option<Attr>,
    /// Where it leaves its mark.
    place: Option<HomePath>,
}

impl Volume {
    /// Takes in what was done by a send whose answer was lost.
    pub async fn resume(self: &Arc<Self>, class: Class) -> Result<()> {
        self.identify().await?;
        let sent = self.sent();
        if sent.is_empty() {
            return Ok(());
        }
        let traces = self.look(sent, class).await?;
        let marks = |late| traces.iter().filter(move |t| t.mark.is_some() && t.late == late);
        let proven = marks(false).map(|t| earliest(&traces, t)).max().unwrap_or(0);
        if proven == 0 && marks(true).next().is_none() {
            return Ok(());
        }
        let mut waiting = Waiting::default();
        let mut shown: HashMap<u64, (u64, Attr)> = HashMap::new();
        for t in &traces {
            if let Some(attr) = t.mark.filter(|_| t.seq <= proven || t.late) {
                shown.insert(t.change.object, (t.seq, attr));
            }
        }
        {
            let mut tree = self.tree.lock();
            for t in traces.iter().filter(|t| t.seq <= proven || t.late) {
                if waiting.concerns(&t.change) || (t.late && t.mark.is_none()) {
                    waiting.add(&t.change);
                    continue;
                }
                let newest = shown.get(&t.change.object);
                if newest.is_none_or(|(seq, _)| *seq < t.seq) && run_end(&traces, t) > proven {
                    continue;
                }
                let attr = newest.filter(|(seq, _)| *seq >= t.seq).map(|(_, attr)| *attr);
                if attr.is_none() && !matches!(t.change.op, Op::Remove { .. }) {
                    tree.unseen.push(t.change.object);
                }
                let done = Done { attr, dirs: vec![] };
                self.done(&mut tree, &Group { seqs: vec![t.seq], newborn: false }, &done)?;
            }
        }
        self.outcomes.send_modify(|n| *n += 1);
        self.identify().await
    }

    /// Records that may have been executed, each with its place at that point.
    fn sent(&self) -> Vec<Ready> {
        let mut tree = self.tree.lock();
        let sent = tree.queue.iter().filter(|(_, p)| p.resent && p.parked.is_none() && !p.change.plain);
        let groups = sent.map(|(seq, _)| Group { seqs: vec![seq], newborn: false }).collect();
        let placed = place(&mut tree, self.shared.gateway, self.id, groups);
        placed.into_iter().filter_map(|(_, ready)| ready.ok()).collect()
    }

    async fn look(&self, sent: Vec<Ready>, class: Class) -> Result<Vec<Trace>> {
        let questions = sent.into_iter().map(|ready| async move {
            let seq = ready.id.seq;
            let sent = self.tree.lock().queue.get(seq).map(|p| (p.change.clone(), p.late));
            let Some((change, late)) = sent else { return Ok(None) };
            let place = place_of_mark(&ready.op);
            let found = match place.clone() {
                Some(path) => match self.home.stat(&Loc { path, id: None }).await {
                    Ok(seen) => Some(seen.attr),
                    Err(e) if crate::fetch::is_out_of_reach(&e) => return Err(e),
                    Err(_) => None,
                },
                None => None,
            };
            let mark = found.filter(|attr| self.is_marked(&change, attr, class));
            Ok(Some(Trace { seq, change, late, mark, place }))
        });
        let traces = futures_util::future::try_join_all(questions).await?;
        Ok(traces.into_iter().flatten().collect())
    }

    /// Whether attributes at the home are those that a record left: its type, size and time. A link or a rename
    /// leaves the times alone; there the identity tells, where it was known before.
    fn is_marked(&self, change: &Change, attr: &Attr, class: Class) -> bool {
        let Some(after) = change.after else { return false };
        let same_time = match class {
            Class::Posix => after.mtime == attr.mtime,
            Class::Sftp => after.mtime.sec == attr.mtime.sec,
        };
        let same = after.kind == attr.kind
            && same_time
            && (after.kind == home::Kind::Dir || after.size == attr.size);
        let (known, base) = match self.tree.lock().peek(change.object) {
            Some(n) => (Some(n.home_id).filter(|id| id.ino != 0), n.base),
            None => (None, None),
        };
        if base == Some(attr.version()) {
            return false;
        }
        match &change.op {
            Op::Rename { .. } | Op::Link { .. } => known.map_or(same, |id| id == attr.id || same),
            // What a chmod or chown leaves is no proof: it may have been so before.
            Op::SetAttr { set, .. } => set.mtime.is_some() && same,
            _ => same,
        }
    }

    /// Learns what the home knows objects by whose operations are done. Nothing is sent before that.
    async fn identify(&self) -> Result<()> {
        loop {
            let (id, path) = {
                let mut tree = self.tree.lock();
                let Some(id) = tree.unseen.last().copied() else { return Ok(()) };
                (id, tree.home_path(id))
            };
            let seen = match path {
                Ok(path) => self.home.stat(&Loc { path, id: None }).await,
                Err(e) => Err(e),
            };
            let mut tree = self.tree.lock();
            match seen {
                Ok(seen) => self.confirm_object(&mut tree, id, &seen.attr),
                Err(e) if crate::fetch::is_out_of_reach(&e) => return Err(e),
                Err(_) => {}
            }
            tree.unseen.retain(|other| *other != id);
        }
    }
}

/// The first record that leaves the same mark as `t`.
fn earliest(traces: &[Trace], t: &Trace) -> u64 {
    let alike = |o: &Trace| match (&o.change.op, &t.change.op) {
        (Op::Rename { .. } | Op::Link { .. } | Op::Create { .. }, Op::Rename { .. } | Op::Link { .. }) => {
            o.place == t.place
        }
        (Op::SetAttr { .. } | Op::Write { .. }, Op::SetAttr { .. }) => {
            let mark = |c: &Change| c.after.map(|a| (a.mtime, a.size));
            mark(&o.change) == mark(&t.change)
        }
        _ => false,
    };
    let same = traces.iter().filter(|o| o.change.object == t.change.object && alike(o));
    same.map(|o| o.seq).min().unwrap_or(t.seq)
}

/// The last write of the run of writes to one file that `t` belongs to, which nothing else that works on the file
/// interrupts; of any other operation its own number.
fn run_end(traces: &[Trace], t: &Trace) -> u64 {
    let is_write = |t: &Trace| matches!(t.change.op, Op::Write { .. });
    if !is_write(t) {
        return t.seq;
    }
    let later = traces.iter().filter(|o| o.seq > t.seq);
    let mine = later.filter(|o| crate::sync::queue::objects(&o.change).any(|id| id == t.change.object));
    mine.take_while(|o| is_write(o)).map(|o| o.seq).last().unwrap_or(t.seq)
}

/// Where an operation leaves its mark.
fn place_of_mark<D>(op: &Op<Loc, D>) -> Option<HomePath> {
    match op {
        Op::Create { dir, name, .. } | Op::Link { dir, name, .. } => Some(dir.path.join(name)),
        Op::Write { file, .. } => Some(file.path.clone()),
        Op::SetAttr { object, .. } => Some(object.path.clone()),
        Op::Rename { to, new_name, .. } => Some(to.path.join(new_name)),
        Op::Remove { .. } => None,
    }
}
