//! How long an answer of the home is good. For as long as the bound of staleness says. For longer where the home tells
//! what changes in a directory, from before it was listed on: then as long as it has told nothing, in one
//! [span](home::Home::epoch). Not at all once it has told that something changed after it was asked.
//!
//! What is told of a directory is about its names, and about attributes of what is under them, but not of directories:
//! what is made in one is told where that is watched itself. Of a file with more names than one nothing is believed to
//! be told, because it may be changed by another name. Passive: nobody is asked here.

use crate::inode::{DirNode, Inode, Tree};
use crate::limits;
use home::{Changed, Kind, Name, Time};
use std::time::Duration;

/// What an answer has to be.
#[derive(Debug, Clone, Copy)]
pub struct Need {
    /// When it is needed.
    pub now: Duration,
    /// Asked for at this time or later.
    pub since: Duration,
    /// Where the home does not answer, none at all rather than an older one.
    pub insist: bool,
    /// An older one will do where changes are told in this span; `None`: it will not.
    pub epoch: Option<u64>,
}

impl Need {
    /// The same, but nothing that was asked for longer ago than this, whatever was told since.
    pub fn no_older_than(self, age: Duration) -> Need {
        Need { since: self.since.max(self.now.saturating_sub(age)), epoch: None, ..self }
    }
}

/// What the home has told of a directory.
#[derive(Debug, Default)]
pub struct Told {
    /// The span in which everything is told, and the time of the question from which on it is.
    since: Option<(u64, Duration)>,
    /// When anything in it was said to have changed; zero: never.
    all: Duration,
    /// When its own attributes were; zero: not since it was listed.
    itself: Duration,
    /// Its mtime at the home as of the last answer, or as our last operation left it, if known.
    mtime: Option<Time>,
    /// When it was last asked for and others had changed its names since; zero: never. Which ones may not be told yet.
    moved: Duration,
    /// When names were. Zero for those of which nothing is told: they had unsent operations when it was listed, and
    /// what is known of them may be older than the listing.
    names: Vec<(Name, Duration)>,
}

impl Told {
    /// In this span everything is told that happens after a question at `asked`.
    pub fn begins(&mut self, epoch: u64, asked: Duration) {
        if self.all >= asked {
            return;
        }
        self.since = Some((epoch, asked));
        self.names.retain(|(_, at)| *at >= asked);
        self.itself = if self.itself >= asked { self.itself } else { Duration::ZERO };
    }

    /// The home shows this mtime, asked at `asked`. Where it tells that names came or went, whoever sees it must not be shown
    /// names as they were before: an NFS client believes them until the directory changes again.
    pub fn shows(&mut self, mtime: Time, asked: Duration) {
        if self.mtime.replace(mtime).is_some_and(|known| known != mtime) {
            self.moved = self.moved.max(asked);
        }
    }

    /// Our own operation left it with this mtime, if the home has said so.
    pub fn leaves(&mut self, mtime: Option<Time>) {
        self.mtime = mtime;
    }

    /// Nothing is told of a name until the directory is listed again.
    pub fn except(&mut self, name: &Name) {
        if self.since.is_some() && self.of(name).is_none() {
            self.names.push((name.clone(), Duration::ZERO));
        }
        if self.names.len() > limits::TOLD_NAMES {
            self.since = None;
        }
    }

    /// Whether everything was told in the directory's span once.
    pub fn was_told(&self) -> bool {
        self.since.is_some()
    }

    fn hear(&mut self, changed: &Changed, now: Duration) {
        if changed.all || self.names.len() + changed.names.len() > limits::TOLD_NAMES {
            *self = Told { all: now, itself: now, mtime: self.mtime, moved: self.moved, ..Told::default() };
            return;
        }
        if changed.itself {
            self.itself = now;
        }
        for name in &changed.names {
            match self.names.iter_mut().find(|(n, _)| n == name) {
                Some((_, at)) => *at = now,
                None => self.names.push((name.clone(), now)),
            }
        }
    }

    fn of(&self, name: &Name) -> Option<Duration> {
        self.names.iter().find(|(n, _)| n == name).map(|(_, at)| *at)
    }

    /// Whether everything after a question at `at` is told.
    fn covers(&self, at: Duration, need: &Need) -> bool {
        self.since.is_some_and(|(epoch, since)| {
            need.epoch == Some(epoch) && at >= since && since + limits::TOLD_MAX > need.now
        })
    }

    /// Whether an answer to a question at `at` is good. `told`: when a change of it was told, if anything was.
    fn is_good(&self, at: Duration, told: Option<Duration>, need: &Need) -> bool {
        let told_at = told.unwrap_or_default().max(self.all);
        let superseded = told_at >= at && told_at > Duration::ZERO;
        at >= need.now || !superseded && (at >= need.since || told.is_none() && self.covers(at, need))
    }

