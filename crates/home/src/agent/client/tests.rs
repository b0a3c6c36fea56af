//! Tests of the agent's client over a pipe.

mod again;
mod wide;

use super::super::server::tests::{Gated, start};
use super::super::verbs::JOINS;
use super::*;
use crate::limits::agent::{APPLY_MAX, CHANGES_MAX, COPY_PARTS, READ_PART};
use crate::{HomePath, Link, Mark, Op, SetAttr, Time, Turn};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::UnixStream;

fn loc(path: &[u8]) -> Loc {
    Loc { path: HomePath::parse(path).unwrap(), id: None }
}

pub(super) async fn session_on(stream: std::os::unix::net::UnixStream) -> (Arc<Session>, Arc<Meter>) {
    stream.set_nonblocking(true).unwrap();
    let (reader, writer) = UnixStream::from_std(stream).unwrap().into_split();
    let meter = Arc::new(Meter::default());
    (Arc::new(Session::start(reader, writer, None, meter.clone()).await.unwrap()), meter)
}

async fn session() -> (Arc<Session>, Arc<Meter>, Arc<Gated>) {
    let home = Arc::new(Gated::default());
    let (stream, _server) = start(home.clone());
    let (session, meter) = session_on(stream).await;
    (session, meter, home)
}

fn op(seq: u64) -> Placed {
    Placed {
        id: OpId { gateway: 1, volume: 1, seq },
        time: Time::default(),
        plain: false,
        resent: false,
        op: Op::SetAttr { object: loc(b"x"), base: None, set: SetAttr::default() },
    }
}

#[tokio::test]
async fn every_verb_goes_there_and_back() {
    let (s, _, home) = session().await;
    assert_eq!(s.attach().await.unwrap().uid, 7);
    assert_eq!(s.stat(&loc(b"abcd")).await.unwrap().attr.size, 4);
    assert_eq!(s.stat(&loc(b"missing")).await.unwrap_err().kind, ErrorKind::NotFound);
    assert_eq!(s.list(&loc(b""), None, 3).await.unwrap().entries.len(), 3);
    let chunk = s.read(&loc(b"f"), 3, 700_000).await.unwrap();
    assert!(chunk.data.len() == 700_000 && chunk.data.iter().all(|b| *b == 3));
    assert_eq!(&s.readlink(&loc(b"l")).await.unwrap()[..], b"target");
    assert_eq!(s.statfs(&loc(b"f")).await.unwrap_err().kind, ErrorKind::Io);
    s.stage(op(1).id, 10, vec![1; 300_000].into()).await.unwrap();
    let part = Copied { at: 0, from: 3, len: 10, hash: [0; 32] };
    s.copy(op(1).id, vec![loc(b"f")], vec![part]).await.unwrap();
    let bare = s.list(&loc(b""), None, 11).await.unwrap().entries.iter().map(|e| e.bare).collect::<Vec<_>>();
    assert!(
        bare.len() == 11 && bare.iter().enumerate().all(|(i, bare)| *bare == i.is_multiple_of(3)),
        "{bare:?}"
    );
    let name = XattrName::new(b"user.a").unwrap();
    let xattrs = s.xattrs(&loc(b"f"), Some(&name)).await.unwrap();
    assert_eq!((xattrs.applied, &xattrs.list[0].name), (3, &name));
    home.open();
    assert_eq!(s.apply(vec![op(1)]).await.unwrap(), [Outcome::Refused(ErrorKind::Busy)]);
}

/// An agent that greets as it should, without any feature, and then answers each request with `lie`.
async fn liar(lie: impl Fn(Header) -> Vec<Frame> + Send + 'static) -> Arc<Session> {
    liar_with(0, lie).await
}

async fn liar_with(features: u64, lie: impl Fn(Header) -> Vec<Frame> + Send + 'static) -> Arc<Session> {
    use std::io::{Read, Write};
    let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    std::thread::spawn(move || {
        theirs.write_all(&frame::preamble()).unwrap();
        theirs.read_exact(&mut [0; frame::PREAMBLE_LEN]).unwrap();
        let mut head = [0; HEADER_LEN];
        let mut greeted = false;
        while theirs.read_exact(&mut head).is_ok() {
            let header = Header::decode(&head).unwrap();
            theirs.read_exact(&mut vec![0; header.length as usize]).unwrap();
            let greeting = Reply::Hello(Accept { features, ..Accept::nothing() });
            let frames =
                if std::mem::replace(&mut greeted, true) { lie(header) } else { one(header, &greeting) };
            for frame in frames {
                // The client may have hung up already.
                let _ = theirs.write_all(&frame.to_vec());
            }
        }
    });
    session_on(ours).await.0
}

