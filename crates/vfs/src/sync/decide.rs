//! What a person decides about operations that a home refused: to try them again now, or to give them up.

use super::queue::{self, Pending, Queue, Waiting};
use crate::config::{Held, Parked};
use crate::inode::{Tree, local};
use crate::journal::{Change, Fate};
use crate::limits;
use crate::types::Oid;
use crate::volume::Volume;
use hashbrown::HashSet;
use home::{Error, ErrorKind, HomePath, Name, New, Op, Result};

impl Volume {
    /// Sends everything that the home refused once more, now; answers how many operations these are.
    pub fn retry_refused(&self) -> usize {
        let mut tree = self.tree.lock();
        let now = self.env.clock.instant();
        let refused: Vec<u64> =
            tree.queue.iter().filter(|(_, p)| p.parked.is_some()).map(|(seq, _)| seq).collect();
        for seq in &refused {
            if let Some(op) = tree.queue.get_mut(*seq) {
                op.again = Some(now);
            }
        }
        if let Some(last) = refused.last() {
            tree.queue.hurry(*last);
        }
        self.wake.notify_one();
        refused.len()
    }

    /// Gives up operations that the home refused, all or those of these numbers, and what means nothing without them:
    /// later writes to the same file, and everything that was done with an object or in a directory that is not made now.
    /// Answers all that was given up, in order, when that is durable. What the home has is shown again.
    pub async fn discard(&self, wanted: Option<&[u64]>) -> Result<Vec<Parked>> {
        let (given_up, last) = {
            let mut tree = self.tree.lock();
            let doomed = self.doomed(&tree.queue, wanted)?;
            let given_up = doomed.seqs.iter().filter_map(|seq| tree.refused(*seq)).collect();
            tree.tick += 1;
            self.replace_nothing(&mut tree, &doomed.objects)?;
            // The newest first: what a crash leaves makes sense.
            for seq in doomed.seqs.iter().rev() {
                self.drop_refused(&mut tree, *seq)?;
            }
            let last = self.lane.last();
            tree.queue.decide(last);
            (given_up, last)
        };
        self.lane.synced(last).await.map_err(local)?;
        self.outcomes.send_modify(|n| *n += 1);
        self.wake.notify_one();
        Ok(given_up)
    }

    /// What is given up with these operations; refused if one of them is not, or may be executed at this moment.
    fn doomed(&self, queue: &Queue, wanted: Option<&[u64]>) -> Result<Doomed> {
        let now = self.env.clock.instant();
        let refused = || queue.iter().filter(|(_, p)| p.parked.is_some()).map(|(seq, _)| seq);
        let wanted: HashSet<u64> =
            wanted.map_or_else(|| refused().collect(), |seqs| seqs.iter().copied().collect());
        for seq in &wanted {
            let op = queue.get(*seq).filter(|p| p.parked.is_some());
            let op = op.ok_or_else(|| {
                Error::new(ErrorKind::NotFound, format!("{seq} is not the number of a refused change"))
            })?;
            if !op.is_held(now) && queue.is_under_way(*seq) {
                let text = format!("{seq} is being tried again at this moment: look at `trellis status`");
                return Err(Error::new(ErrorKind::Busy, text));
            }
        }
        Ok(without(queue, &wanted))
    }

    fn drop_refused(&self, tree: &mut Tree, seq: u64) -> Result<()> {
        let Some(op) = tree.queue.remove(seq) else { return Ok(()) };
        self.release(tree, seq, &op);
        self.undo(tree, &op.change);
        if matches!(op.change.op, Op::Write { .. }) {
            self.relay(tree, op.change.object);
        }
        if let Op::Create { dir, name, .. } = &op.change.op
            && let Ok(inode) = tree.get(op.change.object)
        {
            inode.drop_link(&(*dir, name.clone()));
            inode.gone = inode.link.is_none();
            tree.drop_gone(op.change.object);
        }
        self.retire(seq, &op.change, Fate::Dropped)
    }

    /// Renames that would have replaced an object which is not made now replace nothing.
    fn replace_nothing(&self, tree: &mut Tree, unmade: &HashSet<u64>) -> Result<()> {
        let freed = |(seq, op): (u64, &Pending)| {
            let mut op = op.change.op.clone();
            let Op::Rename { object, replaced, .. } = &mut op else { return None };
            let old = replaced.take()?.0;
            (unmade.contains(&old) && !unmade.contains(object)).then_some((seq, op))
        };
        let freed: Vec<_> = tree.queue.iter().filter_map(freed).collect();
        freed.into_iter().try_for_each(|(seq, op)| self.amend(tree, seq, op))
    }