    /// Whether names that were asked for at `at` may be older than the directory's attributes that are shown.
    fn is_overtaken(&self, at: Duration, need: &Need) -> bool {
        let is_late = need.now >= self.moved + limits::TOLD_LATE;
        at < self.moved && at < need.now && !(is_late && self.covers(at, need))
    }

    /// Whether what was asked for at `at` of a name is good.
    pub fn is_name_good(&self, name: &Name, at: Duration, need: &Need) -> bool {
        !self.is_overtaken(at, need) && self.is_good(at, self.of(name), need)
    }

    /// Whether what was asked for at `at` of a name is older than a change that was told of that very name.
    pub fn is_outdated(&self, name: &Name, at: Duration) -> bool {
        self.of(name).is_some_and(|told| told >= at && told > self.all)
    }

    /// Whether a listing that was asked for at `at` is good.
    pub fn is_listing_good(&self, at: Duration, need: &Need) -> bool {
        !self.is_overtaken(at, need) && self.is_good(at, self.names.iter().map(|(_, at)| *at).max(), need)
    }

    /// Whether attributes of the directory itself that were asked for at `at` are good.
    fn is_itself_good(&self, at: Duration, need: &Need) -> bool {
        self.is_good(at, (self.itself > Duration::ZERO).then_some(self.itself), need)
    }
}

/// Whether the listing of a directory is complete and good.
pub fn is_listed(node: &DirNode, need: &Need) -> bool {
    node.complete && node.told.is_listing_good(node.listed_at, need)
}

/// Whether what is known of a directory is from before: from an earlier process, or from a span that is over.
pub fn is_from_before(node: &DirNode, epoch: Option<u64>) -> bool {
    let of_another = |(span, _): (u64, _)| epoch.is_some_and(|epoch| epoch != span);
    node.listed_at.is_zero() || node.told.since.is_some_and(of_another)
}

/// Whether the attributes of an object that is in memory may be shown: ours, or good.
pub fn has_good_attributes(tree: &Tree, id: u64, need: &Need) -> bool {
    let Some(inode) = tree.peek(id) else { return false };
    let Some(attr) = &inode.attr else { return false };
    if inode.pending > 0 && !inode.recalled || inode.at >= need.now {
        return true;
    }
    match &inode.dir {
        Some(node) => node.told.is_itself_good(inode.at, need),
        None => {
            let by_name = |above: Option<&Told>, name, need: &Need| match above {
                Some(above) => above.is_good(inode.at, above.of(name), need),
                None => inode.at >= need.since,
            };
            let mut places = places(tree, inode);
            match attr.nlink > 1 || inode.link.is_none() || !inode.more_links.is_empty() {
                false => places.all(|(above, name)| by_name(above, name, need)),
                true => {
                    let aged = Need { epoch: None, ..*need };
                    inode.at >= need.since && places.all(|(above, name)| by_name(above, name, &aged))
                }
            }
        }
    }
}

/// An object's names, and what is told of the directory of each: nothing of one that is not in memory.
fn places<'a>(tree: &'a Tree, inode: &'a Inode) -> impl Iterator<Item = (Option<&'a Told>, &'a Name)> {
    let told = |dir: u64| Some(&tree.peek(dir)?.dir.as_ref()?.told);
    inode.link.iter().chain(&inode.more_links).map(move |(dir, name)| (told(*dir), name))
}

