//! Whether the home can have been sent a change of this volume. Before that nothing of what is unsent can be there, however
//! much it looks so: another program may have done the same.

use super::Volume;
use crate::inode::local;
use crate::store::{MetaStore, Write};
use home::{Error, ErrorKind, Result};
use std::sync::atomic::Ordering;

/// What the store has as long as nothing was sent.
pub(super) fn nothing_sent(id: u32) -> Write {
    (key(id), Some(Vec::new()))
}

/// Whether something may have been sent: so it is where an earlier version made the volume.
pub(super) fn was_sent(store: &dyn MetaStore, id: u32) -> Result<bool> {
    store.get(&key(id)).map(|nothing| nothing.is_none()).map_err(local)
}

pub(super) fn key(id: u32) -> Vec<u8> {
    [&b"u"[..], &id.to_be_bytes()].concat()
}

impl Volume {
    /// Something is about to be sent. That is durable before it is.
    pub async fn sends(&self) -> Result<()> {
        if self.was_sent.load(Ordering::Relaxed) {
            return Ok(());
        }
        let (store, key) = (self.shared.store.clone(), key(self.id));
        let work = self.env.lend(move || store.commit(vec![(key, None)]).and_then(|()| store.persist()));
        let done = work.await.map_err(|e| Error::new(ErrorKind::Io, e.to_string()))?.map_err(local);
        if done.as_ref().is_err_and(|e| e.kind == ErrorKind::NoSpace) {
            self.data.make_room();
        }
        done?;
        self.was_sent.store(true, Ordering::Relaxed);
        Ok(())
    }
}
