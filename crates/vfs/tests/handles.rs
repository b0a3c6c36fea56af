//! What a front-end with open files needs of the engine: appends, opens, locks, the stream of changes.

#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

mod common;

use common::World;
use home::ErrorKind;
use std::collections::BTreeMap;
use vfs::{Mode, RenameHow, Stability};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_appends_never_overlap() {
    let world = World::new(Mode::Wb);
    let e = world.start().await;
    let lab = e.lab().await;
    let f = e.create(lab, "log").await.unwrap();
    e.write(f, 0, b"head\n").await.unwrap();
    let writers = (0..8u8).map(|w| {
        let (vfs, cred) = (e.vfs.clone(), e.cred.clone());
        tokio::spawn(async move {
            let mut places = Vec::new();
            for i in 0..40usize {
                let line = vec![b'a' + w; 1 + (i * 7 + usize::from(w)) % 50];
                let ctx = vfs::Ctx::of(&cred);
                let len = line.len();
                let done = vfs.append(ctx, f, line.into(), Stability::Unstable).await.unwrap();
                assert_eq!(done.written.count as usize, len);
                assert!(done.written.wcc.after.unwrap().size >= done.at + len as u64);
                places.push((done.at, (b'a' + w, len)));
            }
            places
        })
    });
    let mut taken = BTreeMap::new();
    for writer in writers.collect::<Vec<_>>() {
        taken.extend(writer.await.unwrap());
    }
    assert_eq!(taken.len(), 320, "no two began at the same place");
    let bytes = e.read(f).await.unwrap();
    let mut at = 5;
    for (place, (letter, len)) in taken {
        assert_eq!(place, at as u64);
        assert_eq!(bytes[at..at + len], vec![letter; len]);
        at += len;
    }
    assert_eq!(bytes.len(), at);
    e.sync().await;
    assert_eq!(world.at_home("log").await.unwrap(), bytes);
}

#[tokio::test]
async fn an_append_of_nothing_says_where_the_end_is() {
    let world = World::new(Mode::Strict);
    world.write("f", b"12345");
    let e = world.start().await;
    let f = e.find("/lab/f").await.unwrap();
    let none = e.vfs.append(e.ctx(), f, bytes::Bytes::new(), Stability::Stable).await.unwrap();
    assert_eq!((none.at, none.written.count), (5, 0));
    let some = e.vfs.append(e.ctx(), f, "67".into(), Stability::Stable).await.unwrap();
    assert_eq!(some.at, 5);
    assert_eq!(world.at_home("f").await.unwrap(), b"1234567");
    let dir = e.lab().await;
    let refused = e.vfs.append(e.ctx(), dir, "x".into(), Stability::Stable).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::IsDir);
}

#[tokio::test]
async fn a_rename_that_must_not_replace() {
    for mode in [Mode::Wb, Mode::Strict] {
        let world = World::new(mode);
        world.write("b", b"theirs");
        let e = world.start().await;
        let lab = e.lab().await;
        let a = e.create(lab, "a").await.unwrap();
        let taken = e.vfs.rename(e.ctx(), lab, b"a", lab, b"b", RenameHow::NoReplace).await;
        assert_eq!(taken.unwrap_err().kind, ErrorKind::Exists);
        let itself = e.vfs.rename(e.ctx(), lab, b"a", lab, b"a", RenameHow::NoReplace).await;
        assert_eq!(itself.unwrap_err().kind, ErrorKind::Exists);
        e.vfs.rename(e.ctx(), lab, b"a", lab, b"c", RenameHow::NoReplace).await.unwrap();
        assert_eq!(e.find("/lab/c").await.unwrap(), a);
        e.sync().await;
        assert_eq!(world.names_at_home("").await, ["b", "c"]);
        assert_eq!(world.at_home("b").await.unwrap(), b"theirs");
    }
}