fn one(header: Header, reply: &Reply) -> Vec<Frame> {
    vec![Frame::new(Type::Reply, header.class, header.id, vec![reply.to_bytes()])]
}

#[tokio::test]
async fn a_long_read_is_of_one_version() {
    let asked = AtomicU64::new(0);
    // The file changes while its parts are read, and not any more when it is read in one.
    let s = liar(move |header| {
        let request = asked.fetch_add(1, Ordering::Relaxed);
        let size = 10 + request.min(2);
        let attr = crate::Attr { size, ..super::super::server::tests::attr(3) };
        one(header, &Reply::Read(Chunk { attr, data: vec![size as u8; 10].into() }))
    })
    .await;
    let chunk = s.read(&loc(b"f"), 0, READ_PART + 10).await.unwrap();
    assert_eq!((chunk.attr.size, &chunk.data[..]), (12, &[12; 10][..]));
}

#[tokio::test]
async fn damaged_bytes_are_never_given_out_and_end_the_session() {
    use super::super::verbs::{CheckedChunk, check};
    for damage in [false, true] {
        let s = liar_with(CHECKS, move |header| {
            let data = Bytes::from_static(b"0123456789");
            let check = check(&[if damage { b"0123456780" } else { &data[..] }]);
            let chunk = Chunk { attr: super::super::server::tests::attr(3), data };
            one(header, &Reply::Readc(CheckedChunk { chunk, check }))
        })
        .await;
        let read = s.read(&loc(b"f"), 0, 10).await;
        assert_eq!(read.as_ref().map(|_| ()).map_err(|e| e.kind).is_err(), damage);
        assert_eq!(s.status().damaged, u64::from(damage));
        if damage {
            assert_eq!(read.unwrap_err().kind, ErrorKind::Unreachable, "it is asked again");
            assert_eq!(s.stat(&loc(b"f")).await.unwrap_err().kind, ErrorKind::Unreachable);
        }
    }
}

#[tokio::test]
async fn what_arrives_damaged_at_the_agent_is_no_refusal_and_ends_the_session() {
    let damaged = || Reply::Failed(Failure(ErrorKind::Damaged.into()));
    let s = liar_with(0, move |header| one(header, &damaged())).await;
    assert_eq!(s.apply(vec![op(1)]).await.unwrap_err().kind, ErrorKind::Unreachable, "it is sent again");
    assert_eq!(s.status().damaged, 1);
    assert!(matches!(s.status().link, Link::Down(_)));
}

#[tokio::test]
async fn what_cannot_be_true_is_refused() {
    let good = super::super::server::tests::attr(3);
    let bad_size = crate::Attr { size: 1 << 63, ..good };
    let bad_time = crate::Attr { mtime: Time { sec: 0, nsec: u32::MAX }, ..good };
    let entry =
        |name: &[u8], attr| crate::Entry { name: Name::new(name).unwrap(), attr, target: None, bare: false };
    let page = |entries| Reply::List(Page { applied: 0, dir: good, entries, more: false });
    let seen = |attr| Reply::Stat(vec![super::super::verbs::StatResult::Seen(Seen { applied: 0, attr })]);
    let done = |attr| Outcome::Done(crate::Done { attr: Some(attr), dirs: vec![] });
    let lies = [
        seen(bad_size),
        seen(bad_time),
        Reply::Stat(vec![]),
        page(vec![entry(b"a", Some(bad_size))]),
        page(vec![entry(b"a", None), entry(b"a", None)]),
        page(vec![entry(b"b", None), entry(b"a", None)]),
        page(vec![entry(b"a", None), entry(b"b", None), entry(b"c", None)]),
        Reply::Read(Chunk { attr: good, data: vec![0; 11].into() }),
        Reply::Read(Chunk { attr: bad_size, data: Bytes::new() }),
        Reply::Readlink(vec![b'x'; 5000].into()),
        Reply::Readlink(Bytes::from_static(b"a\0b")),
        Reply::Apply(vec![]),
        Reply::Apply(vec![done(good), done(good)]),
        Reply::Apply(vec![done(bad_time)]),
        Reply::Stage(7),
    ];
    for lie in lies {
        let text = format!("{lie:?}");
        let said = lie.clone();
        let s = liar(move |header| one(header, &said)).await;
        let asked = loc(b"x");
        let answers = [
            s.stat(&asked).await.err(),
            s.list(&asked, None, 2).await.err(),
            s.read(&asked, 0, 10).await.err(),
            s.readlink(&asked).await.err(),
            s.apply(vec![op(1)]).await.err(),
        ];
        assert!(answers.iter().flatten().all(|e| e.kind == ErrorKind::Io), "{text}: {answers:?}");
        assert_eq!(answers.iter().flatten().count(), 5, "{text}");
    }
}

