//! What the kernel must forget, because somebody else has changed it: another session, NFS, or the home.
//!
//! A thread of its own tells the kernel, and holds no lock while it does: the kernel may wait for a page or a
//! directory that is locked by a request which only our event loops can answer. Where that takes long, or the stream
//! of changes was cut, the kernel's own bound ([`limits::FUSE_TTL`]) still holds for names and attributes, and with the
//! attributes for content.
//!
//! The kernel takes attributes for older than a change that it was told of after it had asked for them
//! (fs/fuse/inode.c `attr_version`), and a read at what it thinks is the end finds nothing. So it is told of a change that a
//! question for attributes has found after it has taken in the answer, which whoever asked does when it runs again.

use super::Tree;
use crate::limits;
use fuser::{INodeNo, Notifier};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use vfs::{Event, Watch};

/// Nodes whose pages are out of date though we changed them ourselves, and where to tell of them.
pub type Stale = mpsc::Sender<u64>;

/// The channel for [`Stale`] nodes. What does not fit is lost, and seen when the attributes are asked for again.
pub fn channel() -> (Stale, mpsc::Receiver<u64>) {
    mpsc::channel(limits::FUSE_STALE)
}

/// Where changes come from.
pub struct Sources {
    /// The engine.
    pub watch: Watch,
    /// Ourselves.
    pub stale: mpsc::Receiver<u64>,
    /// Tells when the session has ended.
    pub ended: watch::Receiver<bool>,
}

/// Questions for attributes whose answers the kernel does not have, or may not have taken in.
#[derive(Default)]
pub struct Unanswered(Mutex<Asked>);

#[derive(Default)]
struct Asked {
    nodes: HashMap<u64, Questions>,
    /// How many nodes were left when it was last looked which are over.
    left: usize,
}

#[derive(Default)]
struct Questions {
    open: usize,
    answered: Option<Instant>,
}

impl Questions {
    fn are_over(&self, now: Instant) -> bool {
        let taken_in = |at: Instant| now.saturating_duration_since(at) >= limits::FUSE_TAKEN_IN;
        self.open == 0 && self.answered.is_none_or(taken_in)
    }
}

/// A question that is answered when this is dropped.
pub struct Question {
    all: Arc<Unanswered>,
    node: u64,
}

impl Unanswered {
    /// The kernel asks.
    pub fn ask(self: &Arc<Self>, node: u64) -> Question {
        let mut asked = self.0.lock();
        if asked.nodes.len() >= limits::FUSE_ASKED.max(2 * asked.left) {
            let now = Instant::now();
            asked.nodes.retain(|_, questions| !questions.are_over(now));
            asked.left = asked.nodes.len();
        }
        asked.nodes.entry(node).or_default().open += 1;
        Question { all: Arc::clone(self), node }
    }

    /// Whether there are any about a node.
    fn are_there(&self, node: u64, now: Instant) -> bool {
        self.0.lock().nodes.get(&node).is_some_and(|questions| !questions.are_over(now))
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        if let Some(questions) = self.all.0.lock().nodes.get_mut(&self.node) {
            questions.open -= 1;
            questions.answered = Some(Instant::now());
        }
    }
}

/// What happened.
enum News {
    Event(Event),
    Stale(u64),
    /// Something that was put off may be told.
    Later,
    Ended,
}

/// Tells the kernel until the session ends.
pub fn run(runtime: &Handle, tree: &Arc<Tree>, mut sources: Sources, kernel: &Notifier) {
    let mut later = Later::default();
    loop {
        let told = match runtime.block_on(sources.next(later.next())) {
            News::Event(event) if event.origin() == tree.origin => Ok(()),
            News::Event(event) => match later.takes(&tree.unanswered, found(tree, &event), &event) {
                true => Ok(()),
                false => tell(tree, kernel, &event),
            },
            News::Stale(node) => kernel.inval_inode(INodeNo(node), 0, 0),
            News::Later => {
                let due = later.due(&tree.unanswered);
                due.iter().try_for_each(|event| tell(tree, kernel, event))
            }
            News::Ended => return,
        };
        if let Err(e) = told {
            tracing::debug!("invalidation: {e}");
        }
    }
}

impl Sources {
    /// What happened; at the time `later`, if there is one, that it has come.
    async fn next(&mut self, later: Option<Instant>) -> News {
        tokio::select! {
            _ = self.ended.wait_for(|ended| *ended) => News::Ended,
            event = self.watch.next() => News::Event(event),
            Some(node) = self.stale.recv() => News::Stale(node),
            () = tokio::time::sleep_until(later.unwrap_or_else(Instant::now)), if later.is_some() => News::Later,
        }
    }
}

/// Changes that the kernel is told of when it has its answers.
#[derive(Default)]
struct Later(Vec<Put>);

struct Put {
    /// When it is looked next whether it has them.
    next: Instant,
    /// When it is told at the latest.
    until: Instant,
    node: u64,
    event: Event,
}

impl Later {
    /// When it is to be looked what is due.
    fn next(&self) -> Option<Instant> {
        self.0.iter().map(|put| put.next).min()
    }

