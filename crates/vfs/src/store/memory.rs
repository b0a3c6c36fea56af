//! The store in memory, which can lose what was not persisted.

use super::{MetaStore, Write};
use crate::env::Result;
use bytes::Bytes;
use parking_lot::Mutex;
use std::collections::BTreeMap;

type Map = BTreeMap<Bytes, Bytes>;

/// A [`MetaStore`] for simulations.
#[derive(Default)]
pub struct MemStore {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    now: Map,
    durable: Map,
    /// Commits since the last persist, oldest first.
    pending: Vec<Vec<Write>>,
    persists: u64,
}

impl MemStore {
    /// An empty store.
    pub fn new() -> MemStore {
        MemStore::default()
    }

    /// How many commits a crash could lose.
    pub fn unpersisted(&self) -> usize {
        self.state.lock().pending.len()
    }

    /// How often all commits were made to survive a crash.
    pub fn persists(&self) -> u64 {
        self.state.lock().persists
    }

    /// Cuts the power: of the commits since the last persist the oldest `keep` survive.
    pub fn crash(&self, keep: usize) {
        let mut state = self.state.lock();
        let mut map = std::mem::take(&mut state.durable);
        state.pending.drain(..).take(keep).for_each(|batch| apply(&mut map, batch));
        state.now = map.clone();
        state.durable = map;
    }
}

impl MetaStore for MemStore {
    fn get(&self, key: &[u8]) -> Result<Option<Bytes>> {
        Ok(self.state.lock().now.get(key).cloned())
    }

    fn scan(&self, prefix: &[u8]) -> Result<Vec<(Bytes, Bytes)>> {
        let state = self.state.lock();
        let from = state.now.range(Bytes::copy_from_slice(prefix)..);
        Ok(from.take_while(|(k, _)| k.starts_with(prefix)).map(|(k, v)| (k.clone(), v.clone())).collect())
    }

    fn commit(&self, batch: Vec<Write>) -> Result<()> {
        let mut state = self.state.lock();
        apply(&mut state.now, batch.clone());
        state.pending.push(batch);
        Ok(())
    }

    fn persist(&self) -> Result<()> {
        let mut state = self.state.lock();
        let state = &mut *state;
        state.persists += 1;
        state.pending.drain(..).for_each(|batch| apply(&mut state.durable, batch));
        Ok(())
    }
}

fn apply(map: &mut Map, batch: Vec<Write>) {
    for (key, value) in batch {
        match value {
            Some(v) => map.insert(key.into(), v.into()),
            None => map.remove(&Bytes::from(key)),
        };
    }
}