#[tokio::test]
async fn what_can_wait_goes_behind_what_is_waited_for() {
    let s = liar(|header| {
        let kind = if header.class == Class::Bulk { ErrorKind::NoSpace } else { ErrorKind::Busy };
        one(header, &Reply::Failed(super::super::verbs::Failure(kind.into())))
    })
    .await;
    let x = loc(b"x");
    let later = [s.read_in(Turn::Later, &x, 0, 3).await.err(), s.watch_later(&x, 3, 1).await.err()];
    let now = [s.read(&x, 0, 3).await.err(), s.watch(&x, 3, 1).await.err()];
    assert_eq!(later.map(|e| e.unwrap().kind), [ErrorKind::NoSpace; 2]);
    assert_eq!(now.map(|e| e.unwrap().kind), [ErrorKind::Busy; 2]);
}

#[tokio::test]
async fn an_agent_of_before_is_not_asked_what_it_does_not_know() {
    let s = liar(|header| panic!("asked {header:?}")).await;
    let believed = crate::Believed { dir: loc(b"d"), mark: 1, digest: [0; 16] };
    assert!(!s.confirms());
    assert_eq!(s.confirm(vec![believed], false).await.unwrap_err().kind, ErrorKind::Unsupported);
}

#[tokio::test]
async fn a_question_does_not_wait_for_the_room_of_changes() {
    // It takes what is staged and is silent about it.
    let s = liar(|header| match header.class {
        Class::Bulk => Vec::new(),
        _ => one(header, &Reply::Failed(super::super::verbs::Failure(ErrorKind::Busy.into()))),
    })
    .await;
    let staging = s.clone();
    let more = vec![1; 2 * REQUESTS_MAX].into();
    let staged = tokio::spawn(async move { staging.stage(op(1).id, 0, more).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    let (x, patience) = (loc(b"x"), Duration::from_secs(20));
    let listed = tokio::time::timeout(patience, s.list(&x, None, 3)).await.expect("no answer to LIST");
    assert_eq!(listed.unwrap_err().kind, ErrorKind::Busy);
    let read = tokio::time::timeout(patience, s.read(&x, 0, 3)).await.expect("no answer to READ");
    assert_eq!(read.unwrap_err().kind, ErrorKind::Busy);
    assert!(!staged.is_finished());
    staged.abort();
}

#[tokio::test]
async fn an_old_agent_is_not_asked_for_attributes() {
    // It greets without the feature.
    let s = liar(|header| match header.class {
        Class::Data => one(header, &Reply::Apply(vec![Outcome::Refused(ErrorKind::Busy)])),
        _ => one(header, &Reply::Failed(super::super::verbs::Failure(ErrorKind::Io.into()))),
    })
    .await;
    assert_eq!(s.xattrs(&loc(b"f"), None).await.unwrap_err().kind, ErrorKind::Unsupported);
    let name = XattrName::new(b"user.a").unwrap();
    let set = Op::SetXattr { object: loc(b"x"), name, value: None, how: Default::default() };
    let set = Placed { op: set, ..op(2) };
    let refused = |kind| [Outcome::Refused(kind)];
    assert_eq!(s.apply(vec![set.clone(), op(3)]).await.unwrap(), refused(ErrorKind::Unsupported));
    assert_eq!(s.apply(vec![op(1), set]).await.unwrap(), refused(ErrorKind::Busy), "the rest still goes");
}

#[tokio::test]
async fn garbage_ends_the_session_and_answers_that_nobody_asked_for_do_not() {
    let good = Reply::Readlink(Bytes::from_static(b"target"));
    let s = liar(move |header| {
        let stray = |id| one(Header { id, ..header }, &Reply::Apply(vec![])).remove(0);
        [vec![stray(0), stray(u64::MAX), stray(header.id + 1)], one(header, &good)].concat()
    });
    assert_eq!(&s.await.readlink(&loc(b"x")).await.unwrap()[..], b"target");
    // Counts that the bytes do not have, cut and random bodies.
    let huge = Bytes::from_static(b"\0\0\0\x03\0\0\0\0\0\0\0\0\xff\xff\xff\xff");
    for body in [huge, Bytes::new(), Bytes::from_static(b"\xff\xff\xff\xff"), vec![0xa5; 1 << 16].into()] {
        let s = liar(move |h| vec![Frame::new(Type::Reply, h.class, h.id, vec![body.clone()])]).await;
        assert_eq!(s.list(&loc(b"x"), None, 9).await.unwrap_err().kind, ErrorKind::Io);
    }
    // Parts without end.
    let part = Bytes::from(vec![0; 1 << 20]);
    let s = liar(move |h| vec![Frame::new(Type::ReplyPart, h.class, h.id, vec![part.clone()]); 4]).await;
    assert_eq!(s.readlink(&loc(b"x")).await.unwrap_err().kind, ErrorKind::Unreachable);
}

#[tokio::test]
async fn concurrent_stats_are_one_round_trip() {
    let (s, meter, _) = session().await;
    let before = meter.round_trips.load(Ordering::Relaxed);
    let at = loc(b"abc");
    let all = futures_util::future::join_all((0..300).map(|_| s.stat(&at))).await;
    assert!(all.iter().all(|r| r.as_ref().is_ok_and(|seen| seen.attr.size == 3)));
    assert_eq!(meter.round_trips.load(Ordering::Relaxed) - before, 1);
    for _ in 0..3 {
        s.stat(&at).await.unwrap();
    }
    assert_eq!(meter.round_trips.load(Ordering::Relaxed) - before, 4);
}

#[tokio::test]
async fn a_broken_pipe_fails_everybody_as_unreachable() {
    let (s, _, _home) = session().await;
    let waiting = {
        let s = s.clone();
        tokio::spawn(async move { s.apply(vec![op(1)]).await })
    };
    tokio::time::sleep(Duration::from_millis(50)).await;
    s.shared.finish(&Error::new(ErrorKind::Unreachable, "cut"));
    assert_eq!(waiting.await.unwrap().unwrap_err().kind, ErrorKind::Unreachable);
    assert_eq!(s.stat(&loc(b"a")).await.unwrap_err().detail, "cut");
    assert_eq!(s.ended().await.detail, "cut");
    assert_eq!(s.status().link, Link::Down("cut".into()));
}

#[tokio::test]
async fn a_caller_that_goes_away_frees_its_place() {
    let (s, _, _home) = session().await;
    for _ in 0..3 * crate::limits::agent::IN_FLIGHT_MAX {
        let at = loc(b"f");
        let read = s.read(&at, 0, 10);
        let _ = tokio::time::timeout(Duration::from_micros(1), read).await;
    }
    assert_eq!(s.stat(&loc(b"abc")).await.unwrap().attr.size, 3);
    assert_eq!(s.shared.room[0].available_permits(), REQUESTS_MAX);
}

/// A peer that greets with these features and then says nothing but what is written to it.
async fn mute(features: u64) -> (Session, tokio::io::WriteHalf<tokio::io::DuplexStream>) {
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    let (mut heard, mut says) = tokio::io::split(theirs);
    let accept = Reply::Hello(Accept { features, ..Accept::nothing() });
    let reply = Frame::new(Type::Reply, Class::Control, 1, vec![accept.to_bytes()]);
    says.write_all(&frame::preamble()).await.unwrap();
    tokio::spawn(async move {
        let mut sink = [0; 1024];
        while heard.read(&mut sink).await.is_ok_and(|n| n > 0) {}
    });
    let (reader, writer) = tokio::io::split(ours);
    let session = Session::start(reader, writer, None, Arc::default());
    let greeting = async {
        // The answer has to come after the question.
        tokio::time::sleep(Duration::from_millis(100)).await;
        says.write_all(&reply.to_vec()).await.unwrap();
    };
    (tokio::join!(session, greeting).0.unwrap(), says)
}

#[tokio::test(start_paused = true)]
async fn silence_is_shown_and_then_ends_the_session() {
    let (s, _peer) = mute(0).await;
    assert_eq!(s.status().link, Link::Up);
    let begin = tokio::time::Instant::now();
    let at = loc(b"a");
    let call = s.stat(&at);
    tokio::pin!(call);
    assert!(tokio::time::timeout(Duration::from_secs(21), &mut call).await.is_err());
    assert_eq!(s.status().link, Link::Down("the home does not answer".into()));
    let error = call.await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unreachable);
    assert!(error.detail.contains("said nothing for 30 seconds"), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(45));
}

#[tokio::test(start_paused = true)]
async fn silence_ends_a_span_even_if_the_home_is_heard_again() {
    let (s, mut peer) = mute(super::super::verbs::FEATURES).await;
    let first = s.epoch().unwrap();
    tokio::time::sleep(Duration::from_secs(21)).await;
    assert_eq!((s.epoch(), s.status().watches), (None, false));
    let sign = Frame::new(Type::Notice, Class::Control, 0, Vec::new());
    peer.write_all(&sign.to_vec()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(s.epoch().unwrap() > first);
}

#[tokio::test]
async fn what_was_done_before_staged_bytes_were_missed_counts() {
    let done = Outcome::Done(crate::Done { attr: None, dirs: vec![] });
    let first = std::sync::atomic::AtomicU64::new(u64::MAX);
    let said = done.clone();
    let s = liar(move |header| {
        let _ = first.compare_exchange(u64::MAX, header.id, Ordering::Relaxed, Ordering::Relaxed);
        let missed = Reply::Failed(super::super::verbs::Failure(ErrorKind::NotStaged.into()));
        match first.load(Ordering::Relaxed) == header.id {
            true => one(header, &Reply::Apply(vec![said.clone()])),
            false => one(header, &missed),
        }
    });
    let long = |seq| {
        let data = crate::Piece::Data(0, crate::Payload::Inline(vec![0; APPLY_MAX].into()));
        Placed { op: Op::Write { file: loc(b"x"), base: None, pieces: vec![data] }, ..op(seq) }
    };
    let s = s.await;
    assert_eq!(s.apply(vec![long(1), long(2)]).await.unwrap(), [done]);
    assert_eq!(s.apply(vec![long(2)]).await.unwrap_err().kind, ErrorKind::NotStaged);
}

/// Answers no STAGE, or says why it keeps nothing; every APPLY misses something then.
fn keeps_nothing(says: bool) -> impl Fn(Header) -> Vec<Frame> {
    move |header| {
        let kind = match header.class {
            Class::Bulk if !says => return Vec::new(),
            Class::Bulk => ErrorKind::TooBig,
            _ => ErrorKind::NotStaged,
        };
        one(header, &Reply::Failed(super::super::verbs::Failure(kind.into())))
    }
}

#[tokio::test]
async fn an_operation_follows_what_is_staged_for_it_at_once() {
    let s = liar_with(ORDERED, keeps_nothing(false)).await;
    let more = Bytes::from(vec![1; 3 * STAGE_MAX]);
    let patience = Duration::from_secs(20);
    tokio::time::timeout(patience, s.stage(op(1).id, 0, more)).await.expect("no answer to STAGE").unwrap();
    assert_eq!(s.apply(vec![op(1)]).await.unwrap_err().kind, ErrorKind::NotStaged);
}

#[tokio::test]
async fn bytes_that_are_there_are_copied_without_a_wait_and_by_those_who_can() {
    let part = |at| Copied { at, from: 0, len: 1 << 20, hash: [0; 32] };
    let parts: Vec<Copied> = (0..40).map(|i| part(i << 20)).collect();
    let s = liar_with(ORDERED | COPIES, keeps_nothing(false)).await;
    let patience = Duration::from_secs(20);
    let copied = s.copy(op(1).id, vec![loc(b"f")], parts.clone());
    tokio::time::timeout(patience, copied).await.expect("no answer to COPY").unwrap();
    assert_eq!(s.apply(vec![op(1)]).await.unwrap_err().kind, ErrorKind::NotStaged);
    assert_eq!(in_requests(parts.clone()).iter().map(Vec::len).collect::<Vec<_>>(), [16, 16, 8]);
    let short = vec![Copied { len: 1, ..part(0) }; COPY_PARTS + 1];
    assert_eq!(in_requests(short).iter().map(Vec::len).collect::<Vec<_>>(), [COPY_PARTS, 1]);

    let s = liar_with(ORDERED, |_| panic!("it does not know COPY")).await;
    assert!(!s.copies());
    let refused = s.copy(op(1).id, vec![loc(b"f")], parts).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Unsupported);
}

#[tokio::test]
async fn why_staged_bytes_are_not_kept_is_told_by_their_operation() {
    let s = liar_with(ORDERED, keeps_nothing(true)).await;
    s.stage(op(1).id, 0, vec![1; 9].into()).await.unwrap();
    let missed = s.apply(vec![op(1)]).await.unwrap_err();
    assert_eq!((missed.kind, missed.detail), (ErrorKind::NotStaged, ErrorKind::TooBig.to_string()));
    let again = s.apply(vec![op(1)]).await.unwrap_err();
    assert_eq!(again.detail, ErrorKind::NotStaged.to_string());
}

#[tokio::test]
async fn an_agent_of_before_is_waited_for_until_it_keeps_what_is_staged() {
    let s = liar(keeps_nothing(true)).await;
    assert_eq!(s.stage(op(1).id, 0, vec![1; 9].into()).await.unwrap_err().kind, ErrorKind::TooBig);
}

#[test]
fn long_lists_of_changes_are_split() {
    let ops: Vec<_> = (0..20_000).map(op).collect();
    let size = ops[0].to_bytes().len();
    let split = batches(ops);
    assert_eq!(split.len(), (20_000 * size).div_ceil(APPLY_MAX / size * size));
    assert_eq!(split.concat().len(), 20_000);
}

/// Takes bytes from one socket to another, somewhat later.
fn carry(mut from: std::os::unix::net::UnixStream, mut to: std::os::unix::net::UnixStream) {
    use std::io::{Read, Write};
    std::thread::spawn(move || {
        let mut buffer = vec![0; 1 << 20];
        while let Ok(n @ 1..) = from.read(&mut buffer) {
            std::thread::sleep(PACK_FROM);
            if to.write_all(&buffer[..n]).is_err() {
                break;
            }
        }
    });
}

/// A pipe that is as long as one between machines.
fn far(stream: std::os::unix::net::UnixStream) -> std::os::unix::net::UnixStream {
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    carry(stream.try_clone().unwrap(), theirs.try_clone().unwrap());
    carry(theirs, stream);
    ours
}

#[tokio::test]
async fn what_goes_far_is_packed_both_ways() {
    let (stream, _server) = start(Arc::new(Gated::default()));
    let (s, meter) = session_on(far(stream)).await;
    assert_eq!(s.accept().codec, super::super::verbs::CODEC_LZ4);
    let page = s.list(&loc(b""), None, 200).await.unwrap();
    assert!(page.entries.iter().all(|e| e.target.as_ref().is_some_and(|t| t.len() == 4000)));
    let chunk = s.read(&loc(b"f"), 3, 1 << 20).await.unwrap();
    assert!(chunk.data.len() == 1 << 20 && chunk.data.iter().all(|b| *b == 3));
    s.stage(op(1).id, 0, vec![1; 1 << 20].into()).await.unwrap();
    s.readlink(&loc(b"l")).await.unwrap();
    let count = |bytes: &AtomicU64| bytes.load(Ordering::Relaxed);
    assert!(count(&meter.bytes_in) < 100_000, "{} bytes came", count(&meter.bytes_in));
    assert!(count(&meter.bytes_out) < 100_000, "{} bytes went", count(&meter.bytes_out));
}

#[tokio::test]
async fn an_agent_that_cannot_unpack_gets_nothing_packed() {
    let (flags, seen) = std::sync::mpsc::channel();
    let s = liar(move |header| {
        flags.send((header.flags, header.length)).unwrap();
        std::thread::sleep(2 * PACK_FROM);
        one(header, &Reply::Stage(1 << 17))
    })
    .await;
    s.stage(op(1).id, 0, vec![1; 1 << 17].into()).await.unwrap();
    let (flags, length) = seen.recv().unwrap();
    assert!(flags == 0 && length > 1 << 17);
}

#[tokio::test]
async fn an_answer_that_cannot_be_unpacked_ends_the_connection() {
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let (reader, writer) = tokio::io::split(ours);
    let bomb = tokio::spawn(async move {
        let (mut from, mut to) = tokio::io::split(theirs);
        to.write_all(&frame::preamble()).await.unwrap();
        from.read_exact(&mut [0; frame::PREAMBLE_LEN]).await.unwrap();
        let mut greeting =
            Reply::Hello(Accept { codec: super::super::verbs::CODEC_LZ4, ..Accept::nothing() });
        for _ in 0..2 {
            let mut head = [0; HEADER_LEN];
            from.read_exact(&mut head).await.unwrap();
            let header = Header::decode(&head).unwrap();
            from.read_exact(&mut vec![0; header.length as usize]).await.unwrap();
            let mut frame = one(header, &greeting).remove(0);
            if header.id == 2 {
                frame = Frame::new(Type::Reply, header.class, 2, vec![Bytes::from_static(b"\0\x20\0\0\x1f")]);
                frame.header.flags = super::super::codec::PACKED;
            }
            to.write_all(&frame.to_vec()).await.unwrap();
            greeting = Reply::Stage(0);
        }
    });
    let s = Session::start(reader, writer, None, Arc::new(Meter::default())).await.unwrap();
    let why = s.readlink(&loc(b"x")).await.unwrap_err();
    assert!(why.kind == ErrorKind::Unreachable && why.detail.contains("packed"), "{why:?}");
    bomb.await.unwrap();
}

#[tokio::test]
async fn heavy_requests_keep_their_order_and_light_ones_pass() {
    let mut table = Table::new(Arc::new(Wire::new(Arc::default())));
    let mut push = |weight: usize| {
        let (answer, _) = oneshot::channel();
        let body = Request::Readlink(loc(b"x")).to_bytes();
        table.push((Class::Bulk, Turn::Now), vec![body], weight, Waiter::One(answer)).unwrap()
    };
    let full = crate::limits::agent::WINDOW_FIRST;
    let ids: Vec<u64> = [full, full, 1, 0].into_iter().map(&mut push).collect();
    let mut batch = Vec::new();
    assert!(table.take_batch(&mut batch).is_some());
    let sent = |batch: &[Frame]| -> Vec<u64> { batch.iter().map(|frame| frame.header.id).collect() };
    assert_eq!(sent(&batch), [ids[0], ids[3]]);
    batch.clear();
    assert!(table.take_batch(&mut batch).is_none());
    assert!(table.arrived(ids[0], Bytes::new(), true).unwrap().is_some());
    assert!(table.take_batch(&mut batch).is_some());
    assert_eq!(sent(&batch), [ids[1], ids[2]]);
}

#[tokio::test]
async fn what_somebody_waits_for_goes_before_what_is_asked_for_ahead() {
    let mut table = Table::new(Arc::new(Wire::new(Arc::default())));
    let mut push = |turn| {
        let (answer, _) = oneshot::channel();
        let body = Request::Readlink(loc(b"x")).to_bytes();
        table.push((Class::Data, turn), vec![body], 1, Waiter::One(answer)).unwrap()
    };
    let ids = [Turn::Ahead, Turn::Now, Turn::Ahead, Turn::Now].map(&mut push);
    let mut batch = Vec::new();
    table.take_batch(&mut batch).unwrap();
    let sent: Vec<u64> = batch.iter().map(|frame| frame.header.id).collect();
    assert_eq!(sent, [1, 3, 0, 2].map(|n| ids[n]));
}

#[tokio::test]
async fn what_changes_in_a_watched_directory_is_told_over_the_pipe() {
    let temp = tempfile::tempdir().unwrap();
    std::fs::create_dir(temp.path().join("d")).unwrap();
    std::fs::write(temp.path().join("d/a"), b"one").unwrap();
    let root = std::os::unix::ffi::OsStrExt::as_bytes(temp.path().as_os_str());
    let (stream, _server) = start(Arc::new(crate::posix::Posix::open(root).unwrap().with_home_dir(root)));
    let (s, _) = session_on(stream).await;
    let watched = s.watch(&loc(b"d"), 10, 5).await.unwrap();
    assert_eq!((watched.page.entries.len(), watched.epoch), (1, s.epoch()));
    assert!(watched.epoch.is_some() && s.status().watches);
    std::fs::write(temp.path().join("d/a"), b"two").unwrap();
    let changes = tokio::time::timeout(Duration::from_secs(10), s.changes()).await.unwrap();
    assert_eq!(
        changes,
        [Changed { mark: 5.into(), names: vec![Name::new(b"a").unwrap()], ..Changed::default() }]
    );
    assert_eq!(s.epoch(), watched.epoch);
    assert_eq!(s.watch(&loc(b"missing"), 10, 6).await.unwrap_err().kind, ErrorKind::NotFound);
}

/// A tree with `d`, `d/sub` with three files, and a symbolic link to the latter.
fn tree(root: &std::path::Path) {
    std::fs::create_dir_all(root.join("d/sub")).unwrap();
    (0..3).for_each(|i| std::fs::write(root.join(format!("d/sub/f{i}")), b"one").unwrap());
    std::os::unix::fs::symlink("sub", root.join("d/link")).unwrap();
}

#[tokio::test]
async fn a_walk_goes_into_directories_and_what_it_came_to_is_told_of() {
    let temp = tempfile::tempdir().unwrap();
    tree(temp.path());
    let root = std::os::unix::ffi::OsStrExt::as_bytes(temp.path().as_os_str());
    let (stream, _server) = start(Arc::new(crate::posix::Posix::open(root).unwrap().with_home_dir(root)));
    let (s, _) = session_on(stream).await;
    let paths =
        |walked: &Walked| -> Vec<String> { walked.dirs.iter().map(|(at, _)| at.to_string()).collect() };
    let walk = |from: Vec<Loc>, bytes| s.walk(from, bytes, false);
    let walked = walk(vec![loc(b"d"), loc(b"missing")], 1 << 20).await.unwrap();
    assert_eq!((walked.came, paths(&walked)), (2, vec!["/d".to_string(), "/d/sub".to_string()]));
    let (_, sub) = &walked.dirs[1];
    assert_eq!(sub.page.digest(), s.list(&loc(b"d/sub"), None, 10).await.unwrap().digest());
    assert!(sub.epoch.is_some() && sub.epoch == s.epoch());
    std::fs::write(temp.path().join("d/sub/f1"), b"two").unwrap();
    let changes = tokio::time::timeout(Duration::from_secs(10), s.changes()).await.unwrap();
    let mark = Mark::Walked(sub.page.dir.id);
    assert_eq!(changes, [Changed { mark, names: vec![Name::new(b"f1").unwrap()], ..Changed::default() }]);
    let [dir, sub] = [0, 1].map(|i: usize| walked.dirs[i].1.page.to_bytes().len() as u32);
    // With room for one of them.
    let walked = walk(vec![loc(b"d"), loc(b"d/sub")], dir + sub).await.unwrap();
    assert_eq!((walked.came, paths(&walked)), (1, vec!["/d".to_string()]));
    // One that has no room at all is passed over.
    let walked = walk(vec![loc(b"d/sub"), loc(b"d")], sub).await.unwrap();
    assert_eq!((walked.came, paths(&walked)), (1, vec![]));
    assert_eq!(walk(vec![loc(b"d"); 65], 9).await.unwrap_err().kind, ErrorKind::Invalid);
}

#[tokio::test]
async fn of_a_walk_that_is_cut_off_nothing_comes() {
    let sent = Mutex::new(false);
    let s = liar_with(XATTRS | WATCHES | WALKS, move |header| {
        match std::mem::replace(&mut *sent.lock(), true) {
            // A part of the answer, and then a frame that no agent sends.
            false => {
                let part = Frame::new(
                    Type::ReplyPart,
                    header.class,
                    header.id,
                    vec![Bytes::from_static(b"\0\0\0\x12")],
                );
                vec![part, Frame::new(Type::News, Class::Metadata, 0, vec![Bytes::from_static(b"?")])]
            }
            true => vec![],
        }
    })
    .await;
    assert_eq!(s.walk(vec![loc(b"d")], 9, false).await.unwrap_err().kind, ErrorKind::Unreachable);
}

#[tokio::test]
async fn what_went_untold_begins_another_span() {
    let news = |news: News| Frame::new(Type::News, Class::Metadata, 0, vec![news.to_bytes()]);
    let changed = || Changed { mark: 1.into(), all: true, ..Changed::default() };
    let says = [News::Changed(vec![changed()]), News::Lost, News::Changed(vec![changed(); CHANGES_MAX + 1])];
    let said = Mutex::new(says.into_iter());
    let s = liar(move |header| {
        let failed = Reply::Failed(super::super::verbs::Failure(ErrorKind::NotFound.into()));
        let mut frames: Vec<Frame> = said.lock().next().map(news).into_iter().collect();
        frames.extend(one(header, &failed));
        frames
    })
    .await;
    let first = s.shared.told.epoch().unwrap();
    let _ = s.readlink(&loc(b"x")).await;
    assert_eq!((s.changes().await, s.shared.told.epoch()), (vec![changed()], Some(first)));
    let _ = s.readlink(&loc(b"x")).await;
    assert_eq!(s.shared.told.epoch(), Some(first + 1));
    let why = s.readlink(&loc(b"x")).await.unwrap_err();
    assert!(why.kind == ErrorKind::Unreachable && why.detail.contains("more changes than allowed"), "{why}");
    assert_eq!(s.epoch(), None);
}

#[tokio::test]
async fn an_agent_that_watches_nothing_is_listed_as_ever() {
    let page = Reply::List(Page {
        applied: 0,
        dir: super::super::server::tests::attr(3),
        entries: vec![],
        more: false,
    });
    let s = liar(move |header| one(header, &page)).await;
    assert_eq!(s.watch(&loc(b"d"), 10, 5).await.unwrap().epoch, None);
    assert_eq!((s.epoch(), s.status().watches), (None, false));
}