    /// Puts a change off, if the kernel asks for the attributes of the node.
    fn takes(&mut self, unanswered: &Unanswered, node: Option<u64>, event: &Event) -> bool {
        let now = Instant::now();
        let Some(node) = node.filter(|node| unanswered.are_there(*node, now)) else { return false };
        if self.0.iter().any(|put| put.event == *event) {
            return true;
        }
        if self.0.len() >= limits::FUSE_LATER_MAX {
            return false;
        }
        let (next, until) = (now + limits::FUSE_TAKEN_IN, now + limits::FUSE_LATER);
        self.0.push(Put { next, until, node, event: event.clone() });
        true
    }

    /// Takes out what is to be told now.
    fn due(&mut self, unanswered: &Unanswered) -> Vec<Event> {
        let now = Instant::now();
        let is_due = |put: &mut Put| {
            let due = put.next <= now && (put.until <= now || !unanswered.are_there(put.node, now));
            if put.next <= now {
                put.next = now + limits::FUSE_TAKEN_IN;
            }
            due
        };
        self.0.extract_if(.., is_due).map(|put| put.event).collect()
    }
}

/// The node of whose attributes a question may have found a change: what other sessions do is told at once.
fn found(tree: &Tree, event: &Event) -> Option<u64> {
    match event {
        Event::Attributes { oid, origin: 0 } | Event::Content { oid, origin: 0 } => tree.nodes.known(*oid),
        _ => None,
    }
}

fn tell(tree: &Tree, kernel: &Notifier, event: &Event) -> std::io::Result<()> {
    match event {
        // A negative offset stands for the attributes alone (fs/fuse/inode.c `fuse_reverse_inval_inode`).
        Event::Attributes { oid, .. } => match tree.nodes.known(*oid) {
            Some(node) => kernel.inval_inode(INodeNo(node), -1, 0),
            None => Ok(()),
        },
        Event::Content { oid, .. } => match tree.nodes.known(*oid) {
            Some(node) => kernel.inval_inode(INodeNo(node), 0, 0),
            None => Ok(()),
        },
        Event::Entry { dir, name, .. } => match tree.nodes.known(*dir) {
            Some(node) => kernel.inval_entry(INodeNo(node), OsStr::from_bytes(name.as_bytes())),
            None => Ok(()),
        },
        Event::Lost => tree.nodes.all().into_iter().try_for_each(|n| kernel.inval_inode(INodeNo(n), 0, 0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfs::Oid;

    fn change(id: u64) -> Event {
        Event::Content { oid: Oid { volume: 1, id }, origin: 0 }
    }

    /// Waits until it is to be looked what is due, and looks.
    async fn next(later: &mut Later, unanswered: &Unanswered) -> Vec<Event> {
        tokio::time::sleep_until(later.next().unwrap()).await;
        later.due(unanswered)
    }

    #[tokio::test(start_paused = true)]
    async fn the_kernel_has_taken_the_answer_in_before_it_hears_of_what_was_found_for_it() {
        let (unanswered, mut later) = (Arc::new(Unanswered::default()), Later::default());
        assert!(!later.takes(&unanswered, Some(7), &change(1)), "nobody asks");
        let [first, second] = [unanswered.ask(7), unanswered.ask(7)];
        assert!(!later.takes(&unanswered, Some(8), &change(2)), "of another node");
        assert!(!later.takes(&unanswered, None, &Event::Lost));
        assert!(
            later.takes(&unanswered, Some(7), &change(1)) && later.takes(&unanswered, Some(7), &change(1))
        );
        drop(first);
        assert_eq!(next(&mut later, &unanswered).await, [], "one is not answered");
        drop(second);
        assert_eq!(later.due(&unanswered), []);
        assert_eq!(next(&mut later, &unanswered).await, [change(1)]);
        assert_eq!(later.next(), None);
        drop(unanswered.ask(7));
        assert!(later.takes(&unanswered, Some(7), &change(1)), "answered just now");
        tokio::time::sleep(limits::FUSE_TAKEN_IN).await;
        assert!(!later.takes(&unanswered, Some(7), &change(2)), "taken in");
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_all_the_time_puts_nothing_off_for_long() {
        let (unanswered, mut later) = (Arc::new(Unanswered::default()), Later::default());
        let (_question, begun) = (unanswered.ask(7), Instant::now());
        for id in 0..limits::FUSE_LATER_MAX as u64 {
            assert!(later.takes(&unanswered, Some(7), &change(id)));
        }
        assert!(!later.takes(&unanswered, Some(7), &change(u64::MAX)), "full");
        let mut told = 0;
        while later.next().is_some() {
            told += next(&mut later, &unanswered).await.len();
        }
        assert_eq!(told, limits::FUSE_LATER_MAX);
        assert!(begun.elapsed() < limits::FUSE_LATER + 2 * limits::FUSE_TAKEN_IN);
    }

    #[tokio::test(start_paused = true)]
    async fn answered_questions_are_forgotten() {
        let unanswered = Arc::new(Unanswered::default());
        let question = unanswered.ask(0);
        for node in 1..=2 * limits::FUSE_ASKED as u64 {
            drop(unanswered.ask(node));
            tokio::time::sleep(limits::FUSE_TAKEN_IN).await;
        }
        assert!(unanswered.0.lock().nodes.len() <= limits::FUSE_ASKED);
        assert!(unanswered.are_there(0, Instant::now()));
        drop(question);
    }
}
