//! Objects and file systems: GETATTR, SETATTR, ACCESS, READLINK, FSSTAT, FSINFO, PATHCONF.

use super::{Cx, convert, refused};
use crate::limits::{DIR_REPLY_MAX, FILE_SIZE_MAX, IO_MAX, IO_MULTIPLE, LINK_MAX, NAME_MAX};
use oncrpc::nfs3::{
    AccessArgs, AccessOk, AccessRes, FSF3_CANSETTIME, FSF3_HOMOGENEOUS, FSF3_LINK, FSF3_SYMLINK, FsinfoArgs,
    FsinfoOk, FsinfoRes, FsstatArgs, FsstatOk, FsstatRes, GetattrArgs, GetattrOk, GetattrRes, NfsTime3,
    PathconfArgs, PathconfOk, PathconfRes, ReadlinkArgs, ReadlinkOk, ReadlinkRes, Res, SetattrArgs,
    SetattrRes, WccData,
};
use vfs::{AccessMask, Oid};

pub async fn getattr(cx: &Cx<'_>, a: GetattrArgs) -> GetattrRes {
    let oid = match cx.object(&a.object) {
        Ok(oid) => oid,
        Err(status) => return refused(status),
    };
    match cx.vfs.getattr(cx.ctx(), oid).await {
        Ok(attr) => Res::Ok(GetattrOk { obj_attributes: convert::attr(&attr) }),
        Err(e) => Res::Fail(convert::status(e.kind), ()),
    }
}

pub async fn setattr(cx: &Cx<'_>, a: SetattrArgs) -> SetattrRes {
    let oid = match cx.writable(&a.object) {
        Ok(oid) => oid,
        Err(no) => return cx.refuse(no),
    };
    if cx.first_reply().await.is_some() {
        return Res::Ok(cx.after(oid));
    }
    match set(cx, oid, &a).await {
        Ok(wcc) => Res::Ok(wcc),
        Err(e) => Res::Fail(convert::status(e.kind), cx.unchanged(oid, e.kind)),
    }
}

async fn set(cx: &Cx<'_>, oid: Oid, a: &SetattrArgs) -> vfs::Result<WccData> {
    let guard = a.guard.map(convert::time_from).transpose()?;
    let set = convert::set_attrs(&a.new_attributes)?;
    Ok(convert::wcc(&cx.vfs.setattr(cx.ctx(), oid, set, guard).await?))
}

pub async fn access(cx: &Cx<'_>, a: AccessArgs) -> AccessRes {
    let oid = match cx.object(&a.object) {
        Ok(oid) => oid,
        Err(status) => return refused(status),
    };
    let mut want = convert::access_mask(a.access);
    if cx.read_only {
        want = AccessMask { modify: false, extend: false, delete: false, ..want };
    }
    match cx.vfs.access(cx.ctx(), oid, want).await {
        Ok((granted, attr)) => Res::Ok(AccessOk {
            obj_attributes: Some(convert::attr(&attr)),
            access: convert::access_bits(granted) & convert::access_bits(want),
        }),
        Err(e) => Res::Fail(convert::status(e.kind), cx.seen(oid, e.kind)),
    }
}

pub async fn readlink(cx: &Cx<'_>, a: ReadlinkArgs) -> ReadlinkRes {
    let oid = match cx.object(&a.object) {
        Ok(oid) => oid,
        Err(status) => return refused(status),
    };
    match cx.vfs.readlink(cx.ctx(), oid).await {
        Ok((data, attr)) => Res::Ok(ReadlinkOk { symlink_attributes: Some(convert::attr(&attr)), data }),
        Err(e) => Res::Fail(convert::status(e.kind), cx.seen(oid, e.kind)),
    }
}

pub async fn fsstat(cx: &Cx<'_>, a: FsstatArgs) -> FsstatRes {
    let oid = match cx.object(&a.object) {
        Ok(oid) => oid,
        Err(status) => return refused(status),
    };
    match cx.vfs.statfs(cx.ctx(), oid).await {
        Ok(space) => Res::Ok(FsstatOk {
            obj_attributes: cx.vfs.peek(oid).as_ref().map(convert::attr),
            tbytes: space.total,
            fbytes: space.free,
            abytes: space.available,
            tfiles: space.files,
            ffiles: space.files_free,
            afiles: space.files_free,
            invarsec: 0,
        }),
        Err(e) => Res::Fail(convert::status(e.kind), cx.seen(oid, e.kind)),
    }
}

pub async fn fsinfo(cx: &Cx<'_>, a: FsinfoArgs) -> FsinfoRes {
    let oid = match cx.object(&a.object) {
        Ok(oid) => oid,
        Err(status) => return refused(status),
    };
    match cx.vfs.getattr(cx.ctx(), oid).await {
        Ok(attr) => Res::Ok(FsinfoOk {
            obj_attributes: Some(convert::attr(&attr)),
            rtmax: IO_MAX,
            rtpref: IO_MAX,
            rtmult: IO_MULTIPLE,
            wtmax: IO_MAX,
            wtpref: IO_MAX,
            wtmult: IO_MULTIPLE,
            dtpref: DIR_REPLY_MAX,
            maxfilesize: FILE_SIZE_MAX,
            time_delta: NfsTime3 { seconds: 0, nseconds: 1 },
            properties: FSF3_LINK | FSF3_SYMLINK | FSF3_HOMOGENEOUS | FSF3_CANSETTIME,
        }),
        Err(e) => Res::Fail(convert::status(e.kind), cx.seen(oid, e.kind)),
    }
}

pub async fn pathconf(cx: &Cx<'_>, a: PathconfArgs) -> PathconfRes {
    let oid = match cx.object(&a.object) {
        Ok(oid) => oid,
        Err(status) => return refused(status),
    };
    match cx.vfs.getattr(cx.ctx(), oid).await {
        Ok(attr) => Res::Ok(PathconfOk {
            obj_attributes: Some(convert::attr(&attr)),
            linkmax: LINK_MAX,
            name_max: NAME_MAX,
            no_trunc: true,
            chown_restricted: true,
            case_insensitive: false,
            case_preserving: true,
        }),
        Err(e) => Res::Fail(convert::status(e.kind), cx.seen(oid, e.kind)),
    }
}
