//! An NFSv3 client in user space, for scenarios and load that no kernel would produce: chosen xids, forged
//! handles, any uid, and the latency of single calls.
//!
//! Calls block. A [`Client`] belongs to one thread; its connection comes from a privileged port.

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use oncrpc::client::Client as Rpc;
use oncrpc::mount::{self, MountRes};
use oncrpc::msg::Credential;
use oncrpc::nfs3::{self, *};
use oncrpc::xdr::{Reader, Xdr};
use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

/// How long a reply may take before the call counts as hung.
const REPLY_MAX: Duration = Duration::from_secs(70);
/// How long a call that hears JUKEBOX comes back before it gives up.
const JUKEBOX_MAX: Duration = Duration::from_secs(60);
const JUKEBOX_PAUSE: Duration = Duration::from_millis(100);

/// The server's answer where it is not OK.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status(pub NfsStat3);

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NFS status {:?}", self.0)
    }
}

impl std::error::Error for Status {}

/// The NFS status that an error carries, if it is one.
pub fn status_of<T>(result: &Result<T>) -> Option<NfsStat3> {
    match result {
        Ok(_) => Some(NfsStat3::Ok),
        Err(e) => e.downcast_ref::<Status>().map(|s| s.0),
    }
}

/// A connection with a caller's identity.
pub struct Client {
    runtime: Runtime,
    rpc: Rpc,
    cred: Credential,
    /// Where the connection comes from.
    pub local: SocketAddr,
}

impl Client {
    /// Connects from a free privileged port, as a kernel does.
    pub fn connect(server: SocketAddr, uid: u32) -> Result<Self> {
        static NEXT: AtomicU16 = AtomicU16::new(0);
        for _ in 0..400 {
            let port = 600 + NEXT.fetch_add(1, Relaxed) % 400;
            let local = SocketAddr::new(server.ip(), port);
            match Self::connect_from(local, server, uid) {
                Err(e) if is_taken(&e) => continue,
                done => return done,
            }
        }
        bail!("no free privileged port")
    }

    /// Connects from a chosen address.
    pub fn connect_from(local: SocketAddr, server: SocketAddr, uid: u32) -> Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let rpc = runtime.block_on(async { Rpc::connect_from(local, server).await });
        let rpc = rpc.with_context(|| format!("cannot connect {local} to {server}"))?;
        Ok(Self { runtime, rpc, cred: Credential::sys(uid, uid, &[]), local })
    }

    /// Becomes another caller on the same connection.
    pub fn set_uid(&mut self, uid: u32) {
        self.cred = Credential::sys(uid, uid, &[]);
    }

    /// The handle that MOUNT gives for a path of the export.
    pub fn mount(&self, path: &str) -> Result<NfsFh3> {
        let path = Bytes::copy_from_slice(path.as_bytes());
        let reply =
            self.wait(self.rpc.call(mount::PROGRAM, mount::VERSION, mount::procs::MNT, &self.cred, |w| {
                path.encode(w);
            }))?;
        match decode::<MountRes>(reply)? {
            MountRes::Ok(ok) => Ok(ok.fhandle),
            MountRes::Fail(status) => bail!("MOUNT answers {status:?}"),
        }
    }

    /// One call and its reply, whatever it says. JUKEBOX is retried with a new xid, as clients must.
    pub fn call<A: Xdr, T: Xdr, E: Xdr>(&self, proc: u32, args: &A) -> Result<T> {
        let began = Instant::now();
        loop {
            match self.call_xid::<A, T, E>(self.rpc.next_xid(), proc, args) {
                Err(e)
                    if e.downcast_ref() == Some(&Status(NfsStat3::Jukebox))
                        && began.elapsed() < JUKEBOX_MAX =>
                {
                    std::thread::sleep(JUKEBOX_PAUSE);
                }
                done => return done,
            }
        }
    }

    /// A call with a chosen xid, without retry.
    fn call_xid<A: Xdr, T: Xdr, E: Xdr>(&self, xid: u32, proc: u32, args: &A) -> Result<T> {
        let sent =
            self.rpc.call_with_xid(xid, nfs3::PROGRAM, nfs3::VERSION, proc, &self.cred, |w| args.encode(w));
        match decode::<Res<T, E>>(self.wait(sent)?)? {
            Res::Ok(ok) => Ok(ok),
            Res::Fail(status, _) => Err(Status(status).into()),
        }
    }

    /// Any procedure with a chosen xid; the bytes of the reply after the RPC header.
    pub fn raw<A: Xdr>(&self, xid: u32, proc: u32, args: &A) -> Result<Bytes> {
        let sent =
            self.rpc.call_with_xid(xid, nfs3::PROGRAM, nfs3::VERSION, proc, &self.cred, |w| args.encode(w));
        Ok(self.wait(sent)?.into_rest())
    }

    /// Sends a call on the same connection and does not wait: its reply, if one comes, is dropped. It
    /// travels while another call waits.
    pub fn fire<A: Xdr>(&self, proc: u32, args: &A) {
        let (rpc, cred, args) = (self.rpc.clone(), self.cred.clone(), args.to_bytes());
        self.runtime.spawn(async move {
            // Whether it ever has an answer is what the caller does not want to depend on.
            let _ = rpc.call(nfs3::PROGRAM, nfs3::VERSION, proc, &cred, |w| w.raw(&args)).await;
        });
    }

    fn wait<T, E>(&self, answer: impl Future<Output = Result<T, E>>) -> Result<T>
    where
        E: std::error::Error + Send + Sync + 'static,
    {
        let timed = self.runtime.block_on(async { tokio::time::timeout(REPLY_MAX, answer).await });
        Ok(timed.context("the server does not answer")??)
    }
}

