//! Protected folders: what no client may do, by whatever way it comes.

mod common;

use common::{Engine, World};
use home::testing::conformance::Outside;
use home::testing::fault::Fault;
use home::{ErrorKind, HomePath};
use vfs::{Mode, Oid, SetAttrs};

fn path(text: &str) -> HomePath {
    HomePath::parse(text.as_bytes()).unwrap()
}

async fn mkdir(e: &Engine, dir: Oid, name: &str) -> vfs::Result<Oid> {
    Ok(e.vfs.mkdir(e.ctx(), dir, name.as_bytes(), SetAttrs::default()).await?.oid)
}

async fn rename(e: &Engine, from: (Oid, &str), to: (Oid, &str)) -> vfs::Result<()> {
    e.vfs
        .rename(e.ctx(), from.0, from.1.as_bytes(), to.0, to.1.as_bytes(), vfs::RenameHow::Replace)
        .await
        .map(drop)
}

fn refused<T: std::fmt::Debug>(answer: vfs::Result<T>) {
    assert_eq!(answer.unwrap_err().kind, ErrorKind::Access);
}

#[tokio::test]
async fn a_folder_behind_a_link_is_protected_where_it_is() {
    let world = World::new(Mode::Wb);
    world.mkdir("dot");
    world.mkdir("dot/ssh");
    world.write("dot/ssh/authorized_keys", b"ann's");
    Outside::symlink(&world.memory, &path(".ssh"), b"dot/ssh");
    let e = world.start().await;
    let lab = e.lab().await;
    let (dot, ssh) = (e.find("/lab/dot").await.unwrap(), e.find("/lab/dot/ssh").await.unwrap());
    let keys = e.find("/lab/dot/ssh/authorized_keys").await.unwrap();
    refused(e.write(keys, 0, b"mine").await);
    refused(e.create(ssh, "authorized_keys2").await);
    refused(rename(&e, (lab, "dot"), (lab, "dot2")).await);
    refused(rename(&e, (dot, "ssh"), (lab, "ssh")).await);
    refused(e.vfs.remove(e.ctx(), lab, b".ssh").await);
    e.create(dot, "vimrc").await.unwrap();
}

#[tokio::test]
async fn folders_that_appear_later_are_protected() {
    let world = World::new(Mode::Strict);
    let e = world.start().await;
    let lab = e.lab().await;
    world.mkdir(".ssh");
    world.write(".ssh/config", b"ann's");
    let ssh = e.find("/lab/.ssh").await.unwrap();
    refused(e.create(ssh, "rc").await);
    let config = e.find("/lab/.ssh/config").await.unwrap();
    refused(e.write(config, 0, b"mine").await);
    refused(e.vfs.link(e.ctx(), config, lab, b"x").await);
    refused(mkdir(&e, lab, ".SSH").await);
}

#[tokio::test]
async fn a_way_to_a_missing_folder_may_be_made_but_not_moved_in() {
    let world = World::new(Mode::Wb);
    let e = world.start().await;
    let lab = e.lab().await;
    let bait = mkdir(&e, lab, "bait").await.unwrap();
    mkdir(&e, bait, "trellis").await.unwrap();
    refused(rename(&e, (lab, "bait"), (lab, ".cache")).await);
    refused(e.vfs.symlink(e.ctx(), lab, b".cache", "bait".into(), SetAttrs::default()).await);
    let cache = mkdir(&e, lab, ".cache").await.unwrap();
    refused(mkdir(&e, cache, "trellis").await);
    refused(rename(&e, (lab, ".cache"), (lab, "cache")).await);
    mkdir(&e, cache, "pip").await.unwrap();
}

#[tokio::test]
async fn after_a_restart_without_the_home_what_was_learnt_holds() {
    let world = World::new(Mode::Wb);
    world.mkdir("dot");
    Outside::symlink(&world.memory, &path(".ssh"), b"dot");
    let e = world.start().await;
    let lab = e.lab().await;
    let work = e.create(lab, "work").await.unwrap();
    world.fault(Fault::Unreachable);
    e.write(work, 0, b"unsent").await.unwrap();
    drop(e);
    let e = world.start().await;
    e.write(work, 0, b"more").await.unwrap();
    world.fault(Fault::None);
    let dot = e.find("/lab/dot").await.unwrap();
    refused(e.create(dot, "authorized_keys").await);
}
