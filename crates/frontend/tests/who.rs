//! Handles and people: forged handles, other users, root, clients that may only read.

mod common;

use common::{GROUP, OWNER, World, assert_same, at, mode, policy};
use frontend::nfs::ExportPolicy;
use oncrpc::msg::Credential;
use oncrpc::nfs3::*;
use oncrpc::xdr::Xdr;
use vfs::Mode;

#[tokio::test]
async fn a_handle_with_any_bit_changed_is_no_handle() {
    let world = World::new().await;
    let nfs = world.owner();
    let lab = nfs.mounted(b"/lab").await;
    assert_eq!(lab.len(), 32);
    for bit in 0..lab.len() * 8 {
        let mut forged = lab.to_vec();
        forged[bit / 8] ^= 1 << (bit % 8);
        let forged = NfsFh3::new(&forged).unwrap();
        assert_eq!(nfs.getattr(&forged).await, Err(NfsStat3::BadHandle), "bit {bit}");
    }
}

/// Every procedure says of a forged handle what it is, and of a removed object that it has gone.
#[tokio::test]
async fn every_procedure_tells_bad_handles_from_stale_ones() {
    let world = World::new().await;
    let nfs = world.owner();
    let lab = nfs.mounted(b"/lab").await;
    let gone = nfs.mkdir(&lab, b"gone").await;
    assert_eq!(nfs.rmdir(&lab, b"gone").await.status(), NfsStat3::Ok);
    let again = nfs.mkdir(&lab, b"gone").await;
    assert_ne!(gone, again, "a handle never names another object");
    for (fh, status) in [(NfsFh3::new(b"made up").unwrap(), NfsStat3::BadHandle), (gone, NfsStat3::Stale)] {
        for proc in 1..procs::COUNT {
            let reply = nfs.raw(nfs.rpc.next_xid(), proc, &Blob(args_with(proc, &fh))).await.unwrap();
            let got = NfsStat3::from_bytes(reply.slice(..4)).unwrap();
            // Bytes of a directory are asked for: its kind is a reason as good as its end.
            let kind = proc == procs::COMMIT && got == NfsStat3::IsDir && fh == gone;
            assert!(got == status || kind, "{}: {got:?}", procs::NAMES[proc as usize]);
        }
    }
}

/// Bytes that are arguments already.
struct Blob(bytes::Bytes);

impl Xdr for Blob {
    fn encode(&self, w: &mut oncrpc::xdr::Writer) {
        w.raw(&self.0);
    }
    fn decode(_: &mut oncrpc::xdr::Reader) -> oncrpc::xdr::Result<Self> {
        unreachable!("only sent")
    }
}

/// Arguments of a procedure that are right but for the handle.
fn args_with(proc: u32, fh: &NfsFh3) -> bytes::Bytes {
    let (object, name) = (*fh, at(fh, b"name"));
    let how = CreateHow3::Guarded(mode(0o644));
    let data = bytes::Bytes::from_static(b"data");
    match proc {
        procs::SETATTR => SetattrArgs { object, new_attributes: mode(0o700), guard: None }.to_bytes(),
        procs::ACCESS => AccessArgs { object, access: 1 }.to_bytes(),
        procs::READ => ReadArgs { file: object, offset: 0, count: 1 }.to_bytes(),
        procs::WRITE => {
            let stable = StableHow::FileSync;
            WriteArgs { file: object, offset: 0, count: 4, stable, data }.to_bytes()
        }
        procs::CREATE => CreateArgs { at: name, how }.to_bytes(),
        procs::MKDIR => MkdirArgs { at: name, attributes: mode(0o755) }.to_bytes(),
        procs::SYMLINK => {
            SymlinkArgs { at: name, symlink_attributes: mode(0o777), symlink_data: data }.to_bytes()
        }
        procs::MKNOD => MknodArgs { at: name, what: MknodData3::Fifo(mode(0o600)) }.to_bytes(),
        procs::LOOKUP | procs::REMOVE | procs::RMDIR => name.to_bytes(),
        procs::RENAME => RenameArgs { from: name.clone(), to: at(fh, b"other") }.to_bytes(),
        procs::LINK => LinkArgs { file: object, link: name }.to_bytes(),
        procs::READDIR => ReaddirArgs { dir: object, cookie: 0, cookieverf: [0; 8], count: 4096 }.to_bytes(),
        procs::READDIRPLUS => {
            let (dircount, maxcount) = (4096, 4096);
            ReaddirplusArgs { dir: object, cookie: 0, cookieverf: [0; 8], dircount, maxcount }.to_bytes()
        }
        procs::COMMIT => CommitArgs { file: object, offset: 0, count: 0 }.to_bytes(),
        _ => GetattrArgs { object }.to_bytes(),
    }
}

