//! What happens before a procedure runs: programs, versions, arguments, and who may call.

mod common;

use bytes::Bytes;
use common::{GROUP, OWNER, World, policy};
use frontend::nfs::{ExportPolicy, serve};
use oncrpc::client::{CallError, Client};
use oncrpc::msg::{AuthStat, Credential, Refusal};
use oncrpc::nfs3::{self, NfsStat3, procs};
use oncrpc::xdr::Writer;
use oncrpc::{limits::Limits, mount, server::Peer};
use std::sync::Arc;
use tokio::net::TcpListener;
use vfs::Mode;

const DENIED: CallError = CallError::Refused(Refusal::AuthError(AuthStat::TooWeak));

fn owner() -> Credential {
    Credential::sys(OWNER, GROUP, &[])
}

#[tokio::test]
async fn what_is_not_served_is_refused_in_the_right_words() {
    let world = World::new().await;
    let nfs = world.owner();
    let refusal = async |prog, vers, proc| match nfs.rpc.call(prog, vers, proc, &nfs.cred, |_| ()).await {
        Err(CallError::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    };
    let other_versions = Refusal::ProgMismatch { low: 3, high: 3 };
    for vers in [2, 4, 5] {
        assert_eq!(refusal(nfs3::PROGRAM, vers, 0).await, other_versions);
    }
    assert_eq!(refusal(mount::PROGRAM, 1, 0).await, other_versions);
    assert_eq!(refusal(100_227, 3, 0).await, Refusal::ProgUnavail);
    assert_eq!(refusal(100_021, 4, 0).await, Refusal::ProgUnavail);
    assert_eq!(refusal(nfs3::PROGRAM, 3, 22).await, Refusal::ProcUnavail);
    assert_eq!(refusal(mount::PROGRAM, 3, 6).await, Refusal::ProcUnavail);
    for proc in 1..procs::COUNT {
        assert_eq!(refusal(nfs3::PROGRAM, 3, proc).await, Refusal::GarbageArgs, "procedure {proc}");
    }
    assert_eq!(refusal(mount::PROGRAM, 3, mount::procs::MNT).await, Refusal::GarbageArgs);
}

#[tokio::test]
async fn anyone_may_call_null_and_only_the_allowed_the_rest() {
    let world = World::new().await;
    let root = world.owner().mounted(b"/").await;
    for (from, welcome) in [
        ("127.0.0.1:1023", true),
        ("[::1]:1", true),
        ("127.0.0.1:1024", false),
        ("192.0.2.1:700", false),
        ("[::ffff:192.0.2.1]:700", false),
    ] {
        let nfs = world.connect(from, owner());
        for prog in [nfs3::PROGRAM, mount::PROGRAM] {
            let null = nfs.rpc.call(prog, 3, 0, &Credential::Other(77), |_| ()).await;
            assert_eq!(null.map(|r| r.remaining()), Ok(0), "{from}");
        }
        let args = nfs3::GetattrArgs { object: root };
        let got: Result<nfs3::GetattrRes, _> = nfs.try_call(procs::GETATTR, &args).await;
        match welcome {
            true => assert_eq!(got.unwrap().status(), NfsStat3::Ok, "{from}"),
            false => assert_eq!(got.unwrap_err(), DENIED, "{from}"),
        }
    }
}

#[tokio::test]
async fn a_stream_without_an_address_gets_nothing_but_null() {
    let world = World::new().await;
    let (ours, theirs) = tokio::io::duplex(4096);
    tokio::spawn(oncrpc::server::serve(theirs, Peer { addr: None }, world.server.clone(), Limits::default()));
    let rpc = Client::with_stream(ours);
    assert!(rpc.call(nfs3::PROGRAM, 3, 0, &owner(), |_| ()).await.is_ok());
    for (prog, proc) in [(nfs3::PROGRAM, 1), (mount::PROGRAM, mount::procs::EXPORT)] {
        let args = |w: &mut Writer| w.opaque(b"x");
        assert_eq!(rpc.call(prog, 3, proc, &owner(), args).await.unwrap_err(), DENIED);
    }
}

#[tokio::test]
async fn the_port_can_be_waived() {
    let world = World::with(Mode::Wb, ExportPolicy { any_port: true, ..policy() }).await;
    let nfs = world.connect("127.0.0.1:40000", owner());
    let root = nfs.mounted(b"/").await;
    assert!(nfs.getattr(&root).await.is_ok());
}

#[tokio::test]
async fn nobody_is_told_of_exports_and_mounts_but_the_allowed() {
    let world = World::new().await;
    let stranger = world.connect("192.0.2.1:700", owner());
    for proc in [mount::procs::DUMP, mount::procs::EXPORT] {
        let got: Result<Bytes, _> = stranger.mount_call(proc, &()).await;
        assert_eq!(got.unwrap_err(), DENIED);
    }
    let (refused, allowed) = (mount::MountStat3::Acces, world.connect("127.0.0.1:5000", owner()));
    assert_eq!(stranger.mnt(b"/").await, mount::MountRes::Fail(refused));
    assert_eq!(allowed.mnt(b"/").await, mount::MountRes::Fail(refused), "any user may have that port");
    let exports: mount::ExportRes = allowed.mount_call(mount::procs::EXPORT, &()).await.unwrap();
    assert_eq!(&exports.0[0].dir[..], b"/");
    assert_eq!(exports.0[0].groups.0.len(), 2, "both loopback networks");
}

/// Over real sockets, on a port that any user may have.
#[tokio::test]
async fn listeners_serve_until_they_are_dropped_or_stopped() {
    let policy = Arc::new(ExportPolicy { any_port: true, ..policy() });
    let world = World::with(Mode::Wb, (*policy).clone()).await;
    let bind = async || {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        (listener, addr)
    };
    let (listener, addr) = bind().await;
    let serving = tokio::spawn(serve(listener, world.vfs.clone(), policy));
    let rpc = Client::connect(addr).await.unwrap();
    let nfs = common::Nfs { rpc, cred: owner() };
    let root = nfs.mounted(b"/").await;
    assert!(nfs.getattr(&root).await.is_ok());
    serving.abort();
    let args = nfs3::GetattrArgs { object: root };
    while nfs.try_call::<nfs3::GetattrRes>(procs::GETATTR, &args).await.is_ok() {
        tokio::task::yield_now().await;
    }
    assert!(Client::connect(addr).await.is_err());

    let (listener, addr) = bind().await;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let serving = tokio::spawn(world.server.clone().listen(listener, async { drop(stopped.await) }));
    let rpc = Client::connect(addr).await.unwrap();
    let nfs = common::Nfs { rpc, cred: owner() };
    assert!(nfs.getattr(&root).await.is_ok(), "a handle is good on every listener");
    stop.send(()).unwrap();
    serving.await.unwrap();
}

/// Strangers are told that they are refused, but cannot take all connections; nor can users of an allowed client
/// who are not root there.
#[tokio::test]
async fn strangers_get_few_connections() {
    few_connections(ExportPolicy { allow: vec![], ..policy() }).await;
    few_connections(ExportPolicy { any_port: false, ..policy() }).await;
}

async fn few_connections(policy: ExportPolicy) {
    let world = World::with(Mode::Wb, policy).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let serving = tokio::spawn(world.server.clone().listen(listener, std::future::pending()));
    let mut open = Vec::new();
    for _ in 0..Limits::default().strangers_max {
        let nfs = common::Nfs { rpc: Client::connect(addr).await.unwrap(), cred: owner() };
        assert_eq!(nfs.mnt(b"/").await, mount::MountRes::Fail(mount::MountStat3::Acces));
        open.push(nfs);
    }
    let one_too_many = Client::connect(addr).await.unwrap();
    let answer = one_too_many.call(nfs3::PROGRAM, 3, 0, &owner(), |_| ()).await;
    assert!(matches!(answer, Err(CallError::Closed(_))), "{answer:?}");
    serving.abort();
}
