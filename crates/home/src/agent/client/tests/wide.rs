//! Further pipes.

use super::super::super::verbs::CheckedChunk;
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

#[tokio::test]
async fn what_arrives_damaged_over_further_pipes_is_counted_and_comes_over_the_first() {
    let damaged = || {
        let chunk = Chunk { attr: super::super::super::server::tests::attr(3), data: vec![7].into() };
        Reply::Readc(CheckedChunk { chunk, check: [0; 16] })
    };
    let open = move |_| -> Opening {
        Box::pin(async move {
            let mut session = liar_with(CHECKS, move |header| one(header, &damaged())).await;
            let inner = Arc::get_mut(&mut session).unwrap();
            inner.accept.home.boot_id = Bytes::from_static(b"boot");
            Ok(Arc::into_inner(session).unwrap())
        })
    };
    let (first, _, _) = session().await;
    let opener = Opener { open: Arc::new(open), logs_in: true };
    let session = Arc::into_inner(first).unwrap().widened_by(opener);
    widen(&session, b"boot").await;
    let file = loc(b"f");
    let reads = (0..20).map(|i| session.read(&file, i, READ_MAX));
    for (i, chunk) in futures_util::future::try_join_all(reads).await.unwrap().iter().enumerate() {
        assert!(chunk.data.len() == READ_MAX as usize && chunk.data.iter().all(|b| *b == i as u8));
    }
    assert!(session.status().damaged >= CHANNELS_MORE as u64, "{}", session.status().damaged);
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

/// Who waits for what several of them bring waits once, and each wait over any of them counts.
#[tokio::test]
async fn waits_over_further_pipes_are_waits_for_the_home() {
    let (session, _) = widened(b"boot", 0).await;
    let trips = || session.status().round_trips;
    let (file, before) = (loc(b"f"), trips());
    for i in 0..6 {
        session.read(&file, i, READ_PART).await.unwrap();
        assert_eq!(trips(), before + i + 1);
    }
}

/// What is under way over one of them is in the way of all.
#[tokio::test]
async fn further_pipes_share_the_windows_of_the_first_one() {
    let (session, _) = widened(b"boot", 0).await;
    let wide = session.wide.as_ref().unwrap();
    assert!(wide.count() == CHANNELS_MORE && wide.share(&session.wire()));
}

#[test]
fn a_pipe_that_ends_gives_back_what_it_had_under_way() {
    let wire = Arc::new(Wire::new(Arc::default()));
    let mut table = Table::new(wire.clone());
    let (sender, _receiver) = oneshot::channel();
    table.push((Class::Bulk, Turn::Now), Vec::new(), 1000, Waiter::One(sender)).unwrap();
    table.take_batch(&mut Vec::new()).unwrap();
    assert!(!wire.is_unused());
    table.close(&closed());
    assert!(wire.is_unused());
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
    session.read_in(Turn::Ahead, &file, 4, READ_PART).await.unwrap();
    held.pop();
    assert_eq!(read.await.unwrap().data[0], 3);
    drop(held);
    assert_eq!(wide.given(), vec![0; 1 + CHANNELS_MORE]);
}
