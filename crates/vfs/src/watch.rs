//! The stream of changes: what front-ends that cache for themselves must forget. They subscribe; the engine never
//! calls them.
//!
//! A change is noted in the [`Tree`](crate::inode::Tree) by whoever makes or finds it, and handed over when the lock of
//! the tree is released, so that nobody sees the new state before every watcher can hear of it. Each event names
//! the session that caused it. Each watcher has a buffer of its own; if it is full, everything in it becomes one
//! [`Event::Lost`]. While nobody watches, nothing is noted.
//!
//! What changes at a home is noticed when the home tells of it, or when somebody asks for it and the home is asked again.

use crate::inode::is_hidden;
use crate::journal::Change;
use crate::limits;
use crate::sync::queue;
use crate::types::{Name, Oid};
use home::{Kind, Op};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use tokio::sync::Notify;

/// Something that is no longer what it was. `origin` is the session of the call that caused it; 0: the home, or nobody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Attributes of an object.
    Attributes {
        /// The object.
        oid: Oid,
        /// Who caused it.
        origin: u64,
    },
    /// Content of a file, and with it attributes. Also where it merely cannot be excluded.
    Content {
        /// The file.
        oid: Oid,
        /// Who caused it.
        origin: u64,
    },
    /// What a name stands for, or whether it is taken; and with it attributes of the directory.
    Entry {
        /// The directory.
        dir: Oid,
        /// The name in it.
        name: Name,
        /// Who caused it.
        origin: u64,
    },
    /// Events were lost: anything may have changed.
    Lost,
}

impl Event {
    /// The session of the call that caused it; 0: the home, or nobody.
    pub fn origin(&self) -> u64 {
        match self {
            Event::Attributes { origin, .. }
            | Event::Content { origin, .. }
            | Event::Entry { origin, .. } => *origin,
            Event::Lost => 0,
        }
    }
}

/// A subscription to the stream; ends when it is dropped.
pub struct Watch {
    buffer: Arc<Buffer>,
    watchers: Arc<Watchers>,
}

impl Watch {
    /// The next event, as soon as there is one. Nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> Event {
        loop {
            if let Some(event) = self.try_next() {
                return event;
            }
            self.buffer.more.notified().await;
        }
    }

    /// The next event, if there is one.
    pub fn try_next(&mut self) -> Option<Event> {
        self.buffer.events.lock().pop_front()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let mut list = self.watchers.list.lock();
        list.retain(|b| !std::ptr::eq(b.as_ptr(), Arc::as_ptr(&self.buffer)) && b.strong_count() > 0);
        self.watchers.listening.store(!list.is_empty(), Ordering::Relaxed);
    }
}

#[derive(Default)]
struct Buffer {
    events: Mutex<VecDeque<Event>>,
    more: Notify,
}

impl Buffer {
    fn take(&self, news: &[Event]) {
        let mut events = self.events.lock();
        for event in news {
            if events.len() >= limits::WATCH_EVENTS {
                events.clear();
                events.push_back(Event::Lost);
            }
            // Many writes to one file are one event for whoever has not looked yet.
            if events.back() != Some(event) {
                events.push_back(event.clone());
            }
        }
        drop(events);
        self.more.notify_one();
    }
}

/// Who watches. Its locks are leaves.
#[derive(Default)]
pub struct Watchers {
    listening: AtomicBool,
    list: Mutex<Vec<Weak<Buffer>>>,
}

impl Watchers {
    /// A new watcher, who hears of everything that happens from now on.
    pub fn watch(self: &Arc<Self>) -> Watch {
        let buffer = Arc::new(Buffer::default());
        let mut list = self.list.lock();
        list.push(Arc::downgrade(&buffer));
        self.listening.store(true, Ordering::Relaxed);
        Watch { buffer, watchers: self.clone() }
    }

    /// Whether anybody watches.
    pub fn are_there(&self) -> bool {
        self.listening.load(Ordering::Relaxed)
    }

    /// Puts events into every watcher's buffer.
    pub fn tell(&self, news: &[Event]) {
        for buffer in self.list.lock().iter().filter_map(Weak::upgrade) {
            buffer.take(news);
        }
    }
}

/// What was noted of one volume since its lock was taken.
#[derive(Default)]
pub struct Notes {
    volume: u32,
    /// Names that this gateway hides are nobody's business.
    gateway: u64,
    watchers: Arc<Watchers>,
    events: Vec<Event>,
}

