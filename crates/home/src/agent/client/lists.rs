//! What goes in several requests, because one does not take all of it.

use crate::limits::agent::{APPLY_MAX, COPY_BYTES, COPY_PARTS};
use crate::{Copied, Placed};
use oncrpc::xdr::{Writer, Xdr};

/// Lists of parts that one COPY takes.
pub(super) fn in_requests(parts: Vec<Copied>) -> Vec<Vec<Copied>> {
    lists(parts, (COPY_PARTS, COPY_BYTES), |part| part.len.into())
}

/// Lists of operations of at most [`APPLY_MAX`] bytes, or of a single operation.
pub(super) fn batches(ops: Vec<Placed>) -> Vec<Vec<Placed>> {
    let size = |op: &Placed| {
        let mut w = Writer::new();
        op.encode(&mut w);
        w.len() as u64
    };
    lists(ops, (usize::MAX, APPLY_MAX as u64), size)
}

/// Lists of at most so many things of so many bytes together, or of a single one, in their order.
fn lists<T>(all: Vec<T>, (most, bytes): (usize, u64), size: impl Fn(&T) -> u64) -> Vec<Vec<T>> {
    let mut out: Vec<Vec<T>> = Vec::new();
    let mut room = 0;
    for one in all {
        let len = size(&one);
        match out.last_mut() {
            Some(list) if len <= room && list.len() < most => {
                room -= len;
                list.push(one);
            }
            _ => {
                room = bytes.saturating_sub(len);
                out.push(vec![one]);
            }
        }
    }
    out
}