/// The root directory has no home to ask, yet every procedure knows it.
#[tokio::test]
async fn every_procedure_knows_the_root_directory() {
    let world = World::new().await;
    let nfs = world.owner();
    let root = nfs.mounted(b"/").await;
    for proc in 1..procs::COUNT {
        let reply = nfs.raw(nfs.rpc.next_xid(), proc, &Blob(args_with(proc, &root))).await.unwrap();
        let status = NfsStat3::from_bytes(reply.slice(..4)).unwrap();
        let expected: &[NfsStat3] = match proc {
            procs::SETATTR | procs::WRITE..=procs::LINK => &[NfsStat3::Rofs],
            procs::READ | procs::COMMIT => &[NfsStat3::IsDir, NfsStat3::Inval],
            procs::READLINK => &[NfsStat3::Inval],
            procs::LOOKUP => &[NfsStat3::NoEnt],
            _ => &[NfsStat3::Ok],
        };
        assert!(expected.contains(&status), "{}: {status:?}", procs::NAMES[proc as usize]);
    }
}

#[tokio::test]
async fn other_users_and_root_get_nothing_below_a_home() {
    let world = World::new().await;
    let owner = world.owner();
    let (root, lab) = (owner.mounted(b"/").await, owner.mounted(b"/lab").await);
    let file = owner.create(&lab, b"file").await;
    for cred in [Credential::sys(OWNER + 1, GROUP, &[]), Credential::sys(0, 0, &[0]), Credential::None] {
        let other = world.connect("127.0.0.1:700", cred.clone());
        assert!(other.getattr(&root).await.is_ok(), "{cred:?}");
        let attr = owner.getattr(&file).await.unwrap();
        let Res::Fail(NfsStat3::Acces, seen) = other.read(&file, 0, 10).await else { panic!("{cred:?}") };
        assert_same(seen, attr);
        assert_eq!(other.access(&file, 0x3f).await.into_result().unwrap().access, 0, "{cred:?}");
        assert_eq!(other.lookup(&lab, b"file").await.status(), NfsStat3::Acces, "{cred:?}");
        let how = CreateHow3::Unchecked(mode(0o644));
        assert_eq!(other.create_how(&lab, b"new", how).await.status(), NfsStat3::Acces, "{cred:?}");
        assert_eq!(other.remove(&lab, b"file").await.status(), NfsStat3::Acces, "{cred:?}");
    }
}

#[tokio::test]
async fn without_squash_a_clients_root_is_the_servers_user() {
    let world = World::with(Mode::Wb, ExportPolicy { no_root_squash: true, ..policy() }).await;
    let root = world.connect("127.0.0.1:700", Credential::sys(0, 0, &[0]));
    let lab = root.mounted(b"/lab").await;
    let file = root.create(&lab, b"file").await;
    let attr = root.getattr(&file).await.unwrap();
    assert_eq!(attr.uid, OWNER);
    let given_away = Sattr3 { uid: Some(0), ..Sattr3::default() };
    assert_eq!(root.setattr(&file, given_away).await.status(), NfsStat3::Perm, "values are not squashed");
}

#[tokio::test]
async fn a_read_only_client_changes_nothing() {
    let allow = vec!["127.0.0.1".parse().unwrap(), "127.0.0.2:ro".parse().unwrap()];
    let world = World::with(Mode::Wb, ExportPolicy { allow, ..policy() }).await;
    let owner = world.owner();
    let lab = owner.mounted(b"/lab").await;
    let file = owner.create(&lab, b"file").await;
    assert_eq!(owner.write(&file, 0, b"text", StableHow::FileSync).await.status(), NfsStat3::Ok);
    let reader = world.connect("127.0.0.2:700", owner.cred.clone());
    let before = owner.getattr(&lab).await.unwrap();
    for proc in 1..procs::COUNT {
        let changes = proc == procs::SETATTR || (procs::WRITE..=procs::LINK).contains(&proc);
        let reply = reader.raw(reader.rpc.next_xid(), proc, &Blob(args_with(proc, &lab))).await.unwrap();
        let status = NfsStat3::from_bytes(reply.slice(..4)).unwrap();
        assert_eq!(status == NfsStat3::Rofs, changes, "{}", procs::NAMES[proc as usize]);
    }
    assert_same(Some(before), owner.getattr(&lab).await.unwrap());
    let Res::Ok(read) = reader.read(&file, 0, 10).await else { panic!("a reader reads") };
    assert_eq!(read.data.concat(), b"text");
    let granted = reader.access(&file, 0x3f).await.into_result().unwrap().access;
    assert_eq!(granted, ACCESS3_READ, "what may not be changed is not offered");
    let Res::Fail(_, wcc) = reader.remove(&lab, b"file").await else { panic!("removed") };
    assert_same(wcc.after, before);
}
