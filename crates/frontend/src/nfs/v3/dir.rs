//! Names: LOOKUP, CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME, LINK, READDIR, READDIRPLUS.
//!
//! Names are bytes; the engine checks their length and content. `.` and `..` are names that always exist
//! and that nothing can make, remove or replace: what each procedure answers then is said here.
//!
//! Cookies are the engine's: they stay right whatever happens to the directory, so that the verifier is a
//! constant and NFS3ERR_BAD_COOKIE is never answered. `..` and `.` are entries like others.

use super::{Cx, No, convert, refused};
use crate::limits::DIR_REPLY_MAX;
use bytes::Bytes;
use oncrpc::nfs3::{
    CookieVerf3, CreateArgs, CreateHow3, CreateOk, CreateRes, DirEntry, DirOpArgs3, DirWriter, EntryPlus,
    LinkArgs, LinkRes, LinkWcc, LookupArgs, LookupOk, LookupRes, MkdirArgs, MkdirRes, MknodArgs, MknodData3,
    MknodRes, NfsFh3, NfsStat3, PostOpAttr, ReaddirArgs, ReaddirplusArgs, RemoveArgs, RemoveRes, RenameArgs,
    RenameRes, RenameWcc, Res, RmdirArgs, RmdirRes, Sattr3, SymlinkArgs, SymlinkRes, WccData,
};
use oncrpc::xdr::{Writer, Xdr};
use vfs::{CreateHow, DirPage, FirstReply, Kind, Made, Oid, SetAttrs};

/// Goes with every cookie.
const VERIFIER: CookieVerf3 = [0; 8];
/// The least that an entry of READDIR takes: a mark, fileid, the name's length, one padded byte, cookie.
const ENTRY_MIN: u32 = 28;
/// The least that an entry of READDIRPLUS with attributes and handle takes.
const ENTRY_PLUS_MIN: u32 = ENTRY_MIN + 88 + 40;

fn is_dots(name: &[u8]) -> bool {
    name == b"." || name == b".."
}

pub async fn lookup(cx: &Cx<'_>, a: LookupArgs) -> LookupRes {
    let dir = match cx.object(&a.dir) {
        Ok(oid) => oid,
        Err(status) => return refused(status),
    };
    match cx.vfs.lookup(cx.ctx(), dir, &a.name).await {
        Ok(found) => match cx.handle(found.oid) {
            Some(object) => Res::Ok(LookupOk {
                object,
                obj_attributes: Some(convert::attr(&found.attr)),
                dir_attributes: found.dir.as_ref().map(convert::attr),
            }),
            None => refused(NfsStat3::ServerFault),
        },
        Err(e) => Res::Fail(convert::status(e.kind), cx.seen(dir, e.kind)),
    }
}

/// The directory in which a call is to make a name.
fn place(cx: &Cx<'_>, at: &DirOpArgs3) -> Result<Oid, No> {
    let dir = cx.writable(&at.dir)?;
    let taken = No { status: NfsStat3::Exist, known: Some(dir) };
    if is_dots(&at.name) { Err(taken) } else { Ok(dir) }
}

/// The answer of every call that makes an object.
fn made(cx: &Cx<'_>, dir: Oid, result: vfs::Result<Made>) -> CreateRes {
    match result {
        Ok(made) => Res::Ok(CreateOk {
            obj: cx.handle(made.oid),
            obj_attributes: made.attr.as_ref().map(convert::attr),
            dir_wcc: convert::wcc(&made.dir),
        }),
        Err(e) => Res::Fail(convert::status(e.kind), cx.unchanged(dir, e.kind)),
    }
}

/// The answer of a call that made its object before this process began.
async fn made_before(cx: &Cx<'_>, dir: Oid, first: FirstReply) -> CreateRes {
    let attr = cx.vfs.getattr(cx.ctx(), first.oid).await.ok();
    Res::Ok(CreateOk {
        obj: cx.handle(first.oid),
        obj_attributes: attr.as_ref().map(convert::attr),
        dir_wcc: cx.after(dir),
    })
}

