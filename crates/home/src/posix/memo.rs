//! What a home remembers while it runs. All of it may be lost: what is forgotten is staged again, and a
//! repeated operation is then recognised by the state that it wants.

use crate::attr::{Attr, HomeId, Time, Version};
use crate::error::{Error, ErrorKind, Result};
use crate::op::{Done, SetTime, Staged};
use crate::recent::Recent;
use crate::{OpId, Outcome, limits};
use bytes::{Bytes, BytesMut};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// The state of a file whose content we wrote, or the gateway has seen.
#[derive(Debug, Clone, Copy)]
struct Left {
    version: Version,
    /// Whether we made it: nobody else has read it as something finished.
    made_here: bool,
}

/// The ctimes of a file from one on that nothing but our own operations moved.
#[derive(Debug, Clone, Copy)]
struct Chain {
    since: Time,
    last: Time,
}

/// Recent operations and what they left.
pub(crate) struct Memo {
    outcomes: Recent<OpId, Outcome>,
    left: Recent<HomeId, Left>,
    /// By exchange an object got another inode: from the old to the new one.
    successors: Recent<HomeId, HomeId>,
    chains: Recent<HomeId, Chain>,
    applied: HashMap<(u64, u32), u64>,
    serving: (u64, u32),
}

impl Default for Memo {
    fn default() -> Self {
        Memo {
            outcomes: Recent::new(limits::OUTCOMES_KEPT),
            left: Recent::new(limits::LEFT_KEPT),
            successors: Recent::new(limits::LEFT_KEPT),
            chains: Recent::new(limits::LEFT_KEPT),
            applied: HashMap::new(),
            serving: (0, 0),
        }
    }
}

impl Memo {
    /// The number of the last executed operation of the volume that last had one executed.
    pub fn applied(&self) -> u64 {
        self.applied.get(&self.serving).copied().unwrap_or(0)
    }

    /// The numbers of a volume's operations that were done, in their order, as far as they are remembered.
    #[cfg(feature = "testing")]
    pub fn executed(&self, (gateway, volume): (u64, u32)) -> impl Iterator<Item = u64> {
        let own = move |op: &&OpId| (op.gateway, op.volume) == (gateway, volume);
        self.outcomes.keys().filter(own).map(|op| op.seq)
    }

    /// What became of an operation that was done.
    pub fn outcome(&self, op: OpId) -> Option<&Outcome> {
        self.outcomes.get(&op)
    }

    /// Keeps the outcome of an operation that was done; `left` is what it left a file's content in, if it wrote it.
    pub fn done(&mut self, op: OpId, outcome: &Outcome, left: Option<(Attr, bool)>) {
        let volume = (op.gateway, op.volume);
        if self.applied.len() >= limits::FILE_SYSTEMS && !self.applied.contains_key(&volume) {
            self.applied.clear();
        }
        let applied = self.applied.entry(volume).or_default();
        *applied = op.seq.max(*applied);
        self.serving = volume;
        if let Some((attr, made_here)) = left {
            self.left(&attr, made_here);
        }
        self.outcomes.put(op, outcome.clone());
    }

    /// An operation that was done may not be durable, and is to be done again.
    pub fn forget(&mut self, op: OpId) {
        self.outcomes.forget(&op);
    }

    /// Notes the state that an operation left a file in, before the batch ends.
    pub fn left(&mut self, attr: &Attr, made_here: bool) {
        let made_here = made_here || self.left.get(&attr.id).is_some_and(|l| l.made_here);
        self.left.put(attr.id, Left { version: attr.version(), made_here });
    }

    /// Notes what an operation that was not done left of a file.
    pub fn left_in_part(&mut self, version: Version) {
        let made_here = self.left.get(&version.id).is_some_and(|l| l.made_here);
        self.left.put(version.id, Left { version, made_here });
    }

    /// Whether a file has another content than the one that a change of its times was made to: `base`. One that has the
    /// wanted time got it by an earlier execution.
    pub fn is_foreign(&self, base: &Version, now: &Version, wanted: Option<SetTime>) -> bool {
        let was_set = wanted == Some(SetTime::At(now.mtime)) && now.size == base.size;
        !was_set && !self.matches(base, now)
    }

