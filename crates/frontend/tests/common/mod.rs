//! A server over an engine over homes in memory, and a client over a pipe that knows the wire types.
#![allow(dead_code, missing_docs)]

use bytes::Bytes;
use frontend::nfs::{ExportPolicy, NfsServer};
use home::memory::MemoryHome;
use home::testing::FaultHome;
use home::{ErrorKind, HomePath, Name};
use oncrpc::client::{CallError, Client};
use oncrpc::limits::Limits;
use oncrpc::msg::Credential;
use oncrpc::nfs3::*;
use oncrpc::server::Peer;
use oncrpc::xdr::{Writer, Xdr};
use oncrpc::{mount, nfs3};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use vfs::env::Env;
use vfs::store::MemStore;
use vfs::{Config, Mode, Mount, MountOptions, Namespace, Start, Vfs};

/// The user that the server runs as.
pub const OWNER: u32 = 4321;
pub const GROUP: u32 = 8765;

/// `lab` and `far` are homes; `refused` and `unknown` say why they are none.
struct Homes(HashMap<&'static [u8], Arc<FaultHome>>);

#[async_trait::async_trait]
impl Namespace for Homes {
    fn configured(&self) -> Vec<Name> {
        self.0.keys().map(|n| Name::new(n).unwrap()).collect()
    }

    async fn resolve(&self, name: &Name) -> vfs::Result<Mount> {
        match name.as_bytes() {
            b"refused" => return Err(ErrorKind::Login.into()),
            b"unknown" => return Err(ErrorKind::UnknownHost.into()),
            _ => {}
        }
        let home = self.0.get(name.as_bytes()).ok_or(ErrorKind::NotFound)?.clone();
        let protect = vec![HomePath::parse(b".ssh")?];
        let options = MountOptions { protect, ..MountOptions::default() };
        Ok(Mount { account: format!("local:/{name}"), home, start: Start::Root, options })
    }
}

/// A server, its engine, and what outlives them.
pub struct World {
    pub vfs: Arc<Vfs>,
    pub server: Arc<NfsServer>,
    pub ground: Ground,
}

/// What outlives a process: the homes and the state directory.
#[derive(Clone)]
pub struct Ground {
    pub lab: Arc<FaultHome>,
    /// What other programs see of `lab`.
    pub lab_tree: MemoryHome,
    far: Arc<FaultHome>,
    store: Arc<MemStore>,
    dir: Arc<tempfile::TempDir>,
    mode: Mode,
}

impl Ground {
    fn new(mode: Mode) -> Ground {
        let (lab_tree, far_tree) = (MemoryHome::new(), MemoryHome::new());
        Ground {
            lab: Arc::new(FaultHome::new(Arc::new(lab_tree.clone()))),
            lab_tree,
            far: Arc::new(FaultHome::new(Arc::new(far_tree))),
            store: Arc::new(MemStore::new()),
            dir: Arc::new(tempfile::tempdir().unwrap()),
            mode,
        }
    }

    fn config(&self) -> Config {
        let homes = HashMap::from([(&b"lab"[..], self.lab.clone()), (&b"far"[..], self.far.clone())]);
        Config {
            env: Env::real(self.dir.path()).unwrap(),
            store: self.store.clone(),
            namespace: Arc::new(Homes(homes)),
            server_uid: OWNER,
            server_gid: GROUP,
            mode: self.mode,
            share: false,
            cache_bytes: 64 << 20,
            spool_from: None,
            batch_bytes: vfs::BATCH_BYTES,
            staleness: Duration::from_secs(5),
        }
    }
}

pub fn policy() -> ExportPolicy {
    ExportPolicy::local(OWNER, GROUP)
}

impl World {
    pub async fn new() -> World {
        World::with(Mode::Wb, policy()).await
    }

    pub async fn with(mode: Mode, policy: ExportPolicy) -> World {
        World::on(Ground::new(mode), policy).await
    }

    async fn on(ground: Ground, policy: ExportPolicy) -> World {
        let vfs = Vfs::open(ground.config()).await.unwrap();
        let server = Arc::new(NfsServer::new(vfs.clone(), Arc::new(policy)));
        World { vfs, server, ground }
    }

    /// Another front-end over the same engine, which has forgotten all replies.
    pub fn amnesia(&mut self) {
        self.server = Arc::new(NfsServer::new(self.vfs.clone(), Arc::new(policy())));
    }

    /// Another process over the same state and homes.
    pub async fn restart(self) -> World {
        self.vfs.close(None).await;
        drop((self.server, self.vfs));
        World::on(self.ground, policy()).await
    }

    /// A connection of the server's user from a privileged port.
    pub fn owner(&self) -> Nfs {
        self.connect("127.0.0.1:700", Credential::sys(OWNER, GROUP, &[]))
    }

    pub fn connect(&self, from: &str, cred: Credential) -> Nfs {
        let (ours, theirs) = tokio::io::duplex(1 << 20);
        let peer = Peer { addr: Some(from.parse().unwrap()) };
        tokio::spawn(oncrpc::server::serve(theirs, peer, self.server.clone(), Limits::default()));
        Nfs { rpc: Client::with_stream(ours), cred }
    }
}

/// A client of the server.
pub struct Nfs {
    pub rpc: Client,
    pub cred: Credential,
}

pub fn at(dir: &NfsFh3, name: &[u8]) -> DirOpArgs3 {
    DirOpArgs3 { dir: *dir, name: Bytes::copy_from_slice(name) }
}

pub fn mode(mode: u32) -> Sattr3 {
    Sattr3 { mode: Some(mode), ..Sattr3::default() }
}

/// Whether attributes are those of one moment, but for what the home decides when it has the change: the time
/// of the last access and the space used.
#[track_caller]
pub fn assert_same(left: PostOpAttr, right: Fattr3) {
    let left = left.expect("attributes are at hand");
    assert_eq!(Fattr3 { atime: right.atime, used: right.used, ..left }, right);
}

impl Nfs {
    /// The results of an NFS call as they are.
    pub async fn raw(&self, xid: u32, proc: u32, args: &impl Xdr) -> Result<Bytes, CallError> {
        let put = |w: &mut Writer| args.encode(w);
        let call = self.rpc.call_with_xid(xid, PROGRAM, VERSION, proc, &self.cred, put);
        Ok(call.await?.into_rest())
    }

    pub async fn try_call<R: Xdr>(&self, proc: u32, args: &impl Xdr) -> Result<R, CallError> {
        Ok(R::from_bytes(self.raw(self.rpc.next_xid(), proc, args).await?)?)
    }

    pub async fn call<R: Xdr>(&self, proc: u32, args: &impl Xdr) -> R {
        self.try_call(proc, args).await.unwrap()
    }

    pub async fn mount_call<R: Xdr>(&self, proc: u32, args: &impl Xdr) -> Result<R, CallError> {
        let put = |w: &mut Writer| args.encode(w);
        let call = self.rpc.call(mount::PROGRAM, mount::VERSION, proc, &self.cred, put);
        Ok(R::from_bytes(call.await?.into_rest())?)
    }

    pub async fn mnt(&self, path: &[u8]) -> mount::MountRes {
        self.mount_call(mount::procs::MNT, &Bytes::copy_from_slice(path)).await.unwrap()
    }

    /// The handle of a path that exists.
    pub async fn mounted(&self, path: &[u8]) -> NfsFh3 {
        match self.mnt(path).await {
            mount::MountRes::Ok(ok) => ok.fhandle,
            mount::MountRes::Fail(status) => panic!("{}: {status:?}", path.escape_ascii()),
        }
    }

    pub async fn lookup(&self, dir: &NfsFh3, name: &[u8]) -> LookupRes {
        self.call(procs::LOOKUP, &at(dir, name)).await
    }

    pub async fn getattr(&self, object: &NfsFh3) -> Result<Fattr3, NfsStat3> {
        let res: GetattrRes = self.call(procs::GETATTR, &GetattrArgs { object: *object }).await;
        res.into_result().map(|ok| ok.obj_attributes).map_err(|(status, ())| status)
    }

    pub async fn setattr(&self, object: &NfsFh3, new_attributes: Sattr3) -> SetattrRes {
        let args = SetattrArgs { object: *object, new_attributes, guard: None };
        self.call(procs::SETATTR, &args).await
    }

    pub async fn access(&self, object: &NfsFh3, access: u32) -> AccessRes {
        self.call(procs::ACCESS, &AccessArgs { object: *object, access }).await
    }

    pub async fn create_how(&self, dir: &NfsFh3, name: &[u8], how: CreateHow3) -> CreateRes {
        self.call(procs::CREATE, &CreateArgs { at: at(dir, name), how }).await
    }

    /// A new file with mode 0644.
    pub async fn create(&self, dir: &NfsFh3, name: &[u8]) -> NfsFh3 {
        let res = self.create_how(dir, name, CreateHow3::Guarded(mode(0o644))).await;
        res.into_result().unwrap().obj.unwrap()
    }

    /// A new directory with mode 0755.
    pub async fn mkdir(&self, dir: &NfsFh3, name: &[u8]) -> NfsFh3 {
        let args = MkdirArgs { at: at(dir, name), attributes: mode(0o755) };
        let res: MkdirRes = self.call(procs::MKDIR, &args).await;
        res.into_result().unwrap().obj.unwrap()
    }

    pub async fn write(&self, file: &NfsFh3, offset: u64, data: &[u8], stable: StableHow) -> WriteRes {
        let data = Bytes::copy_from_slice(data);
        let args = WriteArgs { file: *file, offset, count: data.len() as u32, stable, data };
        self.call(procs::WRITE, &args).await
    }

    pub async fn read(&self, file: &NfsFh3, offset: u64, count: u32) -> ReadRes {
        self.call(procs::READ, &ReadArgs { file: *file, offset, count }).await
    }

    pub async fn remove(&self, dir: &NfsFh3, name: &[u8]) -> RemoveRes {
        self.call(procs::REMOVE, &at(dir, name)).await
    }

    pub async fn rmdir(&self, dir: &NfsFh3, name: &[u8]) -> RmdirRes {
        self.call(procs::RMDIR, &at(dir, name)).await
    }

    pub async fn rename(&self, from: (&NfsFh3, &[u8]), to: (&NfsFh3, &[u8])) -> RenameRes {
        self.call(procs::RENAME, &RenameArgs { from: at(from.0, from.1), to: at(to.0, to.1) }).await
    }

    pub async fn link(&self, file: &NfsFh3, dir: &NfsFh3, name: &[u8]) -> LinkRes {
        self.call(procs::LINK, &LinkArgs { file: *file, link: at(dir, name) }).await
    }

    pub async fn readdir(&self, dir: &NfsFh3, cookie: u64, count: u32) -> nfs3::ReaddirRes {
        let args = ReaddirArgs { dir: *dir, cookie, cookieverf: [0; 8], count };
        self.call(procs::READDIR, &args).await
    }

    pub async fn readdirplus(
        &self,
        dir: &NfsFh3,
        cookie: u64,
        dircount: u32,
        maxcount: u32,
    ) -> nfs3::ReaddirplusRes {
        let args = ReaddirplusArgs { dir: *dir, cookie, cookieverf: [0; 8], dircount, maxcount };
        self.call(procs::READDIRPLUS, &args).await
    }
}
