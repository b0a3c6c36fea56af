//! Calls to procedures: who calls, whether the call came before, and which program answers.

use super::export::{Access, ExportPolicy};
use super::handle::Handles;
use super::mount::Mounts;
use super::retry::{CallId, Clients, Keys};
use super::v3::{self, Cx, Repeat};
use crate::limits::CONNECTIONS;
use oncrpc::limits::Limits;
use oncrpc::msg::{AuthStat, Credential, Refusal};
use oncrpc::nfs3::NfsStat3;
use oncrpc::server::{Call, Program, Reply, Service, listen, route};
use oncrpc::xdr::Writer;
use oncrpc::{mount, nfs3};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpListener;
use vfs::Vfs;

const PROGRAMS: [Program; 2] = [
    Program { prog: nfs3::PROGRAM, vers: nfs3::VERSION, procs: nfs3::procs::COUNT },
    Program { prog: mount::PROGRAM, vers: mount::VERSION, procs: mount::procs::COUNT },
];
const NULL: u32 = 0;
/// How results begin that say "not yet".
const JUKEBOX: [u8; 4] = (NfsStat3::Jukebox as u32).to_be_bytes();

/// NFS version 3 and MOUNT version 3 over one engine. Any number of listeners and streams may share
/// it; they should, because repeated calls may come over another connection.
pub struct NfsServer {
    vfs: Arc<Vfs>,
    policy: Arc<ExportPolicy>,
    handles: Handles,
    keys: Keys,
    clients: Clients,
    mounts: Mounts,
}

/// Serves one listener until the future is dropped, which ends all its connections.
pub async fn serve(listener: TcpListener, vfs: Arc<Vfs>, policy: Arc<ExportPolicy>) {
    Arc::new(NfsServer::new(vfs, policy)).listen(listener, std::future::pending()).await;
}

impl NfsServer {
    /// Over an engine, with the rules for all clients.
    pub fn new(vfs: Arc<Vfs>, policy: Arc<ExportPolicy>) -> NfsServer {
        let secret = vfs.handle_key();
        NfsServer {
            vfs,
            policy,
            handles: Handles::new(secret),
            keys: Keys::new(secret),
            clients: Clients::default(),
            mounts: Mounts::new(),
        }
    }

    /// Serves one listener until `stop` is ready, then answers what has come and returns. Dropping
    /// the future ends all connections at once.
    pub async fn listen(self: Arc<Self>, listener: TcpListener, stop: impl Future<Output = ()>) {
        let limits = Limits { connections_max: CONNECTIONS, ..Limits::default() };
        listen(listener, self, limits, stop).await;
    }

    async fn nfs(&self, call: Call) -> Reply {
        let (client, mut cx) = self.admit(&call)?;
        let how = v3::repeat(call.proc);
        if how == Repeat::Harmless {
            return v3::run(&cx, call.proc, call.args).await;
        }
        let key = self.keys.key(client.ip(), &call_id(&call));
        if how == Repeat::Remember {
            cx.retry = Some(key);
        }
        let run = async { v3::run(&cx, call.proc, call.args).await.map(Writer::into_bytes) };
        // An answer that asks the client to come back is not kept: nothing has happened.
        let keep = |reply: &[u8]| how == Repeat::Remember && !reply.starts_with(&JUKEBOX);
        let reply = self.clients.table(client.ip()).once(key, run, keep).await?;
        let mut w = Writer::new();
        w.raw(&reply);
        Ok(w)
    }

    /// Who calls, if it may. A call that may not be made is refused as a whole, so that it learns
    /// nothing of any handle.
    fn admit(&self, call: &Call) -> Result<(SocketAddr, Cx<'_>), Refusal> {
        const DENIED: Refusal = Refusal::AuthError(AuthStat::TooWeak);
        let client = call.peer.addr.ok_or(DENIED)?;
        let access = self.policy.access(client.ip());
        if access == Access::None || !self.policy.trusts_port(client) {
            return Err(DENIED);
        }
        let cred = match &call.cred {
            Credential::Sys(sys) => self.policy.squash(sys.uid, sys.gid, &sys.gids),
            Credential::None => self.policy.nobody(),
            Credential::Other(_) => return Err(DENIED),
        };
        let read_only = access == Access::ReadOnly;
        Ok((client, Cx { vfs: &self.vfs, handles: &self.handles, cred, read_only, retry: None }))
    }
}

impl Service for NfsServer {
    async fn call(&self, call: Call) -> Reply {
        let at = route(&PROGRAMS, call.prog, call.vers, call.proc)?;
        match PROGRAMS[at].prog {
            _ if call.proc == NULL => Ok(Writer::new()),
            mount::PROGRAM => self.mounts.run(&self.vfs, &self.handles, &self.policy, call).await,
            _ => self.vfs.request(Some(call.crowd.clone()), self.nfs(call)).await,
        }
    }

    /// A user of an allowed client who is not root there must not take the connections away from its kernel.
    fn welcomes(&self, addr: SocketAddr) -> bool {
        self.policy.access(addr.ip()) != Access::None && self.policy.trusts_port(addr)
    }

    fn reply_hint(&self, call: &Call) -> usize {
        if call.prog == nfs3::PROGRAM { v3::reply_hint(call.proc, &call.args) } else { 0 }
    }
}

fn call_id(call: &Call) -> CallId<'_> {
    let uid = match &call.cred {
        Credential::Sys(sys) => Some(sys.uid),
        Credential::None | Credential::Other(_) => None,
    };
    CallId { xid: call.xid, prog: call.prog, vers: call.vers, proc: call.proc, uid, args: &call.raw }
}