    /// Objects whose changes wait because the home refused one: those of operations with a number above `after`, and the
    /// number to go on with; `None` at the end.
    pub fn held(&self, after: u64) -> (Vec<Held>, Option<u64>) {
        let mut tree = self.tree.lock();
        let (mut waiting, mut ids, mut next) = (Waiting::default(), Vec::new(), None);
        for (seq, op) in tree.queue.iter() {
            if op.parked.is_none() && !waiting.concerns(&op.change) {
                continue;
            }
            waiting.add(&op.change);
            if seq <= after {
                continue;
            }
            ids.push(op.change.object);
            if ids.len() == limits::HELD_AT_ONCE {
                next = Some(seq);
                break;
            }
        }
        let mut seen = HashSet::new();
        ids.retain(|id| seen.insert(*id));
        let held = ids.into_iter().filter_map(|id| {
            let path = tree.local_path(id).ok()?;
            Some(Held { oid: Oid { volume: self.id, id }, path })
        });
        (held.collect(), next)
    }
}

impl Tree {
    /// An operation without an outcome, as a person sees it.
    pub fn refused(&mut self, seq: u64) -> Option<Parked> {
        let op = self.queue.get(seq)?;
        let (change, kind) = (op.change.clone(), op.parked.unwrap_or(ErrorKind::Busy));
        let stopped = op.stopped.as_ref().map(|stopped| stopped.folder.clone());
        let (what, at) = (describe(self, &change), self.place_of(&change));
        Some(Parked { seq, what, kind, stopped, at, all: vec![seq] })
    }
}

/// What is given up together.
struct Doomed {
    /// Operations, in order.
    seqs: Vec<u64>,
    /// Objects that are not made.
    objects: HashSet<u64>,
}

/// The operations `wanted`, and those that mean nothing without them.
fn without(queue: &Queue, wanted: &HashSet<u64>) -> Doomed {
    let (mut seqs, mut objects, mut contents) = (Vec::new(), HashSet::new(), HashSet::new());
    for (seq, op) in queue.iter() {
        let change = &op.change;
        let writes = matches!(change.op, Op::Write { .. });
        let needs = queue::needs(change).any(|id| objects.contains(&id));
        if !(needs || wanted.contains(&seq) || writes && contents.contains(&change.object)) {
            continue;
        }
        if matches!(change.op, Op::Create { .. }) {
            objects.insert(change.object);
        }
        if writes {
            contents.insert(change.object);
        }
        seqs.push(seq);
    }
    Doomed { seqs, objects }
}

/// A change in a few words, for a person; paths are from the root of the home, and long ones lack their middle.
pub fn describe(tree: &mut Tree, change: &Change) -> String {
    let object = place_of(tree, change.object);
    let object = object.map_or_else(|| "a file without a name".into(), |p| shortened(&p.to_string()));
    let mut at = |dir, name: &Name| {
        let place = place_of(tree, dir).map_or_else(|| name.to_string(), |p| p.join(name).to_string());
        shortened(&place)
    };
    match &change.op {
        Op::Create { dir, name, new, .. } => {
            let what = match new {
                New::Dir => "directory",
                New::Fifo => "named pipe",
                New::Socket => "socket",
                New::Symlink(_) => "link",
                New::File => "file",
            };
            format!("create {what} {}", at(*dir, name))
        }
        Op::Write { .. } => format!("write to {object}"),
        Op::SetAttr { .. } => format!("set attributes of {object}"),
        Op::SetXattr { name, value, .. } => {
            let what = if value.is_some() { "set" } else { "remove" };
            format!("{what} attribute {name} of {object}")
        }
        Op::Remove { dir, name, .. } => format!("remove {}", at(*dir, name)),
        Op::Rename { from, name, to, new_name, .. } => {
            format!("rename {} to {}", at(*from, name), at(*to, new_name))
        }
        Op::Link { dir, name, .. } => format!("link {}", at(*dir, name)),
    }
}

/// The beginning and the end of a long text.
fn shortened(text: &str) -> String {
    let all: Vec<char> = text.chars().collect();
    if all.len() <= limits::PATH_SHOWN {
        return text.into();
    }
    let half = limits::PATH_SHOWN / 2;
    let (begin, end) = (&all[..half], &all[all.len() - half + 1..]);
    begin.iter().chain(&['…']).chain(end).collect()
}

/// Where an object is here, or was before its name was taken away.
fn place_of(tree: &mut Tree, id: u64) -> Option<HomePath> {
    let (mut names, mut at) = (Vec::new(), id);
    let place = loop {
        if let Ok(place) = tree.local_path(at) {
            break place;
        }
        // Each step is an operation that is unsent; more of them than a path has names go in circles.
        let (dir, name) = tree.queue.taken_from(at).filter(|_| names.len() < limits::PATH_NAMES)?;
        names.push(name);
        at = dir;
    };
    Some(names.iter().rev().fold(place, |place, name| place.join(name)))
}
