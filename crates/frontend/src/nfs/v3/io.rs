//! Bytes: READ, WRITE, COMMIT. Payloads are never copied here: READ hands the engine's segments to the
//! socket, WRITE hands the engine a slice of the receive buffer.

use super::{Cx, convert, refused};
use crate::limits::{FILE_SIZE_MAX, IO_MAX};
use oncrpc::nfs3::{
    CommitArgs, CommitOk, CommitRes, NfsStat3, ReadArgs, ReadOk, ReadRes, Res, WriteArgs, WriteOk, WriteRes,
};
use oncrpc::xdr::{Reader, Xdr};

/// How many bytes a READ may answer; 0 for arguments that cannot be decoded.
pub fn read_hint(mut args: Reader) -> usize {
    ReadArgs::decode(&mut args).map_or(0, |a| a.count.min(IO_MAX) as usize)
}

pub async fn read(cx: &Cx<'_>, a: ReadArgs) -> ReadRes {
    let oid = match cx.object(&a.file) {
        Ok(oid) => oid,
        Err(status) => return refused(status),
    };
    match cx.vfs.read(cx.ctx(), oid, a.offset, a.count.min(IO_MAX)).await {
        Ok(ok) => {
            Res::Ok(ReadOk { file_attributes: Some(convert::attr(&ok.attr)), eof: ok.eof, data: ok.data })
        }
        Err(e) => Res::Fail(convert::status(e.kind), cx.seen(oid, e.kind)),
    }
}

/// More than `wtmax` is taken in part, which RFC 1813 §3.3.7 allows and clients continue.
pub async fn write(cx: &Cx<'_>, a: WriteArgs) -> WriteRes {
    let oid = match cx.writable(&a.file) {
        Ok(oid) => oid,
        Err(no) => return cx.refuse(no),
    };
    if a.count as usize != a.data.len() {
        return Res::Fail(NfsStat3::Inval, cx.after(oid));
    }
    let data = a.data.slice(..a.data.len().min(IO_MAX as usize));
    if a.offset.checked_add(data.len() as u64).is_none_or(|end| end > FILE_SIZE_MAX) {
        return Res::Fail(NfsStat3::Fbig, cx.after(oid));
    }
    match cx.vfs.write(cx.ctx(), oid, a.offset, data, convert::stability(a.stable)).await {
        Ok(ok) => Res::Ok(WriteOk {
            file_wcc: convert::wcc(&ok.wcc),
            count: ok.count,
            committed: convert::committed(ok.stability),
            verf: ok.verifier,
        }),
        Err(e) => Res::Fail(convert::status(e.kind), cx.unchanged(oid, e.kind)),
    }
}

/// The engine makes the whole file stable, which is more than any range asks for.
pub async fn commit(cx: &Cx<'_>, a: CommitArgs) -> CommitRes {
    let oid = match cx.object(&a.file) {
        Ok(oid) => oid,
        Err(status) => return refused(status),
    };
    match cx.vfs.commit(cx.ctx(), oid).await {
        Ok(ok) => Res::Ok(CommitOk { file_wcc: convert::wcc(&ok.wcc), verf: ok.verifier }),
        Err(e) => Res::Fail(convert::status(e.kind), cx.unchanged(oid, e.kind)),
    }
}
