//! Further pipes.

use super::*;
use crate::limits::agent::{CHANNEL_GIVEN, CHANNELS_MORE, READ_PART};

/// Sessions with a machine that was booted so, whose agent is joined where that is wanted.
fn opener(opened: Arc<AtomicU64>, boot: &'static [u8]) -> Opener {
    let open = move |join| -> Opening {
        opened.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            let (mut session, _, _) = session().await;
            let inner = Arc::get_mut(&mut session).unwrap();
            inner.accept.home.boot_id = Bytes::from_static(boot);
            inner.accept.features |= if join == Some(inner.accept.pid) { JOINS } else { 0 };
            Ok(Arc::into_inner(session).unwrap())
        })
    };
    Opener { open: Arc::new(open), logs_in: true }
}

async fn widened(boot: &'static [u8], joins: u64) -> (Session, Arc<AtomicU64>) {
    let opened = Arc::new(AtomicU64::new(0));
    let (first, _, _) = session().await;
    let mut session = Arc::into_inner(first).unwrap().widened_by(opener(opened.clone(), boot));
    session.accept.features |= joins;
    widen(&session, boot).await;
    (session, opened)
}

async fn widen(session: &Session, boot: &[u8]) {
    session.wide.as_ref().unwrap().widen(session);
    for _ in 0..400 {
        if session.wide.as_ref().unwrap().count() == CHANNELS_MORE || boot != b"boot" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn long_reads_go_over_further_pipes_and_back_when_those_end() {
    let (session, opened) = widened(b"boot", 0).await;
    let wide = session.wide.as_ref().unwrap();
    assert_eq!(wide.count(), CHANNELS_MORE);
    wide.widen(&session);
    let file = loc(b"f");
    let reads = (0..20).map(|i| session.read(&file, i, READ_MAX));
    for (i, chunk) in futures_util::future::try_join_all(reads).await.unwrap().iter().enumerate() {
        assert!(chunk.data.len() == READ_MAX as usize && chunk.data.iter().all(|b| *b == i as u8));
    }
    assert!(wide.given().iter().all(|asked| *asked == 0), "what was read counts as under way");
    // Packed, as answers are that take their time, they are 255 times shorter at most.
    assert!(wide.read_over().iter().all(|bytes| *bytes * 255 > READ_MAX.into()), "one pipe for all");
    wide.cut();
    assert_eq!(session.read(&file, 3, READ_MAX).await.unwrap().data[0], 3);
    assert_eq!((wide.count(), opened.load(Ordering::Relaxed)), (0, CHANNELS_MORE as u64));
}

/// Many of them fill a wire as a long one does.
#[tokio::test]
async fn short_reads_go_over_further_pipes_too() {
    let (session, _) = widened(b"boot", 0).await;
    let wide = session.wide.as_ref().unwrap();
    let file = loc(b"f");
    let reads = (0..200).map(|i| session.read(&file, i, READ_PART / 4));
    for (i, chunk) in futures_util::future::try_join_all(reads).await.unwrap().iter().enumerate() {
        assert!(chunk.data.len() == READ_PART as usize / 4 && chunk.data.iter().all(|b| *b == i as u8));
    }
    let over = wide.read_over();
    assert!(over.iter().all(|bytes| *bytes * 255 > READ_PART.into()), "one pipe for all: {over:?}");
}

#[tokio::test]
async fn what_is_staged_goes_over_further_pipes_into_the_same_agent_only() {
    for (joins, apart) in [(JOINS, true), (0, false)] {
        let (session, _) = widened(b"boot", joins).await;
        let wide = session.wide.as_ref().unwrap();
        // Bytes that cannot be packed.
        let mut data = vec![0; 40 * STAGE_MAX];
        blake3::Hasher::new().finalize_xof().fill(&mut data);
        let data = Bytes::from(data);
        session.stage(op(1).id, 0, data.clone()).await.unwrap();
        let sent = wide.sent_over();
        assert!(sent.iter().all(|bytes| (*bytes > STAGE_MAX as u64) == apart), "{sent:?}");
        assert!(wide.given().iter().all(|asked| *asked == 0), "what was staged counts as under way");
        wide.cut();
        session.stage(op(2).id, 0, data).await.unwrap();
    }
}

#[tokio::test]
async fn another_machine_behind_the_same_name_is_not_read_from() {
    let (session, opened) = widened(b"another", 0).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(opened.load(Ordering::Relaxed), 1, "others are tried where the first is of no use");
    assert_eq!(session.wide.as_ref().unwrap().count(), 0);
    assert_eq!(session.read(&loc(b"f"), 3, READ_MAX).await.unwrap().data[0], 3);
}

#[tokio::test(start_paused = true)]
async fn further_pipes_are_for_far_and_fast_wires() {
    // Bytes in each read, milliseconds from one to the next and for a round trip.
    for (bytes, every, round_trip, wants) in
        [(1 << 20, 37, 60, true), (1 << 20, 70, 60, false), (1 << 20, 1, 1, false), (16 << 10, 1, 60, false)]
    {
        let wide = Wide::new(opener(Arc::default(), b""));
        let mut full = false;
        for _ in 0..1000 {
            tokio::time::sleep(Duration::from_millis(every)).await;
            full |= wide.is_full(bytes, Duration::from_millis(round_trip));
        }
        assert_eq!(full, wants, "{bytes} bytes each {every} ms, {round_trip} ms away");
    }
}

/// Buffers on the way hold something back for a while, and then give out all of it at once.
#[tokio::test(start_paused = true)]
async fn a_burst_tells_nothing_of_the_wire() {
    let wide = Wide::new(opener(Arc::default(), b""));
    for part in 0..1000 {
        let pause = if part % 10 == 0 { 600 } else { 8 };
        tokio::time::sleep(Duration::from_millis(pause)).await;
        assert!(!wide.is_full(256 << 10, Duration::from_millis(60)), "4 MB/s are no fast wire");
    }
}

#[test]
fn what_the_pipe_has_taken_has_not_arrived() {
    let mut table = Table::new();
    let staged = || {
        let room = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        Waiter::Sent { sent: None, unkept: Arc::default(), _room: room }
    };
    let ids: Vec<u64> =
        [1000, 20].map(|weight| table.push(Class::Bulk, Vec::new(), weight, staged()).unwrap()).into();
    table.take_batch(&mut Vec::new(), &Meter::default());
    assert_eq!(table.arrived_unheard(), 0);
    for (id, weight) in ids.into_iter().zip([1000, 20]) {
        table.arrived(id, Bytes::new(), true).unwrap().unwrap();
        assert_eq!((table.arrived_unheard(), table.arrived_unheard()), (weight, 0));
    }
}

#[tokio::test]
async fn a_further_pipe_is_as_near_as_the_first_one() {
    let (first, _, _) = session().await;
    let session = Arc::into_inner(first).unwrap().widened_by(opener(Arc::default(), b"boot"));
    let near = Duration::from_nanos(1);
    session.shared.table.lock().is_as_near(near);
    widen(&session, b"boot").await;
    assert_eq!(session.wide.as_ref().unwrap().round_trips(), [near; CHANNELS_MORE]);
}

#[tokio::test]
async fn no_pipe_is_given_more_than_it_carries_soon() {
    let (session, _) = widened(b"boot", 0).await;
    let wide = session.wide.as_ref().unwrap();
    let file = loc(b"f");
    let mut held = Vec::new();
    while let Some(room) = wide.hold_read(READ_PART) {
        held.push(room);
    }
    let each = CHANNEL_GIVEN.next_multiple_of(READ_PART.into());
    assert_eq!(wide.given(), vec![each; 1 + CHANNELS_MORE]);
    let read = session.read(&file, 3, READ_PART);
    tokio::pin!(read);
    assert!(tokio::time::timeout(Duration::from_millis(100), &mut read).await.is_err(), "it has no room");
    session.read_later(&file, 4, READ_PART).await.unwrap();
    held.pop();
    assert_eq!(read.await.unwrap().data[0], 3);
    drop(held);
    assert_eq!(wide.given(), vec![0; 1 + CHANNELS_MORE]);
}