pub async fn create(cx: &Cx<'_>, a: CreateArgs) -> CreateRes {
    let dir = match place(cx, &a.at) {
        Ok(oid) => oid,
        Err(no) => return cx.refuse(no),
    };
    if let Some(first) = cx.first_reply().await {
        return made_before(cx, dir, first).await;
    }
    let (how, set) = match &a.how {
        CreateHow3::Unchecked(s) => (CreateHow::Unchecked, convert::set_attrs(s)),
        CreateHow3::Guarded(s) => (CreateHow::Guarded, convert::set_attrs(s)),
        CreateHow3::Exclusive(verifier) => (CreateHow::Exclusive(*verifier), Ok(SetAttrs::default())),
    };
    let result = match set {
        Ok(set) => cx.vfs.create(cx.ctx(), dir, &a.at.name, how, set).await,
        Err(e) => Err(e),
    };
    made(cx, dir, result)
}

pub async fn mkdir(cx: &Cx<'_>, a: MkdirArgs) -> MkdirRes {
    let dir = match place(cx, &a.at) {
        Ok(oid) => oid,
        Err(no) => return cx.refuse(no),
    };
    if let Some(first) = cx.first_reply().await {
        return made_before(cx, dir, first).await;
    }
    let result = match convert::set_attrs(&a.attributes) {
        Ok(set) => cx.vfs.mkdir(cx.ctx(), dir, &a.at.name, set).await,
        Err(e) => Err(e),
    };
    made(cx, dir, result)
}

pub async fn symlink(cx: &Cx<'_>, a: SymlinkArgs) -> SymlinkRes {
    let dir = match place(cx, &a.at) {
        Ok(oid) => oid,
        Err(no) => return cx.refuse(no),
    };
    if let Some(first) = cx.first_reply().await {
        return made_before(cx, dir, first).await;
    }
    // The engine keeps the target for long; a slice would keep the whole receive buffer.
    let target = Bytes::copy_from_slice(&a.symlink_data);
    let result = match convert::set_attrs(&a.symlink_attributes) {
        Ok(set) => cx.vfs.symlink(cx.ctx(), dir, &a.at.name, target, set).await,
        Err(e) => Err(e),
    };
    made(cx, dir, result)
}

/// Device nodes are nobody's to make: homes hide them.
pub async fn mknod(cx: &Cx<'_>, a: MknodArgs) -> MknodRes {
    let dir = match place(cx, &a.at) {
        Ok(oid) => oid,
        Err(no) => return cx.refuse(no),
    };
    let (kind, set): (Kind, &Sattr3) = match &a.what {
        MknodData3::Fifo(set) => (Kind::Fifo, set),
        MknodData3::Sock(set) => (Kind::Socket, set),
        MknodData3::Blk(_) | MknodData3::Chr(_) => return Res::Fail(NfsStat3::Perm, cx.after(dir)),
        MknodData3::Reg | MknodData3::Dir | MknodData3::Lnk => {
            return Res::Fail(NfsStat3::BadType, cx.after(dir));
        }
    };
    if let Some(first) = cx.first_reply().await {
        return made_before(cx, dir, first).await;
    }
    let result = match convert::set_attrs(set) {
        Ok(set) => cx.vfs.mknod(cx.ctx(), dir, &a.at.name, kind, set).await,
        Err(e) => Err(e),
    };
    made(cx, dir, result)
}

pub async fn remove(cx: &Cx<'_>, a: RemoveArgs) -> RemoveRes {
    let dir = match cx.writable(&a.dir) {
        Ok(oid) => oid,
        Err(no) => return cx.refuse(no),
    };
    if is_dots(&a.name) {
        return Res::Fail(NfsStat3::IsDir, cx.after(dir));
    }
    if cx.first_reply().await.is_some() {
        return Res::Ok(cx.after(dir));
    }
    match cx.vfs.remove(cx.ctx(), dir, &a.name).await {
        Ok(wcc) => Res::Ok(convert::wcc(&wcc)),
        Err(e) => Res::Fail(convert::status(e.kind), cx.unchanged(dir, e.kind)),
    }
}