impl Notes {
    /// Of the volume with this number of a gateway, for these watchers.
    pub fn new(volume: u32, gateway: u64, watchers: Arc<Watchers>) -> Notes {
        Notes { volume, gateway, watchers, events: Vec::new() }
    }

    /// Attributes of an object changed.
    pub fn attributes(&mut self, id: u64, origin: u64) {
        if self.watchers.are_there() {
            self.events.push(Event::Attributes { oid: Oid { volume: self.volume, id }, origin });
        }
    }

    /// Content of a file changed.
    pub fn content(&mut self, id: u64, origin: u64) {
        if self.watchers.are_there() {
            self.events.push(Event::Content { oid: Oid { volume: self.volume, id }, origin });
        }
    }

    /// What a name stands for changed.
    pub fn entry(&mut self, dir: u64, name: &Name, origin: u64) {
        if self.watchers.are_there() && !is_hidden(self.gateway, name) {
            let dir = Oid { volume: self.volume, id: dir };
            self.events.push(Event::Entry { dir, name: name.clone(), origin });
        }
    }

    /// What objects of a kind are known by is not certain any more.
    pub fn object(&mut self, id: u64, kind: Kind, origin: u64) {
        match kind {
            Kind::File => self.content(id, origin),
            _ => self.attributes(id, origin),
        }
    }

    /// It is not known any more what changes.
    pub fn lost(&mut self) {
        if self.watchers.are_there() {
            self.events.push(Event::Lost);
        }
    }

    /// A change became visible.
    pub fn change(&mut self, change: &Change, origin: u64) {
        if !self.watchers.are_there() {
            return;
        }
        for (dir, name) in queue::names(change) {
            self.entry(dir, &name, origin);
        }
        match &change.op {
            Op::Create { .. } => {}
            Op::Write { file, .. } => self.content(*file, origin),
            Op::SetAttr { object, .. }
            | Op::SetXattr { object, .. }
            | Op::Remove { object, .. }
            | Op::Link { object, .. } => {
                self.attributes(*object, origin);
            }
            Op::Rename { object, replaced, .. } => {
                self.attributes(*object, origin);
                if let Some((old, _)) = replaced {
                    self.attributes(*old, origin);
                }
            }
        }
    }

    /// Hands over what was noted.
    pub fn hand_over(&mut self) {
        if !self.events.is_empty() {
            self.watchers.tell(&self.events);
            self.events.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(id: u64) -> Event {
        Event::Attributes { oid: Oid { volume: 7, id }, origin: 1 }
    }

    #[test]
    fn a_full_buffer_becomes_one_event_and_others_keep_theirs() {
        let watchers: Arc<Watchers> = Arc::default();
        let (mut slow, mut quick) = (watchers.watch(), watchers.watch());
        let mut seen = 0;
        for id in 0..limits::WATCH_EVENTS as u64 + 10 {
            watchers.tell(&[attributes(id)]);
            while let Some(event) = quick.try_next() {
                assert_eq!(event, attributes(seen));
                seen += 1;
            }
        }
        assert_eq!(seen, limits::WATCH_EVENTS as u64 + 10);
        assert_eq!(slow.try_next(), Some(Event::Lost));
        let rest: Vec<Event> = std::iter::from_fn(|| slow.try_next()).collect();
        let from = limits::WATCH_EVENTS as u64;
        assert_eq!(rest, (from..from + 10).map(attributes).collect::<Vec<_>>());
    }

    #[test]
    fn while_nobody_watches_nothing_is_noted() {
        let watchers: Arc<Watchers> = Arc::default();
        let mut notes = Notes::new(7, 1, watchers.clone());
        notes.attributes(1, 1);
        let mut watch = watchers.watch();
        notes.hand_over();
        assert_eq!(watch.try_next(), None);
        notes.attributes(2, 1);
        notes.hand_over();
        assert_eq!(watch.try_next(), Some(attributes(2)));
        drop(watch);
        assert!(!watchers.are_there());
    }

    #[tokio::test]
    async fn events_that_repeat_the_last_one_are_left_out() {
        let watchers: Arc<Watchers> = Arc::default();
        let mut watch = watchers.watch();
        watchers.tell(&[attributes(1), attributes(1), attributes(2), attributes(1)]);
        for id in [1, 2, 1] {
            assert_eq!(watch.next().await, attributes(id));
        }
        assert_eq!(watch.try_next(), None);
    }
}
