//! The engine: identity, caches, the journal and write-back. It knows no protocol.

pub mod config;
pub mod data;
pub mod env;
pub mod journal;
pub mod store;
pub mod types;

pub use config::{
    Config, Mode, Mount, MountOptions, Namespace, Parked, Start, Unsent, VfsStatus, VolumeStatus,
};
pub use types::*;

use bytes::Bytes;
use std::sync::Arc;
use std::time::Duration;

/// The engine.
pub struct Vfs {}

fn no<T>() -> Result<T> {
    Err(ErrorKind::Unsupported.into())
}

#[allow(unused_variables, missing_docs)]
impl Vfs {
    pub async fn open(config: Config) -> Result<Arc<Vfs>> {
        no()
    }
    pub async fn close(&self, drain: Option<Duration>) -> Vec<VolumeStatus> {
        Vec::new()
    }
    pub fn peek(&self, oid: Oid) -> Option<FileAttr> {
        None
    }
    pub async fn getattr(&self, ctx: Ctx<'_>, oid: Oid) -> Result<FileAttr> {
        no()
    }
    pub async fn setattr(&self, ctx: Ctx<'_>, oid: Oid, set: SetAttrs, guard: Option<Time>) -> Result<Wcc> {
        no()
    }
    pub async fn lookup(&self, ctx: Ctx<'_>, dir: Oid, name: &[u8]) -> Result<Found> {
        no()
    }
    pub async fn access(&self, ctx: Ctx<'_>, oid: Oid, want: AccessMask) -> Result<(AccessMask, FileAttr)> {
        no()
    }
    pub async fn readlink(&self, ctx: Ctx<'_>, oid: Oid) -> Result<(Bytes, FileAttr)> {
        no()
    }
    pub async fn read(&self, ctx: Ctx<'_>, oid: Oid, at: u64, len: u32) -> Result<ReadOk> {
        no()
    }
    pub async fn write(&self, ctx: Ctx<'_>, oid: Oid, at: u64, data: Bytes, want: Stability) -> Result<WriteOk> {
        no()
    }
    pub async fn commit(&self, ctx: Ctx<'_>, oid: Oid) -> Result<CommitOk> {
        no()
    }
    pub async fn create(&self, ctx: Ctx<'_>, dir: Oid, name: &[u8], how: CreateHow, set: SetAttrs) -> Result<Made> {
        no()
    }
    pub async fn mkdir(&self, ctx: Ctx<'_>, dir: Oid, name: &[u8], set: SetAttrs) -> Result<Made> {
        no()
    }
    pub async fn symlink(&self, ctx: Ctx<'_>, dir: Oid, name: &[u8], target: Bytes, set: SetAttrs) -> Result<Made> {
        no()
    }
    pub async fn mknod(&self, ctx: Ctx<'_>, dir: Oid, name: &[u8], kind: Kind, set: SetAttrs) -> Result<Made> {
        no()
    }
    pub async fn remove(&self, ctx: Ctx<'_>, dir: Oid, name: &[u8]) -> Result<Wcc> {
        no()
    }
    pub async fn rmdir(&self, ctx: Ctx<'_>, dir: Oid, name: &[u8]) -> Result<Wcc> {
        no()
    }
    pub async fn rename(&self, ctx: Ctx<'_>, from: Oid, name: &[u8], to: Oid, new_name: &[u8]) -> Result<RenameOk> {
        no()
    }
    pub async fn link(&self, ctx: Ctx<'_>, object: Oid, dir: Oid, name: &[u8]) -> Result<LinkOk> {
        no()
    }
    pub async fn readdir(&self, ctx: Ctx<'_>, dir: Oid, after: u64, max_entries: usize) -> Result<DirPage> {
        no()
    }
    pub async fn statfs(&self, ctx: Ctx<'_>, oid: Oid) -> Result<StatFs> {
        no()
    }
    pub fn first_reply(&self, key: RetryKey) -> Option<FirstReply> {
        None
    }
    pub fn root(&self) -> Oid {
        Oid::ROOT
    }
    pub fn handle_key(&self) -> [u8; 16] {
        [0; 16]
    }
    pub fn status(&self) -> VfsStatus {
        VfsStatus { volumes: Vec::new(), cache_bytes: 0, cache_cap: 0, dirty_bytes: 0, inodes: 0, cache_hits: 0, cache_misses: 0 }
    }
    pub async fn sync(&self, volume: Option<u32>, timeout: Duration) -> std::result::Result<(), Vec<Unsent>> {
        Ok(())
    }
    pub async fn resolve_path(&self, ctx: Ctx<'_>, path: &[u8]) -> Result<(Oid, FileAttr)> {
        no()
    }
}
