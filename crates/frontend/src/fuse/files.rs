//! What is open: the numbers that the kernel sends back with each request to an open file.

use fuser::FileHandle;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vfs::Oid;

/// An open file.
#[derive(Debug)]
pub struct Open {
    /// The file.
    pub oid: Oid,
    /// Whether something was written that was not committed since.
    written: AtomicBool,
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
    pub fn open(&self, oid: Oid) -> FileHandle {
        let mut table = self.table.lock();
        let number = table.next;
        table.next += 1;
        table.open.insert(number, Arc::new(Open { oid, written: AtomicBool::new(false) }));
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
    /// Something was written.
    pub fn wrote(&self) {
        self.written.store(true, Ordering::Release);
    }

    /// Whether there is something to commit; whoever asks will do it.
    pub fn take_written(&self) -> bool {
        self.written.swap(false, Ordering::AcqRel)
    }
}