fn decode<T: Xdr>(mut reply: Reader) -> Result<T> {
    let value = T::decode(&mut reply)?;
    reply.finish()?;
    Ok(value)
}

fn is_taken(error: &anyhow::Error) -> bool {
    let taken = [std::io::ErrorKind::AddrInUse, std::io::ErrorKind::AddrNotAvailable];
    error.downcast_ref::<std::io::Error>().is_some_and(|e| taken.contains(&e.kind()))
}

/// A name in a directory.
pub fn at(dir: &NfsFh3, name: impl AsRef<[u8]>) -> DirOpArgs3 {
    DirOpArgs3 { dir: *dir, name: Bytes::copy_from_slice(name.as_ref()) }
}

/// Attributes of a new object that only say its mode.
pub fn mode(mode: u32) -> Sattr3 {
    Sattr3 { mode: Some(mode), ..Sattr3::default() }
}

/// The procedures, with what a caller most often wants of their answers.
impl Client {
    /// GETATTR.
    pub fn getattr(&self, object: &NfsFh3) -> Result<Fattr3> {
        let ok: GetattrOk = self.call::<_, _, ()>(procs::GETATTR, &GetattrArgs { object: *object })?;
        Ok(ok.obj_attributes)
    }

    /// LOOKUP of one name.
    pub fn lookup(&self, dir: &NfsFh3, name: impl AsRef<[u8]>) -> Result<NfsFh3> {
        let ok: LookupOk = self.call::<_, _, PostOpAttr>(procs::LOOKUP, &at(dir, name))?;
        Ok(ok.object)
    }

    /// LOOKUP of every component below `from`.
    pub fn walk(&self, from: &NfsFh3, path: &str) -> Result<NfsFh3> {
        let names = path.split('/').filter(|n| !n.is_empty());
        names.into_iter().try_fold(*from, |dir, name| {
            self.lookup(&dir, name).with_context(|| format!("LOOKUP {name} of {path}"))
        })
    }

    /// READ of at most `count` bytes; with it, whether the file ends there.
    pub fn read(&self, file: &NfsFh3, offset: u64, count: u32) -> Result<(Bytes, bool)> {
        let args = ReadArgs { file: *file, offset, count };
        let ok: ReadOk = self.call::<_, _, PostOpAttr>(procs::READ, &args)?;
        Ok((Bytes::from(ok.data.concat()), ok.eof))
    }

    /// The whole file.
    pub fn read_all(&self, file: &NfsFh3) -> Result<Vec<u8>> {
        let mut all = Vec::new();
        loop {
            let (data, eof) = self.read(file, all.len() as u64, 256 << 10)?;
            all.extend_from_slice(&data);
            if eof || data.is_empty() {
                return Ok(all);
            }
        }
    }

    /// WRITE; answers how stable it is.
    pub fn write(&self, file: &NfsFh3, offset: u64, data: &[u8], stable: StableHow) -> Result<WriteOk> {
        let data = Bytes::copy_from_slice(data);
        let args = WriteArgs { file: *file, offset, count: data.len() as u32, stable, data };
        self.call::<_, _, WccData>(procs::WRITE, &args)
    }

