//! Tests of the agent's client over a pipe.

use super::super::server::tests::{Gated, start};
use super::*;
use crate::{HomePath, Link, Op, SetAttr, Time};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::UnixStream;

fn loc(path: &[u8]) -> Loc {
    Loc { path: HomePath::parse(path).unwrap(), id: None }
}

async fn session_on(stream: std::os::unix::net::UnixStream) -> (Arc<Session>, Arc<Meter>) {
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
        op: Op::SetAttr { object: loc(b"x"), set: SetAttr::default() },
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
    assert_eq!(s.stage(op(1).id, 10, vec![1; 300_000].into()).await.unwrap(), 300_010);
    home.open();
    assert_eq!(s.apply(vec![op(1)]).await.unwrap(), [Outcome::Refused(ErrorKind::Busy)]);
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
    assert_eq!(s.shared.room.available_permits(), REQUESTS_MAX);
}

/// A peer that greets and then says nothing.
async fn mute() -> (Session, tokio::task::JoinHandle<()>) {
    let (ours, mut theirs) = tokio::io::duplex(64 << 10);
    let peer = tokio::spawn(async move {
        let accept = Reply::Hello(Accept::nothing());
        let reply = Frame::new(Type::Reply, Class::Control, 1, vec![accept.to_bytes()]);
        theirs.write_all(&frame::preamble()).await.unwrap();
        let mut greeting = [0; frame::PREAMBLE_LEN + HEADER_LEN];
        theirs.read_exact(&mut greeting).await.unwrap();
        theirs.write_all(&reply.to_vec()).await.unwrap();
        let mut sink = [0; 1024];
        while theirs.read(&mut sink).await.is_ok_and(|n| n > 0) {}
    });
    let (reader, writer) = tokio::io::split(ours);
    (Session::start(reader, writer, None, Arc::default()).await.unwrap(), peer)
}

#[tokio::test(start_paused = true)]
async fn silence_is_shown_and_then_ends_the_session() {
    let (s, _peer) = mute().await;
    assert_eq!(s.status().link, Link::Up);
    let begin = tokio::time::Instant::now();
    let at = loc(b"a");
    let call = s.stat(&at);
    tokio::pin!(call);
    assert!(tokio::time::timeout(Duration::from_secs(21), &mut call).await.is_err());
    assert_eq!(s.status().link, Link::Down("silent".into()));
    let error = call.await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unreachable);
    assert!(error.detail.contains("said nothing for 30 seconds"), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(45));
}

#[test]
fn long_lists_of_changes_are_split() {
    let ops: Vec<_> = (0..20_000).map(op).collect();
    let size = ops[0].to_bytes().len();
    let split = batches(ops);
    assert_eq!(split.len(), (20_000 * size).div_ceil(APPLY_MAX / size * size));
    assert_eq!(split.concat().len(), 20_000);
}

#[tokio::test]
async fn heavy_requests_keep_their_order_and_light_ones_pass() {
    let (mut table, meter) = (Table::new(), Meter::default());
    let mut push = |weight: usize| {
        let (answer, _) = oneshot::channel();
        let body = Request::Readlink(loc(b"x")).to_bytes();
        table.push(Class::Bulk, vec![body], weight, answer).unwrap()
    };
    let full = crate::limits::agent::WINDOW_MIN;
    let ids: Vec<u64> = [full, full, 1, 0].into_iter().map(&mut push).collect();
    let mut batch = BytesMut::new();
    assert!(table.take_batch(&mut batch, &meter));
    let sent = |batch: &BytesMut| -> Vec<u64> {
        let frame = HEADER_LEN + Request::Readlink(loc(b"x")).to_bytes().len();
        let headers =
            batch.chunks(frame).map(|f| Header::decode(f[..HEADER_LEN].try_into().unwrap()).unwrap());
        headers.map(|h| h.id).collect()
    };
    assert_eq!(sent(&batch), [ids[0], ids[3]]);
    batch.clear();
    assert!(!table.take_batch(&mut batch, &meter));
    assert!(table.arrived(ids[0], Bytes::new(), true).unwrap().is_some());
    assert!(table.take_batch(&mut batch, &meter));
    assert_eq!(sent(&batch), [ids[1], ids[2]]);
}
