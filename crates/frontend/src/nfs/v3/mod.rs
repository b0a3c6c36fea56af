//! The 22 procedures of NFS version 3 (RFC 1813 §3.3).
//!
//! Every handler has one shape: handle → object, one call of the engine, its result on the wire. The
//! order of checks, permissions, freshness and durability are the engine's business. A failed call still
//! carries attributes where the engine has them in memory, because a client that gets none asks again.
//!
//! # Layout
//! - [`dir`]: names: LOOKUP, everything that makes or removes one, READDIR and READDIRPLUS.
//! - [`file`]: objects and file systems: attributes, ACCESS, READLINK, FSSTAT, FSINFO, PATHCONF.
//! - [`io`]: READ, WRITE, COMMIT.

mod dir;
mod file;
mod io;

use super::convert;
use super::handle::Handles;
use oncrpc::msg::Refusal;
use oncrpc::nfs3::{NfsFh3, NfsStat3, PostOpAttr, Res, WccData, procs};
use oncrpc::server::Reply;
use oncrpc::xdr::{Reader, Writer, Xdr};
use vfs::{Cred, Ctx, ErrorKind, FirstReply, Oid, RetryKey, Vfs};

/// The circumstances of one call.
pub struct Cx<'a> {
    /// The engine.
    pub vfs: &'a Vfs,
    /// Makes and checks file handles.
    pub handles: &'a Handles,
    /// Whom the call speaks for.
    pub cred: Cred,
    /// Whether the client may not change anything.
    pub read_only: bool,
    /// Set where the call must not be executed twice.
    pub retry: Option<RetryKey>,
}

/// How a procedure is treated when it comes again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repeat {
    /// It may run again at any time.
    Harmless,
    /// It must not run twice at once, but may run again later.
    NotAtOnce,
    /// It has to get its first answer.
    Remember,
}

/// How a procedure is treated when it comes again.
pub fn repeat(proc: u32) -> Repeat {
    match proc {
        procs::SETATTR | procs::CREATE..=procs::LINK => Repeat::Remember,
        procs::WRITE => Repeat::NotAtOnce,
        _ => Repeat::Harmless,
    }
}

/// How many bytes the reply may have beyond the few hundred that every reply may have.
pub fn reply_hint(proc: u32, args: &Reader) -> usize {
    match proc {
        procs::READ => io::read_hint(args.clone()),
        procs::READDIR | procs::READDIRPLUS => crate::limits::DIR_REPLY_MAX as usize,
        _ => 0,
    }
}

/// Runs one procedure other than NULL. Bytes after the arguments are ignored, as other servers do.
pub async fn run(cx: &Cx<'_>, proc: u32, args: Reader) -> Reply {
    match proc {
        procs::GETATTR => put(file::getattr(cx, take(args)?).await),
        procs::SETATTR => put(file::setattr(cx, take(args)?).await),
        procs::LOOKUP => put(dir::lookup(cx, take(args)?).await),
        procs::ACCESS => put(file::access(cx, take(args)?).await),
        procs::READLINK => put(file::readlink(cx, take(args)?).await),
        procs::READ => put(io::read(cx, take(args)?).await),
        procs::WRITE => put(io::write(cx, take(args)?).await),
        procs::CREATE => put(dir::create(cx, take(args)?).await),
        procs::MKDIR => put(dir::mkdir(cx, take(args)?).await),
        procs::SYMLINK => put(dir::symlink(cx, take(args)?).await),
        procs::MKNOD => put(dir::mknod(cx, take(args)?).await),
        procs::REMOVE => put(dir::remove(cx, take(args)?).await),
        procs::RMDIR => put(dir::rmdir(cx, take(args)?).await),
        procs::RENAME => put(dir::rename(cx, take(args)?).await),
        procs::LINK => put(dir::link(cx, take(args)?).await),
        procs::READDIR => Ok(dir::readdir(cx, take(args)?).await),
        procs::READDIRPLUS => Ok(dir::readdirplus(cx, take(args)?).await),
        procs::FSSTAT => put(file::fsstat(cx, take(args)?).await),
        procs::FSINFO => put(file::fsinfo(cx, take(args)?).await),
        procs::PATHCONF => put(file::pathconf(cx, take(args)?).await),
        procs::COMMIT => put(io::commit(cx, take(args)?).await),
        _ => Err(Refusal::ProcUnavail),
    }
}

fn take<A: Xdr>(mut args: Reader) -> Result<A, Refusal> {
    Ok(A::decode(&mut args)?)
}

fn put<R: Xdr>(results: R) -> Reply {
    let mut w = Writer::new();
    results.encode(&mut w);
    Ok(w)
}

/// Why a call that would change something is not tried, and its object if that is known.
#[derive(Clone, Copy)]
struct No {
    status: NfsStat3,
    known: Option<Oid>,
}

/// A failure before any object is known.
fn refused<T, E: Default>(status: NfsStat3) -> Res<T, E> {
    Res::Fail(status, E::default())
}

impl Cx<'_> {
    fn ctx(&self) -> Ctx<'_> {
        Ctx { retry: self.retry, looks_open: true, ..Ctx::of(&self.cred) }
    }

    /// The object of a handle.
    fn object(&self, handle: &NfsFh3) -> Result<Oid, NfsStat3> {
        self.handles.decode(handle).ok_or(NfsStat3::BadHandle)
    }

    /// The handle of an object; always `Some`.
    fn handle(&self, oid: Oid) -> Option<NfsFh3> {
        NfsFh3::new(&self.handles.encode(oid))
    }

    /// The object of a handle in a call that changes something.
    fn writable(&self, handle: &NfsFh3) -> Result<Oid, No> {
        let oid = self.object(handle).map_err(|status| No { status, known: None })?;
        if self.read_only {
            return Err(No { status: NfsStat3::Rofs, known: Some(oid) });
        }
        Ok(oid)
    }

    /// The failure of a call that is not tried.
    fn refuse<T>(&self, no: No) -> Res<T, WccData> {
        Res::Fail(no.status, no.known.map_or_else(WccData::default, |oid| self.after(oid)))
    }

    /// Attributes for the reply of a call that failed: what memory has. Of an object that has gone nothing
    /// is said.
    fn seen(&self, oid: Oid, failed: ErrorKind) -> PostOpAttr {
        let attr = if failed == ErrorKind::Stale { None } else { self.vfs.peek(oid) };
        attr.as_ref().map(convert::attr)
    }

    /// The same for a call that would have changed the object.
    fn unchanged(&self, oid: Oid, failed: ErrorKind) -> WccData {
        WccData { before: None, after: self.seen(oid, failed) }
    }

    /// Attributes after a change whose circumstances nobody knows any more.
    fn after(&self, oid: Oid) -> WccData {
        WccData { before: None, after: self.vfs.peek(oid).as_ref().map(convert::attr) }
    }

    /// Set if this call was executed by a process before this one, so that only its answer has to be
    /// made again.
    async fn first_reply(&self) -> Option<FirstReply> {
        self.vfs.first_reply(self.retry?).await
    }
}
