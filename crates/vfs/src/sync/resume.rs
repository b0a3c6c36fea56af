//! Finds out how far a batch came whose answer was lost.
//!
//! Operations run in order, and each leaves the exact time of its record on what it changed. So the last
//! operation whose mark is found proves all before it. Only a write may have travelled later than its place (with
//! later writes to the same file): it counts as done if its own object shows it, or a later record of it.

use super::place::{Ready, place};
use super::queue::Group;
use crate::journal::Change;
use crate::volume::Volume;
use hashbrown::HashMap;
use home::{Attr, Class, Done, Loc, Op, Result};
use std::sync::Arc;

/// A record that was sent, and what the home has where it would have left its mark.
struct Trace {
    seq: u64,
    change: Change,
    mark: Option<Attr>,
}

impl Volume {
    /// Takes in what was done by a send whose answer was lost.
    pub async fn resume(self: &Arc<Self>, class: Class) -> Result<()> {
        let sent = self.sent();
        if sent.is_empty() {
            return Ok(());
        }
        let traces = self.look(sent, class).await?;
        let Some(proven) = traces.iter().filter(|t| t.mark.is_some()).map(|t| t.seq).max() else {
            return Ok(());
        };
        let mut shown: HashMap<u64, (u64, Attr)> = HashMap::new();
        for t in &traces {
            if let Some(attr) = t.mark {
                shown.insert(t.change.object, (t.seq, attr));
            }
        }
        let mut unseen = Vec::new();
        {
            let mut tree = self.tree.lock();
            for t in traces.iter().filter(|t| t.seq <= proven) {
                let newest = shown.get(&t.change.object);
                let write = matches!(t.change.op, Op::Write { .. });
                if write && newest.is_none_or(|(seq, _)| *seq < t.seq) {
                    continue;
                }
                let attr = newest.filter(|(seq, _)| *seq >= t.seq).map(|(_, attr)| *attr);
                if attr.is_none() && !matches!(t.change.op, Op::Remove { .. }) {
                    unseen.push(t.change.object);
                }
                let removed = matches!(t.change.op, Op::Remove { .. }) && attr.is_none();
                let done = Done { attr: if removed { None } else { attr.or(t.change.after) }, dirs: vec![] };
                self.done(&mut tree, &Group { seqs: vec![t.seq], newborn: false }, &done)?;
            }
        }
        self.outcomes.send_modify(|n| *n += 1);
        self.identify(unseen).await
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
            let change = self.tree.lock().queue.get(seq).map(|p| p.change.clone());
            let Some(change) = change else { return Ok(None) };
            let found = match place_of_mark(&ready.op) {
                Some(path) => match self.home.stat(&Loc { path, id: None }).await {
                    Ok(seen) => Some(seen.attr),
                    Err(e) if crate::fetch::is_out_of_reach(&e) => return Err(e),
                    Err(_) => None,
                },
                None => None,
            };
            let mark = found.filter(|attr| self.is_marked(&change, attr, class));
            Ok(Some(Trace { seq, change, mark }))
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
        let known = self.tree.lock().peek(change.object).map(|n| n.home_id).filter(|id| id.ino != 0);
        match &change.op {
            Op::Rename { .. } | Op::Link { .. } => known.map_or(same, |id| id == attr.id || same),
            // What a chmod or chown leaves is no proof: it may have been so before.
            Op::SetAttr { set, .. } => set.mtime.is_some() && same,
            _ => same,
        }
    }

    /// Learns what the home knows objects by whose operations are done.
    async fn identify(&self, objects: Vec<u64>) -> Result<()> {
        for id in objects {
            let Ok(path) = self.tree.lock().home_path(id) else { continue };
            match self.home.stat(&Loc { path, id: None }).await {
                Ok(seen) => self.confirm_object(&mut self.tree.lock(), id, &seen.attr),
                Err(e) if crate::fetch::is_out_of_reach(&e) => return Err(e),
                Err(_) => {}
            }
        }
        Ok(())
    }
}

/// Where an operation leaves its mark.
fn place_of_mark<D>(op: &Op<Loc, D>) -> Option<home::HomePath> {
    match op {
        Op::Create { dir, name, .. } | Op::Link { dir, name, .. } => Some(dir.path.join(name)),
        Op::Write { file, .. } => Some(file.path.clone()),
        Op::SetAttr { object, .. } => Some(object.path.clone()),
        Op::Rename { to, new_name, .. } => Some(to.path.join(new_name)),
        Op::Remove { .. } => None,
    }
}