    /// COMMIT of the whole file.
    pub fn commit(&self, file: &NfsFh3) -> Result<CommitOk> {
        self.call::<_, _, WccData>(procs::COMMIT, &CommitArgs { file: *file, offset: 0, count: 0 })
    }

    /// CREATE that fails where the name exists.
    pub fn create(&self, dir: &NfsFh3, name: impl AsRef<[u8]>) -> Result<NfsFh3> {
        let args = CreateArgs { at: at(dir, name), how: CreateHow3::Guarded(mode(0o644)) };
        let ok: CreateOk = self.call::<_, _, WccData>(procs::CREATE, &args)?;
        ok.obj.context("CREATE gives no handle")
    }

    /// A new file with content, stable at the server.
    pub fn put(&self, dir: &NfsFh3, name: impl AsRef<[u8]>, data: &[u8]) -> Result<NfsFh3> {
        let file = self.create(dir, name)?;
        self.write(&file, 0, data, StableHow::FileSync)?;
        Ok(file)
    }

    /// MKDIR.
    pub fn mkdir(&self, dir: &NfsFh3, name: impl AsRef<[u8]>) -> Result<NfsFh3> {
        let args = MkdirArgs { at: at(dir, name), attributes: mode(0o755) };
        let ok: CreateOk = self.call::<_, _, WccData>(procs::MKDIR, &args)?;
        ok.obj.context("MKDIR gives no handle")
    }

    /// REMOVE.
    pub fn remove(&self, dir: &NfsFh3, name: impl AsRef<[u8]>) -> Result<()> {
        self.call::<_, WccData, WccData>(procs::REMOVE, &at(dir, name)).map(drop)
    }

    /// RENAME.
    pub fn rename(&self, from: DirOpArgs3, to: DirOpArgs3) -> Result<()> {
        self.call::<_, RenameWcc, RenameWcc>(procs::RENAME, &RenameArgs { from, to }).map(drop)
    }

    /// LINK.
    pub fn link(&self, file: &NfsFh3, to: DirOpArgs3) -> Result<()> {
        self.call::<_, LinkWcc, LinkWcc>(procs::LINK, &LinkArgs { file: *file, link: to }).map(drop)
    }

    /// SYMLINK.
    pub fn symlink(&self, at: DirOpArgs3, target: &str) -> Result<NfsFh3> {
        let symlink_data = Bytes::copy_from_slice(target.as_bytes());
        let args = SymlinkArgs { at, symlink_attributes: mode(0o777), symlink_data };
        let ok: CreateOk = self.call::<_, _, WccData>(procs::SYMLINK, &args)?;
        ok.obj.context("SYMLINK gives no handle")
    }

    /// SETATTR of the mode.
    pub fn chmod(&self, object: &NfsFh3, bits: u32) -> Result<()> {
        let args = SetattrArgs { object: *object, new_attributes: mode(bits), guard: None };
        self.call::<_, WccData, WccData>(procs::SETATTR, &args).map(drop)
    }

    /// ACCESS: which of the asked bits are granted.
    pub fn access(&self, object: &NfsFh3, bits: u32) -> Result<u32> {
        let ok: AccessOk =
            self.call::<_, _, PostOpAttr>(procs::ACCESS, &AccessArgs { object: *object, access: bits })?;
        Ok(ok.access)
    }

    /// All entries, by READDIRPLUS.
    pub fn list(&self, dir: &NfsFh3) -> Result<Vec<EntryPlus3>> {
        let (mut all, mut cookie, mut cookieverf) = (Vec::<EntryPlus3>::new(), 0, [0; COOKIEVERFSIZE]);
        loop {
            let args =
                ReaddirplusArgs { dir: *dir, cookie, cookieverf, dircount: 32 << 10, maxcount: 128 << 10 };
            let ok: ReaddirplusOk = self.call::<_, _, PostOpAttr>(procs::READDIRPLUS, &args)?;
            let more = ok.entries.0;
            if !ok.eof && more.is_empty() {
                bail!("READDIRPLUS answers neither entries nor the end");
            }
            cookieverf = ok.cookieverf;
            cookie = more.last().map_or(cookie, |e| e.cookie);
            all.extend(more);
            if ok.eof {
                return Ok(all);
            }
        }
    }
}
