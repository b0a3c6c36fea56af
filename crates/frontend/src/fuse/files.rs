//! What is open: the numbers that the kernel sends back with each request to an open file.

use fuser::FileHandle;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vfs::{Oid, OpenFile};

/// An open file.
#[derive(Debug)]
pub struct Open {
    /// The engine's side of it: what was granted, and what keeps the file while it has no name.
    pub file: OpenFile,
    /// Whether something was changed that was not committed since.
    written: AtomicBool,
    /// Who has locked something through it.
    lockers: Mutex<HashSet<u64>>,
}

/// The open files of a session.
pub struct Files {
    table: Mutex<Table>,
}

struct Table {
    next: u64,
    open: HashMap<u64, Arc<Open>>,
}

impl Files {
    /// Nothing is open.
    pub fn new() -> Files {
        Files { table: Mutex::new(Table { next: 1, open: HashMap::new() }) }
    }

    /// A number for a file that was opened.
    pub fn open(&self, file: OpenFile) -> FileHandle {
        self.add(Open { file, written: AtomicBool::new(false), lockers: Mutex::default() })
    }

    /// The same for one that may have been cut off by its opening, which closing it then commits.
    pub fn open_changed(&self, file: OpenFile) -> FileHandle {
        self.add(Open { file, written: AtomicBool::new(true), lockers: Mutex::default() })
    }

    fn add(&self, open: Open) -> FileHandle {
        let mut table = self.table.lock();
        let number = table.next;
        table.next += 1;
        table.open.insert(number, Arc::new(open));
        FileHandle(number)
    }

    /// The open file of a number; `None` for one of an earlier session.
    pub fn get(&self, handle: FileHandle) -> Option<Arc<Open>> {
        self.table.lock().open.get(&handle.0).cloned()
    }

    /// The number is given back.
    pub fn close(&self, handle: FileHandle) -> Option<Arc<Open>> {
        self.table.lock().open.remove(&handle.0)
    }
}

impl Open {
    /// The file.
    pub fn oid(&self) -> Oid {
        self.file.oid()
    }

    /// Somebody is about to lock something.
    pub fn locks(&self, owner: u64) {
        self.lockers.lock().insert(owner);
    }

    /// A process has closed it, and with that given up what it had locked.
    pub fn unlocks(&self, owner: u64) {
        self.lockers.lock().remove(&owner);
    }

    /// Who may still have locks.
    pub fn lockers(&self) -> Vec<u64> {
        self.lockers.lock().iter().copied().collect()
    }

    /// Something was written, or another attribute was changed.
    pub fn wrote(&self) {
        self.written.store(true, Ordering::Release);
    }

    /// Whether there is something to commit; whoever asks will do it.
    pub fn take_written(&self) -> bool {
        self.written.swap(false, Ordering::AcqRel)
    }
}