/// Takes in what the home has told by now of a directory in memory.
pub fn hear(tree: &mut Tree, dir: u64, changed: &Changed, now: Duration) {
    let Ok(node) = tree.names_mut(dir) else { return };
    node.told.hear(changed, now);
    let children: Vec<Option<u64>> =
        changed.names.iter().map(|name| node.slot(name).and_then(|slot| slot.child)).collect();
    if changed.all || changed.itself {
        tree.notes.attributes(dir, 0);
    }
    for (name, child) in changed.names.iter().zip(children) {
        tree.notes.entry(dir, name, 0);
        if let Some(id) = child {
            let kind = tree.peek(id).map_or(Kind::File, |n| n.kind);
            tree.notes.object(id, kind, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inode::ROOT_ID;
    use crate::inode::tests::attr;
    use crate::store::{MemStore, MetaStore};
    use std::sync::Arc;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// Something is needed at a time, five seconds old at most, or told in the first span.
    fn need(now: u64) -> Need {
        Need { now: at(now), since: at(now - 5), insist: false, epoch: Some(1) }
    }

    fn name(text: &str) -> Name {
        Name::new(text.as_bytes()).unwrap()
    }

    fn changed(names: &[&str]) -> Changed {
        let names: Vec<Name> = names.iter().map(|n| name(n)).collect();
        Changed { mark: 1.into(), all: names.is_empty(), itself: true, names }
    }

    fn told_since(asked: u64) -> Told {
        let mut told = Told::default();
        told.begins(1, at(asked));
        told
    }

    #[test]
    fn what_is_told_stays_good_in_its_span_and_for_its_time() {
        let told = told_since(100);
        let good = |asked, need: Need| told.is_name_good(&name("a"), at(asked), &need);
        assert!(good(100, need(200)) && good(150, need(200)));
        assert!(!good(99, need(200)), "asked for before anything was told");
        assert!(!good(100, Need { epoch: Some(2), ..need(200) }));
        assert!(!good(100, Need { epoch: None, ..need(200) }));
        assert!(!good(100, need(100 + limits::TOLD_MAX.as_secs())));
        assert!(!Told::default().is_name_good(&name("a"), at(100), &need(200)));
    }

    #[test]
    fn a_told_name_is_as_good_as_its_next_answer_and_others_stay() {
        let mut told = told_since(100);
        told.hear(&changed(&["a"]), at(103));
        let good = |name_: &str, asked, now| told.is_name_good(&name(name_), at(asked), &need(now));
        assert!(!good("a", 100, 104) && !good("a", 103, 104), "younger than the bound, but asked before");
        assert!(good("a", 104, 105) && good("a", 104, 109), "asked after it was told");
        assert!(!good("a", 104, 200), "of a name that was told nothing more is");
        assert!(good("b", 100, 200));
        assert!(!told.is_listing_good(at(100), &need(104)) && told.is_listing_good(at(104), &need(105)));
        assert!(!told.is_itself_good(at(100), &need(104)));
    }

    #[test]
    fn who_asked_before_it_was_told_has_to_ask_again() {
        let mut told = Told::default();
        told.hear(&changed(&[]), at(103));
        told.begins(1, at(102));
        assert!(
            !told.is_name_good(&name("a"), at(102), &need(104)),
            "the change was told while it was asked"
        );
        told.begins(1, at(105));
        assert!(told.is_name_good(&name("a"), at(105), &need(200)));
        told.hear(&changed(&["a"]), at(107));
        told.begins(1, at(106));
        assert!(!told.is_name_good(&name("a"), at(106), &need(108)));
        assert!(told.is_name_good(&name("b"), at(106), &need(108)));
        told.begins(1, at(108));
        assert!(told.is_name_good(&name("a"), at(108), &need(200)));
    }

    #[test]
    fn what_the_call_itself_asked_for_is_good_whatever_is_told_meanwhile() {
        let mut told = told_since(100);
        told.hear(&changed(&["a"]), at(202));
        assert!(told.is_name_good(&name("a"), at(201), &need(201)));
    }

    #[test]
    fn of_a_name_with_unsent_operations_nothing_is_told() {
        let mut told = told_since(100);
        told.except(&name("mine"));
        assert!(told.is_name_good(&name("mine"), at(101), &need(104)));
        assert!(!told.is_name_good(&name("mine"), at(101), &need(200)));
        assert!(told.is_listing_good(at(100), &need(104)) && !told.is_listing_good(at(100), &need(200)));
    }

    #[test]
    fn what_an_earlier_process_kept_is_not_good_in_a_directory_that_is_not_in_memory() {
        let store = Arc::new(MemStore::new());
        let mut tree = Tree::open(1, store.clone()).unwrap();
        let dir = tree.bind(ROOT_ID, &name("d"), &attr(Kind::Dir, 50), None).unwrap();
        let file = tree.bind(dir, &name("f"), &attr(Kind::File, 51), None).unwrap();
        tree.get(file).unwrap().attr = Some(attr(Kind::File, 51));
        store.commit(tree.checkpoint(0).1).unwrap();
        let mut tree = Tree::open(1, store).unwrap();
        assert!(tree.get(file).unwrap().attr.is_some() && tree.peek(dir).is_none());
        assert!(!has_good_attributes(&tree, file, &need(200)));
        tree.get(file).unwrap().at = at(196);
        assert!(has_good_attributes(&tree, file, &need(200)), "no older than the bound");
    }

    #[test]
    fn too_many_names_are_everything() {
        let mut told = told_since(100);
        for i in 0..=limits::TOLD_NAMES {
            told.hear(&changed(&[&i.to_string()]), at(101));
        }
        assert!(!told.is_name_good(&name("other"), at(100), &need(102)) && !told.was_told());
    }
}