    /// Notes that the times of a file were set. Its content is still ours only if it was before; `known`: the gateway has
    /// seen it. Answers whether it is either.
    pub fn stamped(&mut self, before: &Version, after: &Version, known: bool) -> bool {
        match self.left.get_mut(&after.id) {
            Some(left) if left.version.same_content(before) && before.size == after.size => {
                left.version = *after;
                true
            }
            _ if known => {
                self.left.put(after.id, Left { version: *after, made_here: false });
                true
            }
            _ => false,
        }
    }

    /// Notes that an object got another inode.
    pub fn succeed(&mut self, old: HomeId, new: HomeId) {
        let made_here = self.left.get(&old).is_some_and(|l| l.made_here);
        self.successors.put(old, new);
        self.successors.forget(&new);
        if let Some(left) = self.left.get(&old).copied() {
            self.left.put(new, Left { made_here, ..left });
        }
    }

    /// Whether both are one object, `then` known by an older inode.
    pub fn same_object(&self, then: HomeId, now: HomeId) -> bool {
        let mut at = then;
        // The chain is short; the bound is for one that was cut and reused.
        for _ in 0..limits::LEFT_KEPT {
            if at == now {
                return true;
            }
            match self.successors.get(&at) {
                Some(next) => at = *next,
                None => return false,
            }
        }
        false
    }

    /// Whether an object is as its base says, or as our own later operations left it. Those come after
    /// the one that is to be executed was made, so that it is aware of them.
    pub fn matches(&self, base: &Version, now: &Version) -> bool {
        base.same_content(now)
            || self.same_object(base.id, now.id)
                && self.left.get(&now.id).is_some_and(|l| l.version.same_content(now))
    }

    /// Whether nobody but us can have changed a file since it had the length and the time that it has now: by its ctime, which
    /// others move with a change of the content too, and whose moves by our operations are remembered. Where there is none, as
    /// far as length and time tell.
    pub fn is_sure(&self, base: &Version, now: &Version) -> bool {
        let none = Time { sec: 0, nsec: 0 };
        let is_told = base.same_content(now) && base.ctime != none && now.ctime != none;
        !is_told || base.ctime == now.ctime || {
            let chain = self.chains.get(&now.id);
            chain.is_some_and(|chain| {
                chain.last == now.ctime && (chain.since..=chain.last).contains(&base.ctime)
            })
        }
    }

    /// Notes that an operation moved the ctime of a file, or made it: `before`. Answers since when nobody else has.
    pub fn moved(&mut self, id: HomeId, before: Option<Time>, after: Time) -> Time {
        let known = self.chains.get(&id).filter(|chain| before == Some(chain.last)).map(|chain| chain.since);
        let since = known.or(before).unwrap_or(after);
        self.chains.put(id, Chain { since, last: after });
        since
    }

    /// What an earlier agent moved is known by the outcome that it left.
    pub fn moved_before(&mut self, done: &Done) {
        if let (Some(attr), Some(since)) = (done.attr, done.since())
            && self.chains.get(&attr.id).is_none()
        {
            self.chains.put(attr.id, Chain { since, last: attr.ctime });
        }
    }

    /// The state that we left a file in.
    pub fn left_in(&self, id: HomeId) -> Option<Version> {
        self.left.get(&id).map(|l| l.version)
    }

    /// Whether we made this file and nobody else changed it.
    pub fn made_here(&self, now: &Version) -> bool {
        self.left.get(&now.id).is_some_and(|l| l.made_here && l.version.same_content(now))
    }
}

/// Bytes handed over before the operations that refer to them.
#[derive(Default)]
pub(crate) struct StagedStore {
    ops: HashMap<OpId, BTreeMap<u64, Bytes>>,
    order: VecDeque<OpId>,
    held: usize,
}