/// RFC 1813 §3.3.13: `.` is NFS3ERR_INVAL, `..` is NFS3ERR_EXIST.
pub async fn rmdir(cx: &Cx<'_>, a: RmdirArgs) -> RmdirRes {
    let dir = match cx.writable(&a.dir) {
        Ok(oid) => oid,
        Err(no) => return cx.refuse(no),
    };
    match &a.name[..] {
        b"." => return Res::Fail(NfsStat3::Inval, cx.after(dir)),
        b".." => return Res::Fail(NfsStat3::Exist, cx.after(dir)),
        _ => {}
    }
    if cx.first_reply().await.is_some() {
        return Res::Ok(cx.after(dir));
    }
    match cx.vfs.rmdir(cx.ctx(), dir, &a.name).await {
        Ok(wcc) => Res::Ok(convert::wcc(&wcc)),
        Err(e) => Res::Fail(convert::status(e.kind), cx.unchanged(dir, e.kind)),
    }
}

/// RFC 1813 §3.3.14: neither name may be `.` or `..`.
pub async fn rename(cx: &Cx<'_>, a: RenameArgs) -> RenameRes {
    let (from, to) = match (cx.writable(&a.from.dir), cx.writable(&a.to.dir)) {
        (Ok(from), Ok(to)) => (from, to),
        (from, to) => return rename_refused(cx, from, to),
    };
    let after = || RenameWcc { fromdir_wcc: cx.after(from), todir_wcc: cx.after(to) };
    if is_dots(&a.from.name) || is_dots(&a.to.name) {
        return Res::Fail(NfsStat3::Inval, after());
    }
    if cx.first_reply().await.is_some() {
        return Res::Ok(after());
    }
    match cx.vfs.rename(cx.ctx(), from, &a.from.name, to, &a.to.name, vfs::RenameHow::Replace).await {
        Ok(ok) => Res::Ok(RenameWcc { fromdir_wcc: convert::wcc(&ok.from), todir_wcc: convert::wcc(&ok.to) }),
        Err(e) => {
            let (fromdir_wcc, todir_wcc) = (cx.unchanged(from, e.kind), cx.unchanged(to, e.kind));
            Res::Fail(convert::status(e.kind), RenameWcc { fromdir_wcc, todir_wcc })
        }
    }
}

/// At least one of both directories was refused; the first reason counts.
fn rename_refused(cx: &Cx<'_>, from: Result<Oid, No>, to: Result<Oid, No>) -> RenameRes {
    let reason = from.err().or(to.err()).map_or(NfsStat3::ServerFault, |no| no.status);
    let wcc = |dir: Result<Oid, No>| match dir.map_or_else(|no| no.known, Some) {
        Some(oid) => cx.after(oid),
        None => WccData::default(),
    };
    Res::Fail(reason, RenameWcc { fromdir_wcc: wcc(from), todir_wcc: wcc(to) })
}

pub async fn link(cx: &Cx<'_>, a: LinkArgs) -> LinkRes {
    let object = match cx.object(&a.file) {
        Ok(oid) => oid,
        Err(status) => return refused(status),
    };
    let attributes = || cx.vfs.peek(object).as_ref().map(convert::attr);
    let dir = match place(cx, &a.link) {
        Ok(oid) => oid,
        Err(no) => {
            let linkdir_wcc = no.known.map_or_else(WccData::default, |dir| cx.after(dir));
            return Res::Fail(no.status, LinkWcc { file_attributes: attributes(), linkdir_wcc });
        }
    };
    if cx.first_reply().await.is_some() {
        return Res::Ok(LinkWcc { file_attributes: attributes(), linkdir_wcc: cx.after(dir) });
    }
    match cx.vfs.link(cx.ctx(), object, dir, &a.link.name).await {
        Ok(ok) => Res::Ok(LinkWcc {
            file_attributes: ok.attr.as_ref().map(convert::attr),
            linkdir_wcc: convert::wcc(&ok.dir),
        }),
        Err(e) => {
            let (file_attributes, linkdir_wcc) = (cx.seen(object, e.kind), cx.unchanged(dir, e.kind));
            Res::Fail(convert::status(e.kind), LinkWcc { file_attributes, linkdir_wcc })
        }
    }
}

