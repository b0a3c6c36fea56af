//! Files that are nearly all hole: their size costs nothing.

#![allow(clippy::disallowed_methods)]

mod common;

use common::World;
use home::posix::{Posix, PosixHome};
use home::testing::fault::{Fault, FaultHome};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;
use vfs::{Mode, SetAttrs};

#[tokio::test]
async fn a_conflict_over_a_huge_sparse_file_copies_what_was_written() {
    const SIZE: u64 = 1 << 42;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    std::fs::write(&path, b"base").unwrap();
    let posix = PosixHome::new(Posix::open(dir.path().as_os_str().as_bytes()).unwrap());
    let world = World { fault: Arc::new(FaultHome::new(Arc::new(posix))), ..World::new(Mode::Wb) };
    let e = world.start().await;
    let file = e.find("/lab/f").await.unwrap();
    e.read(file).await.unwrap();
    world.fault(Fault::Unreachable);
    let size = SetAttrs { size: Some(SIZE), ..SetAttrs::default() };
    e.vfs.setattr(e.ctx(), file, size, None).await.unwrap();
    e.write(file, SIZE / 2, b"ours").await.unwrap();
    std::fs::write(&path, b"theirs").unwrap();
    world.fault(Fault::None);
    e.vfs.sync(None, Duration::from_secs(10)).await.unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"theirs");
    let copies = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap());
    let copy = copies.filter(|c| c.file_name().as_bytes().starts_with(b"f.trellis-conflict")).last().unwrap();
    assert_eq!(copy.metadata().unwrap().len(), SIZE);
    let page = e.vfs.read(e.ctx(), file, SIZE / 2, 4).await.unwrap();
    assert_eq!(page.data.concat(), b"ours");
}