impl StagedStore {
    /// Keeps bytes at a position, instead of those that were there; answers how many are held from the start without a
    /// gap.
    pub fn put(&mut self, op: OpId, at: u64, data: Bytes) -> Result<u64> {
        let own: usize = self.ops.get(&op).map_or(0, |parts| parts.values().map(Bytes::len).sum());
        if own + data.len() > limits::STAGED_BYTES {
            return Err(Error::new(ErrorKind::TooBig, "one operation stages more than the home holds"));
        }
        if at.checked_add(data.len() as u64).is_none() {
            return Err(ErrorKind::Invalid.into());
        }
        if !self.ops.contains_key(&op) {
            self.order.push_back(op);
        }
        self.held += data.len();
        let parts = self.ops.entry(op).or_default();
        let end = at + data.len() as u64;
        let hit: Vec<u64> = parts
            .range(..end)
            .rev()
            .map_while(|(start, old)| (start + old.len() as u64 > at).then_some(*start))
            .collect();
        for start in hit {
            let Some(old) = parts.remove(&start) else { continue };
            let kept =
                |from: u64, to: u64| old.slice((from - start) as usize..(to.max(from) - start) as usize);
            let stop = start + old.len() as u64;
            let around = [(start, kept(start, at)), (end.min(stop), kept(end.min(stop), stop))];
            self.held -= old.len();
            for (from, rest) in around.into_iter().filter(|(_, rest)| !rest.is_empty()) {
                self.held += rest.len();
                parts.insert(from, rest);
            }
        }
        parts.insert(at, data);
        while self.held > limits::STAGED_BYTES {
            match self.order.iter().find(|o| **o != op).copied() {
                Some(oldest) => self.forget(oldest),
                None => break,
            }
        }
        Ok(self.contiguous(op))
    }

    /// How many bytes are held from the start without a gap.
    pub fn contiguous(&self, op: OpId) -> u64 {
        let mut end = 0;
        for (at, data) in self.ops.get(&op).into_iter().flatten() {
            if *at > end {
                break;
            }
            end = end.max(at + data.len() as u64);
        }
        end
    }

    /// Whether a range is held.
    pub fn holds(&self, range: &Staged) -> bool {
        range.at.checked_add(range.len).is_some_and(|end| end <= self.contiguous(range.op))
    }

    /// The bytes of a range; without a copy where they came in one piece.
    pub fn get(&self, range: &Staged) -> Option<Bytes> {
        if !self.holds(range) {
            return None;
        }
        let end = range.at + range.len;
        let parts = self.ops.get(&range.op)?;
        let mut out = BytesMut::with_capacity(range.len as usize);
        let mut at = range.at;
        for (start, data) in parts {
            let stop = start + data.len() as u64;
            if *start > at || stop <= at {
                continue;
            }
            let part = data.slice((at - start) as usize..(end.min(stop) - start) as usize);
            if part.len() as u64 == range.len {
                return Some(part);
            }
            out.extend_from_slice(&part);
            at += part.len() as u64;
            if at >= end {
                break;
            }
        }
        Some(out.freeze())
    }

