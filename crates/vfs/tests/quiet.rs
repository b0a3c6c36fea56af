//! What another program changes at the home without changing the length, and gives its old time again.

#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

mod common;

use common::{Engine, World};
use home::posix::{Posix, PosixHome};
use home::testing::fault::{Fault, FaultHome};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use vfs::{Mode, Oid, RenameHow, SetAttrs};

const BASE: &[u8] = b"base content";

/// A home on disk with a file that was read, and is out of reach since.
async fn begin() -> (World, Engine, tempfile::TempDir, Oid) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("f"), BASE).unwrap();
    std::fs::write(dir.path().join("other"), b"ours").unwrap();
    let posix = PosixHome::new(Posix::open(dir.path().as_os_str().as_bytes()).unwrap());
    let world = World { fault: Arc::new(FaultHome::new(Arc::new(posix))), ..World::new(Mode::Wb) };
    let e = world.start().await;
    let file = e.find("/lab/f").await.unwrap();
    assert_eq!(e.read(file).await.unwrap(), BASE);
    e.find("/lab/other").await.unwrap();
    world.fault(Fault::Unreachable);
    (world, e, dir, file)
}

/// Another program writes to a file, and leaves its time.
fn write_quietly(path: &Path, bytes: &[u8], at: u64) {
    std::thread::sleep(Duration::from_millis(20));
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    let time = file.metadata().unwrap().modified().unwrap();
    file.write_at(bytes, at).unwrap();
    file.set_modified(time).unwrap();
}

fn chmod(path: &Path) {
    std::thread::sleep(Duration::from_millis(20));
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o600)).unwrap();
}

/// Each way to destroy what the file has.
async fn destroy(e: &Engine, file: Oid, how: usize) {
    let lab = e.lab().await;
    match how {
        0 => e.write(file, 0, b"ours").await.unwrap(),
        1 => drop(e.vfs.remove(e.ctx(), lab, b"f").await.unwrap()),
        2 => drop(e.vfs.rename(e.ctx(), lab, b"other", lab, b"f", RenameHow::Replace).await.unwrap()),
        _ => {
            let size = SetAttrs { size: Some(0), ..SetAttrs::default() };
            e.vfs.setattr(e.ctx(), file, size, None).await.unwrap();
        }
    }
}

fn copies(dir: &Path) -> Vec<PathBuf> {
    let all = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.to_string_lossy().contains("trellis-conflict")).collect()
}

#[tokio::test]
async fn what_was_changed_under_its_old_length_and_time_is_not_destroyed() {
    for how in 0..4 {
        let (world, e, dir, file) = begin().await;
        destroy(&e, file, how).await;
        write_quietly(&dir.path().join("f"), b"THEIRS", 2);
        world.fault(Fault::None);
        e.vfs.sync(None, Duration::from_secs(10)).await.unwrap();
        assert_eq!(std::fs::read(dir.path().join("f")).unwrap(), b"baTHEIRStent", "{how}");
        assert_eq!(copies(dir.path()).len(), usize::from(how != 1), "{how}");
    }
}

#[tokio::test]
async fn another_ctime_alone_is_no_conflict() {
    for how in 0..4 {
        let (world, e, dir, file) = begin().await;
        destroy(&e, file, how).await;
        chmod(&dir.path().join("f"));
        world.fault(Fault::None);
        e.vfs.sync(None, Duration::from_secs(10)).await.unwrap();
        assert_eq!(copies(dir.path()), Vec::<PathBuf>::new(), "{how}");
        let left = [Some(&b"ours content"[..]), None, Some(b"ours"), Some(b"")][how];
        assert_eq!(std::fs::read(dir.path().join("f")).ok().as_deref(), left, "{how}");
    }
}

/// A change of attributes comes home first, and moves the ctime by which it is told.
#[tokio::test]
async fn our_own_change_of_attributes_does_not_hide_it() {
    let (world, e, dir, file) = begin().await;
    let mode = SetAttrs { mode: Some(0o640), ..SetAttrs::default() };
    e.vfs.setattr(e.ctx(), file, mode, None).await.unwrap();
    write_quietly(&dir.path().join("f"), b"THEIRS", 2);
    world.fault(Fault::None);
    e.vfs.sync(None, Duration::from_secs(10)).await.unwrap();
    assert_eq!(e.read(file).await.unwrap(), b"baTHEIRStent");
}

/// What was written is given up then, and nothing is left here that tells what the file had.
#[tokio::test]
async fn a_removal_behind_a_write_that_met_it_does_not_destroy_it() {
    for how in 1..3 {
        let (world, e, dir, file) = begin().await;
        destroy(&e, file, 0).await;
        destroy(&e, file, how).await;
        write_quietly(&dir.path().join("f"), b"THEIRS", 2);
        world.fault(Fault::None);
        e.vfs.sync(None, Duration::from_secs(10)).await.unwrap();
        assert_eq!(std::fs::read(dir.path().join("f")).unwrap(), b"baTHEIRStent", "{how}");
    }
}
