//! Every home that needs no other machine passes the conformance suite.

use home::memory::MemoryHome;
use home::posix::{Lacks, Linux, Posix, PosixHome};
use home::testing::{DirOutside, FaultHome, Subject, conformance};
use home::{Class, HomePath};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

fn subject(root: &tempfile::TempDir, lacks: Lacks) -> Subject {
    let path = root.path().as_os_str().as_bytes();
    let posix = Posix::over(Linux::without(lacks), path).unwrap().with_home_dir(path);
    Subject {
        home: Arc::new(PosixHome::new(posix)),
        outside: Arc::new(DirOutside { root: root.path().to_path_buf() }),
        base: HomePath::root(),
        class: Class::Posix,
    }
}

async fn posix(lacks: Lacks) {
    let root = tempfile::tempdir().unwrap();
    conformance(|| async { subject(&root, lacks) }).await;
}

#[tokio::test]
async fn posix_conforms_for_an_ordinary_user() {
    if home::testing::user::as_user("posix_conforms_for_an_ordinary_user") {
        posix(Lacks::default()).await;
        posix(Lacks { openat2: true, rename_flags: true }).await;
    }
}

#[tokio::test]
async fn posix_conforms() {
    posix(Lacks::default()).await;
}

#[tokio::test]
async fn posix_conforms_without_openat2() {
    posix(Lacks { openat2: true, rename_flags: false }).await;
}

#[tokio::test]
async fn posix_conforms_without_exchange() {
    posix(Lacks { openat2: false, rename_flags: true }).await;
}

#[tokio::test]
async fn memory_conforms() {
    conformance(|| async {
        let home = MemoryHome::new();
        Subject {
            home: Arc::new(home.clone()),
            outside: Arc::new(home),
            base: HomePath::root(),
            class: Class::Posix,
        }
    })
    .await;
}

/// A decorator without a fault changes nothing.
#[tokio::test]
async fn faults_come_only_when_asked_for() {
    conformance(|| async {
        let home = MemoryHome::new();
        Subject {
            home: Arc::new(FaultHome::new(Arc::new(home.clone()))),
            outside: Arc::new(home),
            base: HomePath::root(),
            class: Class::Posix,
        }
    })
    .await;
}