    /// Drops what an operation staged.
    pub fn forget(&mut self, op: OpId) {
        for data in self.ops.remove(&op).into_iter().flatten() {
            self.held -= data.1.len();
        }
        self.order.retain(|o| *o != op);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attr::Time;

    fn op(seq: u64) -> OpId {
        OpId { gateway: 1, volume: 2, seq }
    }

    #[test]
    fn staged_bytes_arrive_in_any_order() {
        let mut store = StagedStore::default();
        assert_eq!(store.put(op(1), 3, Bytes::from_static(b"def")).unwrap(), 0);
        assert!(!store.holds(&Staged { op: op(1), at: 0, len: 1 }));
        assert_eq!(store.put(op(1), 0, Bytes::from_static(b"abc")).unwrap(), 6);
        let got = store.get(&Staged { op: op(1), at: 1, len: 4 }).unwrap();
        assert_eq!(&got[..], b"bcde");
        assert!(store.get(&Staged { op: op(1), at: 1, len: 6 }).is_none());
        assert!(store.get(&Staged { op: op(1), at: u64::MAX, len: 2 }).is_none());
    }

    #[test]
    fn what_is_staged_again_takes_the_place_of_what_was_there() {
        let mut store = StagedStore::default();
        store.put(op(1), 0, Bytes::from_static(b"aaaa")).unwrap();
        store.put(op(1), 4, Bytes::from_static(b"bbbb")).unwrap();
        store.put(op(1), 8, Bytes::from_static(b"cccc")).unwrap();
        let all = |store: &StagedStore, len| store.get(&Staged { op: op(1), at: 0, len }).unwrap();
        assert_eq!(store.put(op(1), 2, Bytes::from_static(b"xxxxxxx")).unwrap(), 12);
        assert_eq!(&all(&store, 12)[..], b"aaxxxxxxxccc");
        store.put(op(1), 0, Bytes::from_static(b"yy")).unwrap();
        store.put(op(1), 4, Bytes::from_static(b"z")).unwrap();
        assert_eq!(&all(&store, 12)[..], b"yyxxzxxxxccc");
        assert_eq!(store.held, 12);
        store.forget(op(1));
        assert_eq!(store.held, 0);
    }

    #[test]
    fn the_oldest_is_forgotten_first() {
        let mut store = StagedStore::default();
        let half = Bytes::from(vec![0; limits::STAGED_BYTES / 2]);
        for seq in 1..=3 {
            store.put(op(seq), 0, half.clone()).unwrap();
        }
        let held: Vec<bool> = (1..=3).map(|s| store.holds(&Staged { op: op(s), at: 0, len: 1 })).collect();
        assert_eq!(held, [false, true, true]);
        assert_eq!(store.held, limits::STAGED_BYTES);
        let too_much = store.put(op(4), 0, Bytes::from(vec![0; limits::STAGED_BYTES + 1]));
        assert_eq!(too_much.unwrap_err().kind, ErrorKind::TooBig);
    }

    #[test]
    fn a_content_is_known_by_its_time_or_by_the_one_that_it_was_to_get() {
        let id = HomeId { fs: 1, ino: 2, generation: 0 };
        let at = |sec| Time { sec, nsec: 0 };
        let version = |size, sec| Version { id, size, mtime: at(sec), ctime: at(0) };
        let (base, wanted) = (version(4, 1), Some(SetTime::At(at(9))));
        let mut memo = Memo::default();
        assert!(!memo.is_foreign(&base, &base, wanted));
        assert!(memo.is_foreign(&base, &version(4, 2), wanted));
        // Its first execution set it, and the answer was lost.
        assert!(!memo.is_foreign(&base, &version(4, 9), wanted));
        assert!(memo.is_foreign(&base, &version(5, 9), wanted));

        assert!(!memo.stamped(&version(4, 2), &version(4, 9), false));
        assert!(!memo.matches(&base, &version(4, 9)));
        assert!(memo.stamped(&base, &version(4, 9), true));
        assert!(memo.matches(&base, &version(4, 9)) && !memo.made_here(&version(4, 9)));
    }

    #[test]
    fn a_ctime_that_somebody_else_moved_is_no_sure_one() {
        let id = HomeId { fs: 1, ino: 2, generation: 0 };
        let at = |sec| Time { sec, nsec: 0 };
        let seen = |ctime| Version { id, size: 4, mtime: at(1), ctime: at(ctime) };
        let mut memo = Memo::default();
        assert!(memo.is_sure(&seen(3), &seen(3)) && !memo.is_sure(&seen(3), &seen(4)));
        // A home without ctimes, and another content.
        assert!(memo.is_sure(&seen(0), &seen(4)) && memo.is_sure(&seen(3), &seen(0)));
        assert!(memo.is_sure(&seen(3), &Version { size: 5, ..seen(4) }));

        assert_eq!(memo.moved(id, Some(at(3)), at(4)), at(3));
        assert_eq!(memo.moved(id, Some(at(4)), at(6)), at(3));
        assert!(memo.is_sure(&seen(3), &seen(6)) && memo.is_sure(&seen(4), &seen(6)));
        // Before the first of them somebody else may have moved it; and behind the last.
        assert!(!memo.is_sure(&seen(2), &seen(6)) && !memo.is_sure(&seen(3), &seen(7)));
        assert_eq!(memo.moved(id, Some(at(7)), at(8)), at(7));
        assert!(!memo.is_sure(&seen(6), &seen(8)) && memo.is_sure(&seen(7), &seen(8)));
        assert_eq!(memo.moved(id, None, at(9)), at(9));
    }

    #[test]
    fn an_object_keeps_its_identity_over_exchanges() {
        let id = |ino| HomeId { fs: 1, ino, generation: 0 };
        let mut memo = Memo::default();
        memo.succeed(id(1), id(2));
        memo.succeed(id(2), id(3));
        assert!(memo.same_object(id(1), id(3)));
        assert!(!memo.same_object(id(3), id(1)));
        memo.succeed(id(3), id(1));
        assert!(memo.same_object(id(2), id(1)));
    }
}
