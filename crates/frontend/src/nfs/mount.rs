//! MOUNT version 3 (RFC 1813 appendix I): paths to handles.
//!
//! The one export is `/`; every directory below it may be mounted too. A path is resolved as the
//! server's own user: the caller is the client's root, who is nobody here, and the handle that it gets gives
//! no rights beyond those of whoever uses it.

use super::export::{Access, ExportPolicy};
use super::handle::Handles;
use crate::limits::MOUNTS;
use bytes::Bytes;
use oncrpc::mount::{
    DirPath, DumpRes, ExportNode, ExportRes, MNTPATHLEN, MountBody, MountOk, MountRes, MountStat3, procs,
};
use oncrpc::msg::{AUTH_SYS, AuthStat, Refusal};
use oncrpc::nfs3::{Chain, NfsFh3};
use oncrpc::server::{Call, Reply};
use oncrpc::xdr::{Writer, Xdr};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use vfs::{Ctx, ErrorKind, Kind, Oid, Vfs};

/// What MOUNT works with, and the mounts that clients told of. The list is for people to look at: a
/// client that dies stays in it.
pub struct Mounts {
    list: Mutex<VecDeque<(IpAddr, Bytes)>>,
}

impl Mounts {
    /// An empty list.
    pub fn new() -> Mounts {
        Mounts { list: Mutex::new(VecDeque::new()) }
    }

    /// Runs one procedure other than NULL.
    pub async fn run(&self, vfs: &Vfs, handles: &Handles, policy: &ExportPolicy, call: Call) -> Reply {
        let client = call.peer.addr.ok_or(Refusal::AuthError(AuthStat::TooWeak))?;
        let allowed = policy.access(client.ip()) != Access::None;
        let mut args = call.args;
        let mut w = Writer::new();
        match call.proc {
            procs::MNT => {
                let path = DirPath::decode(&mut args)?;
                let result = if allowed && policy.trusts_port(client) {
                    self.mount(vfs, handles, policy, client, &path).await
                } else {
                    Err(MountStat3::Acces)
                };
                report(client, &path, &result);
                result.map_or_else(MountRes::Fail, MountRes::Ok).encode(&mut w);
            }
            procs::UMNT => self.forget(client.ip(), Some(&DirPath::decode(&mut args)?)),
            procs::UMNTALL => self.forget(client.ip(), None),
            _ if !allowed => return Err(Refusal::AuthError(AuthStat::TooWeak)),
            procs::DUMP => self.dump().encode(&mut w),
            procs::EXPORT => export(policy).encode(&mut w),
            _ => return Err(Refusal::ProcUnavail),
        }
        Ok(w)
    }

    async fn mount(
        &self,
        vfs: &Vfs,
        handles: &Handles,
        policy: &ExportPolicy,
        client: SocketAddr,
        path: &Bytes,
    ) -> Result<MountOk, MountStat3> {
        if path.len() > MNTPATHLEN {
            return Err(MountStat3::NameTooLong);
        }
        let oid = directory(vfs, policy, path).await?;
        let fhandle = NfsFh3::new(&handles.encode(oid)).ok_or(MountStat3::ServerFault)?;
        self.remember(client.ip(), path);
        Ok(MountOk { fhandle, auth_flavors: vec![AUTH_SYS] })
    }

    fn remember(&self, client: IpAddr, path: &[u8]) {
        let mut list = self.list.lock();
        list.retain(|(c, p)| (*c, &p[..]) != (client, path));
        if list.len() >= MOUNTS {
            list.pop_front();
        }
        list.push_back((client, Bytes::copy_from_slice(path)));
    }

    fn forget(&self, client: IpAddr, path: Option<&[u8]>) {
        self.list.lock().retain(|(c, p)| *c != client || path.is_some_and(|path| path != p));
    }

    fn dump(&self) -> DumpRes {
        let body = |(client, path): &(IpAddr, Bytes)| MountBody {
            hostname: client.to_canonical().to_string().into(),
            directory: path.clone(),
        };
        Chain(self.list.lock().iter().map(body).collect())
    }
}

async fn directory(vfs: &Vfs, policy: &ExportPolicy, path: &[u8]) -> Result<Oid, MountStat3> {
    let cred = policy.server();
    match vfs.resolve_path(Ctx::of(&cred), path).await {
        Ok((oid, attr)) if attr.kind == Kind::Dir => Ok(oid),
        Ok(_) => Err(MountStat3::NotDir),
        Err(e) => Err(status(e.kind)),
    }
}

/// MOUNT has fewer words than NFS: "not yet" is an I/O error, which `mount` reports at once.
fn status(kind: ErrorKind) -> MountStat3 {
    match kind {
        ErrorKind::NotFound | ErrorKind::UnknownHost | ErrorKind::NameServer | ErrorKind::Stale => {
            MountStat3::NoEnt
        }
        ErrorKind::Access | ErrorKind::Login | ErrorKind::Setup => MountStat3::Acces,
        ErrorKind::Perm => MountStat3::Perm,
        ErrorKind::NotDir => MountStat3::NotDir,
        ErrorKind::Invalid | ErrorKind::Loop => MountStat3::Inval,
        ErrorKind::NameTooLong => MountStat3::NameTooLong,
        ErrorKind::Unsupported => MountStat3::NotSupp,
        _ => MountStat3::Io,
    }
}

fn export(policy: &ExportPolicy) -> ExportRes {
    let groups = policy.allow.iter().map(|a| a.to_string().into()).collect();
    Chain(vec![ExportNode { dir: Bytes::from_static(b"/"), groups: Chain(groups) }])
}

fn report(client: SocketAddr, path: &[u8], result: &Result<MountOk, MountStat3>) {
    let path = path[..path.len().min(MNTPATHLEN)].escape_ascii();
    match result {
        Ok(_) => tracing::info!(%client, %path, "mounted"),
        Err(status) => tracing::warn!(%client, %path, ?status, "mount refused"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));
    const B: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 2));

    fn paths(mounts: &Mounts) -> Vec<(String, String)> {
        let text = |b: &Bytes| String::from_utf8(b.to_vec()).unwrap();
        mounts.dump().0.iter().map(|b| (text(&b.hostname), text(&b.directory))).collect()
    }

    #[test]
    fn the_list_has_each_mount_once_and_is_bounded() {
        let mounts = Mounts::new();
        mounts.remember(A, b"/");
        mounts.remember(A, b"/x");
        mounts.remember(B, b"/");
        mounts.remember(A, b"/");
        assert_eq!(paths(&mounts).len(), 3);
        mounts.forget(A, Some(b"/x"));
        assert!(!paths(&mounts).contains(&("192.0.2.1".into(), "/x".into())));
        mounts.forget(A, None);
        assert_eq!(paths(&mounts), [("192.0.2.2".to_string(), "/".to_string())]);
        for n in 0..2 * MOUNTS {
            mounts.remember(A, format!("/{n}").as_bytes());
        }
        assert_eq!(paths(&mounts).len(), MOUNTS);
    }

    #[test]
    fn the_export_list_names_the_rules() {
        let mut policy = ExportPolicy::local(1, 1);
        policy.allow = vec!["10.0.0.0/8:ro".parse().unwrap()];
        let list = export(&policy);
        assert_eq!(&list.0[0].dir[..], b"/");
        assert_eq!(&list.0[0].groups.0[0][..], b"10.0.0.0/8:ro");
    }
}
