//! MOUNT: paths to handles, and the list of mounts.

mod common;

use bytes::Bytes;
use common::World;
use oncrpc::mount::{DumpRes, MountRes, MountStat3, procs};
use oncrpc::msg::{AUTH_SYS, Credential};
use oncrpc::nfs3::{self, FsinfoRes, GetattrArgs, LookupOk, NfsStat3};

#[tokio::test]
async fn the_root_and_directories_below_it_can_be_mounted_by_a_clients_root() {
    let world = World::new().await;
    let owner = world.owner();
    let lab = owner.mounted(b"/lab").await;
    let made = owner.mkdir(&lab, b"dir").await;
    owner.create(&lab, b"file").await;
    let root = world.connect("127.0.0.1:800", Credential::sys(0, 0, &[]));
    for path in [&b"/lab/dir"[..], b"/lab//dir/"] {
        let MountRes::Ok(ok) = root.mnt(path).await else { panic!("{}", path.escape_ascii()) };
        assert_eq!((ok.fhandle, ok.auth_flavors), (made, vec![AUTH_SYS]));
    }
    let top = root.mounted(b"/").await;
    let LookupOk { object, .. } = owner.lookup(&top, b"lab").await.into_result().unwrap();
    assert_eq!(object, lab, "one object has one handle, whichever way it is reached");
    assert_eq!(owner.lookup(&top, b"..").await.into_result().unwrap().object, top);
    for (path, status) in [
        (&b"/lab/file"[..], MountStat3::NotDir),
        (b"/lab/none", MountStat3::NoEnt),
        (b"/unknown", MountStat3::NoEnt),
        (b"/refused", MountStat3::Acces),
        (&[b'/'; 1025], MountStat3::NameTooLong),
    ] {
        assert_eq!(root.mnt(path).await, MountRes::Fail(status), "{}", path.escape_ascii());
    }
    assert_eq!(root.lookup(&lab, b"dir").await.status(), NfsStat3::Acces, "a handle gives root no rights");
    // What a mount of a directory below the root needs, which the client's root does.
    let args = GetattrArgs { object: made };
    let info: FsinfoRes = root.call(nfs3::procs::FSINFO, &args).await;
    assert!(info.into_result().unwrap().obj_attributes.is_some());
}

#[tokio::test]
async fn mounts_are_listed_until_they_are_undone() {
    let world = World::new().await;
    let (a, b) = (world.owner(), world.connect("[::1]:700", Credential::None));
    a.mounted(b"/").await;
    a.mounted(b"/lab").await;
    b.mounted(b"/").await;
    let dump = async || a.mount_call::<DumpRes>(procs::DUMP, &()).await.unwrap().0;
    let listed = dump().await;
    assert_eq!(listed.len(), 3);
    assert!(listed.iter().any(|m| &m.hostname[..] == b"::1" && &m.directory[..] == b"/"));
    a.mount_call::<()>(procs::UMNT, &Bytes::from_static(b"/lab")).await.unwrap();
    assert_eq!(dump().await.len(), 2);
    b.mount_call::<()>(procs::UMNTALL, &()).await.unwrap();
    let left = dump().await;
    assert_eq!(left.len(), 1);
    assert_eq!(&left[0].hostname[..], b"127.0.0.1");
}
