//! Several operations, and the same ones again.

use super::{Bench, THEN, data_piece};
use crate::op::{New, Op, Outcome, Payload, Piece, Placed, Staged};
use crate::{Copied, ErrorKind, Loc};
use bytes::Bytes;

fn is_done(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Done(_))
}

pub(super) async fn a_batch_stops_at_the_first_failure(b: Bench) {
    b.write_outside("taken", b"theirs");
    let ops = ["a", "taken", "c"].map(|n| b.placed(b.create(n, New::File, 0o644)));
    let outcomes = b.subject.home.apply(ops.to_vec()).await.unwrap();
    assert_eq!(outcomes.len(), 2);
    assert!(is_done(&outcomes[0]) && matches!(outcomes[1], Outcome::Conflict(Some(_))));
    assert_eq!(b.names(), ["a", "taken"]);
    assert!(b.subject.home.apply(Vec::new()).await.unwrap().is_empty());
}

pub(super) async fn a_repeated_operation_has_its_first_outcome(b: Bench) {
    let create = b.placed(b.create("f", New::File, 0o644));
    let first = b.apply(create.clone()).await;
    assert!(is_done(&first));
    let write = b.placed(b.write("f", None, 0, b"abc"));
    assert!(is_done(&b.apply(write.clone()).await));
    b.write_outside("f", b"changed since");
    assert_eq!(b.apply(create).await, first);
    assert!(is_done(&b.apply(write).await));
    assert_eq!(b.read_outside("f").unwrap(), b"changed since", "it is not executed twice");
}

/// After the home forgot its outcomes: the same change under another number, as resent.
pub(super) async fn a_resent_operation_finds_itself_done(b: Bench) {
    let again = |op: Op<Loc, Payload>| Placed { resent: true, ..b.placed(op) };
    b.done(b.create("f", New::File, 0o644)).await;
    assert!(is_done(&b.apply(again(b.create("f", New::File, 0o644))).await));
    b.write_outside("g", b"0123456789");
    let base = Some(b.version("g").await);
    let write = b.write("g", base, 3, b"xyz");
    b.done(write.clone()).await;
    assert!(is_done(&b.apply(again(write)).await));
    assert_eq!(b.read_outside("g").unwrap(), b"012xyz6789");
    if b.posix() {
        let rename = b.rename("g", "h", None).await;
        b.done(rename.clone()).await;
        assert!(is_done(&b.apply(again(rename)).await));
    }
    b.done(b.remove("f", None)).await;
    assert!(is_done(&b.apply(again(b.remove("f", None))).await));
}

pub(super) async fn staged_bytes_are_used_once(b: Bench) {
    if !b.subject.home.attach().await.unwrap().stages {
        return;
    }
    b.done(b.create("f", New::File, 0o644)).await;
    let mut placed = b.placed(b.write("f", None, 0, b""));
    let staged = |at, len| Piece::Data(at, Payload::Staged(Staged { op: placed.id, at, len }));
    let op = b.pieces("f", None, vec![staged(0, 2), data_piece(2, b"--"), staged(4, 2)]);
    placed.op = op;
    let stage = |at, data: &'static [u8]| b.subject.home.stage(placed.id, at, Bytes::from_static(data));
    stage(0, b"ab").await.unwrap();
    let error = b.subject.home.apply(vec![placed.clone()]).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::NotStaged);
    assert_eq!(b.read_outside("f").unwrap(), b"", "without effect");
    stage(4, b"ef").await.unwrap();
    stage(2, b"cd").await.unwrap();
    assert!(is_done(&b.apply(placed.clone()).await));
    assert_eq!(b.read_outside("f").unwrap(), b"ab--ef");
    placed.id = b.placed(b.remove("f", None)).id;
    assert_eq!(b.subject.home.apply(vec![placed]).await.unwrap_err().kind, ErrorKind::NotStaged);
}

pub(super) async fn bytes_that_are_there_are_staged_if_they_are_meant(b: Bench) {
    let home = &b.subject.home;
    b.write_outside("source", b"0123456789");
    b.done(b.create("f", New::File, 0o644)).await;
    let mut placed = b.placed(b.write("f", None, 0, b""));
    let staged = |at, len| Piece::Data(at, Payload::Staged(Staged { op: placed.id, at, len }));
    placed.op = b.pieces("f", None, vec![staged(0, 9)]);
    let part = |at, from, bytes: &[u8]| Copied {
        at,
        from,
        len: bytes.len() as u32,
        hash: *blake3::hash(bytes).as_bytes(),
    };
    let places = vec![b.at("missing"), b.at(""), b.at("source")];
    let copy = |parts| home.copy(placed.id, places.clone(), parts);
    let first =
        copy(vec![part(0, 5, b"567"), part(3, 0, b"012"), part(6, 1, b"xyz"), part(6, 8, b"89!")]).await;
    match first {
        Err(e) if e.kind == ErrorKind::Unsupported => return,
        first => first.unwrap(),
    }
    let missed = home.apply(vec![placed.clone()]).await.unwrap_err();
    assert_eq!(missed.kind, ErrorKind::NotStaged, "other bytes are none");
    assert_eq!(b.read_outside("f").unwrap(), b"", "without effect");
    home.stage(placed.id, 6, Bytes::from_static(b"ab")).await.unwrap();
    copy(vec![part(8, 9, b"9"), part(0, u64::MAX - 1, b"no")]).await.unwrap();
    assert!(is_done(&b.apply(placed).await));
    assert_eq!(b.read_outside("f").unwrap(), b"567012ab9");
}

pub(super) async fn nothing_of_ours_stays(b: Bench) {
    b.write_outside("f", b"0123456789");
    let base = Some(b.version("f").await);
    b.done(b.write("f", base, 0, b"x")).await;
    b.write_outside("f", b"theirs");
    b.conflict(b.write("f", base, 0, b"y")).await;
    b.done(b.remove("f", Some(b.version("f").await))).await;
    assert!(b.names().is_empty());
}

pub(super) async fn the_applied_number_moves(b: Bench) {
    if !b.posix() {
        return;
    }
    let create = b.placed(b.create("f", New::File, 0o644));
    assert!(is_done(&b.apply(create.clone()).await));
    let seen = b.subject.home.stat(&b.at("f")).await.unwrap();
    assert!(seen.applied >= create.id.seq);
    assert_eq!(seen.attr.mtime, THEN);
    assert!(b.subject.home.list(&b.at(""), None, 10).await.unwrap().applied >= create.id.seq);
}