/// Answers an encoded `READDIR3res`.
pub async fn readdir(cx: &Cx<'_>, a: ReaddirArgs) -> Writer {
    let count = a.count.min(DIR_REPLY_MAX);
    let (page, attr) = match page(cx, &a.dir, a.cookie, count / ENTRY_MIN).await {
        Ok(found) => found,
        Err((status, attr)) => return dir_failure(status, attr),
    };
    let mut w = Writer::new();
    let Ok(out) = DirWriter::readdir(&mut w, &attr, VERIFIER, count) else {
        return dir_failure(NfsStat3::TooSmall, attr);
    };
    if fill(cx, out, &page) { w } else { dir_failure(NfsStat3::TooSmall, attr) }
}

/// Answers an encoded `READDIRPLUS3res`. Entries whose attributes would have to be fetched go without
/// attributes and handle: the client asks for those it needs.
pub async fn readdirplus(cx: &Cx<'_>, a: ReaddirplusArgs) -> Writer {
    let max = a.maxcount.min(DIR_REPLY_MAX);
    let entries = (max / ENTRY_PLUS_MIN).min(a.dircount / ENTRY_MIN);
    let (page, attr) = match page(cx, &a.dir, a.cookie, entries).await {
        Ok(found) => found,
        Err((status, attr)) => return dir_failure(status, attr),
    };
    let mut w = Writer::new();
    let Ok(out) = DirWriter::readdirplus(&mut w, &attr, VERIFIER, a.dircount, max) else {
        return dir_failure(NfsStat3::TooSmall, attr);
    };
    if fill(cx, out, &page) { w } else { dir_failure(NfsStat3::TooSmall, attr) }
}

/// As many entries as may fit, and at least one.
async fn page(
    cx: &Cx<'_>,
    dir: &NfsFh3,
    after: u64,
    entries: u32,
) -> Result<(DirPage, PostOpAttr), (NfsStat3, PostOpAttr)> {
    let dir = cx.object(dir).map_err(|status| (status, None))?;
    match cx.vfs.readdir(cx.ctx(), dir, after, entries.max(1) as usize).await {
        Ok(page) => {
            let attr = convert::attr(&page.dir);
            Ok((page, Some(attr)))
        }
        Err(e) => Err((convert::status(e.kind), cx.seen(dir, e.kind))),
    }
}

/// Writes entries until one does not fit; false if that is the first one.
fn fill(cx: &Cx<'_>, mut out: DirWriter<'_>, page: &DirPage) -> bool {
    for entry in &page.entries {
        let attributes = entry.attr.as_ref().map(convert::attr);
        let handle = attributes.and_then(|_| cx.handle(entry.oid));
        let plus = EntryPlus { attributes: attributes.as_ref(), handle: handle.as_ref() };
        let named = DirEntry { fileid: entry.fileid, name: &entry.name, cookie: entry.cookie };
        if out.entry_plus(&named, &plus).is_err() {
            let some = out.entries() > 0;
            out.finish(false);
            return some;
        }
    }
    out.finish(page.eof);
    true
}

fn dir_failure(status: NfsStat3, attr: PostOpAttr) -> Writer {
    let mut w = Writer::new();
    Res::<(), PostOpAttr>::Fail(status, attr).encode(&mut w);
    w
}
