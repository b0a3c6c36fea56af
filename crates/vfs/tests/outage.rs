//! A home behind a connection that is lost and made again: who waits goes on soon after it is back, and while nobody
//! waits it is left alone for longer and longer.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod common;

use common::{Engine, World, in_fast_time};
use home::remote::{Connection, Connector, Meter, RemoteHome};
use home::testing::fault::{Fault, FaultHome};
use home::{Class, Error, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tokio::time::Instant;
use vfs::{Mode, Oid};

const SECOND: Duration = Duration::from_secs(1);
/// How soon after the home's return whoever waits goes on.
const SOON: Duration = Duration::from_secs(3);

/// A host whose home this is, as long as nothing is wrong with it.
struct Host {
    home: Arc<FaultHome>,
    down: std::sync::Mutex<Option<ErrorKind>>,
    attempts: AtomicUsize,
}

#[async_trait::async_trait]
impl Connector for Host {
    async fn connect(&self, _: Option<Class>, _: &Arc<Meter>) -> home::Result<Arc<dyn Connection>> {
        self.attempts.fetch_add(1, Relaxed);
        tokio::time::sleep(Duration::from_millis(200)).await;
        match *self.down.lock().unwrap() {
            Some(kind) => Err(Error::new(kind, "nobody there")),
            None => Ok(self.home.clone()),
        }
    }

    fn login_for(&self, why: &Error) -> Option<String> {
        (why.kind == ErrorKind::Login).then(|| "trellis login lab".to_owned())
    }
}

impl Host {
    fn goes(&self, kind: ErrorKind) {
        *self.down.lock().unwrap() = Some(kind);
        self.home.set(Fault::Unreachable);
    }

    fn is_back(&self) {
        self.home.set(Fault::None);
        *self.down.lock().unwrap() = None;
    }
}

/// Runs in time that goes fast.
fn run<F: Future<Output = ()>>(mode: Mode, test: impl FnOnce(Arc<Host>, World, Engine) -> F) {
    in_fast_time(mode, |mut world| async move {
        let (home, down) = (world.fault.clone(), std::sync::Mutex::new(None));
        let host = Arc::new(Host { home, down, attempts: AtomicUsize::new(0) });
        world.way = Some(RemoteHome::new(host.clone()));
        let e = world.start().await;
        test(host, world, e).await;
    });
}

/// How long after the host's return, and how it went on, for somebody who begins to wait when the host is down, which it
/// is for so long.
async fn outage<T>(host: &Host, down: Duration, wait: impl Future<Output = T>) -> (Duration, T) {
    let back = async {
        tokio::time::sleep(down).await;
        host.is_back();
        Instant::now()
    };
    let waiting = async { (wait.await, Instant::now()) };
    let (back, (done, at)) = tokio::join!(back, waiting);
    (at.saturating_duration_since(back), done)
}

async fn commit(e: &Engine, file: Oid) -> vfs::Result<()> {
    e.vfs.commit(e.ctx(), file).await.map(drop)
}

#[test]
fn who_waits_goes_on_soon_after_each_of_many_outages() {
    run(Mode::Cto, |host, world, e| async move {
        (0..6).for_each(|round| world.write(&format!("first-{round}"), b"of theirs"));
        let lab = e.lab().await;
        let f = e.create(lab, "f").await.unwrap();
        e.sync().await;
        for round in 0..6 {
            let theirs = e.find(&format!("/lab/first-{round}")).await.unwrap();
            host.goes(ErrorKind::Unreachable);
            e.vfs
                .write(e.ctx(), f, 0, bytes::Bytes::from(vec![round; 9]), vfs::Stability::Unstable)
                .await
                .unwrap();
            let (took, done) = outage(&host, 4 * SECOND, commit(&e, f)).await;
            assert!(done.is_ok() && took < SOON, "fsync: {done:?} after {took:?}");

            host.goes(ErrorKind::Unreachable);
            let (took, read) = outage(&host, 4 * SECOND, e.read(theirs)).await;
            assert!(
                read == Ok(b"of theirs".to_vec()) && took < SOON,
                "a first look: {read:?} after {took:?}"
            );

            host.goes(ErrorKind::Unreachable);
            e.create(lab, &format!("made-{round}")).await.unwrap();
            let (took, done) = outage(&host, 40 * SECOND, e.vfs.sync(None, 90 * SECOND)).await;
            assert!(done.is_ok() && took < SOON, "sync: {done:?} after {took:?}");
            assert!(world.at_home(&format!("made-{round}")).await.is_some());
        }
    });
}

#[test]
fn a_home_that_nobody_waits_for_is_left_alone_and_tried_by_itself() {
    run(Mode::Wb, |host, world, e| async move {
        let lab = e.lab().await;
        e.create(lab, "f").await.unwrap();
        e.sync().await;
        host.goes(ErrorKind::Unreachable);
        e.create(lab, "unsent").await.unwrap();
        let before = host.attempts.load(Relaxed);
        tokio::time::sleep(300 * SECOND).await;
        let alone = host.attempts.load(Relaxed) - before;
        assert!((10..=26).contains(&alone), "{alone} attempts in five minutes");
        // What is sent by itself is seen by whoever waits then, too.
        let before = host.attempts.load(Relaxed);
        assert!(e.vfs.sync(None, 60 * SECOND).await.is_err());
        let awaited = host.attempts.load(Relaxed) - before;
        assert!((30..=60).contains(&awaited), "{awaited} attempts in a minute");
        host.is_back();
        tokio::time::sleep(40 * SECOND).await;
        assert!(world.at_home("unsent").await.is_some());
    });
}

#[test]
fn what_is_unsent_goes_as_soon_as_another_call_has_found_the_home() {
    run(Mode::Wb, |host, world, e| async move {
        world.write("theirs", b"1");
        let lab = e.lab().await;
        let theirs = e.find("/lab/theirs").await.unwrap();
        host.goes(ErrorKind::Unreachable);
        e.create(lab, "unsent").await.unwrap();
        tokio::time::sleep(50 * SECOND).await;
        let (_, read) = outage(&host, SECOND, e.read(theirs)).await;
        assert_eq!(read.unwrap(), b"1");
        tokio::time::sleep(SECOND).await;
        assert!(world.at_home("unsent").await.is_some());
    });
}

#[test]
fn sync_does_not_wait_for_a_person_and_says_what_he_has_to_do() {
    run(Mode::Wb, |host, world, e| async move {
        let lab = e.lab().await;
        e.create(lab, "f").await.unwrap();
        e.sync().await;
        host.goes(ErrorKind::Login);
        e.create(lab, "unsent").await.unwrap();
        let begun = Instant::now();
        let unsent = e.vfs.sync(None, 600 * SECOND).await.unwrap_err();
        assert!(begun.elapsed() < 5 * SECOND, "{:?}", begun.elapsed());
        assert_eq!((unsent.len(), unsent[0].ops, unsent[0].may_pass), (1, 1, false));
        assert!(
            unsent[0].why.contains("login needed") && unsent[0].why.contains("`trellis login lab`"),
            "{unsent:?}"
        );
        let barrier = e.find("/.trellis/sync/x").await.unwrap();
        let failed = e.read(barrier).await.unwrap_err();
        assert!(failed.kind == ErrorKind::Io && failed.detail.contains("trellis login lab"), "{failed:?}");
        // It is still queued, and who has logged in and asks again is not told of the last attempt.
        host.is_back();
        tokio::time::sleep(SECOND).await;
        e.sync().await;
        assert!(world.at_home("unsent").await.is_some());
    });
}

#[test]
fn a_person_who_has_mended_a_login_is_not_told_what_a_program_was_told_before() {
    run(Mode::Wb, |host, _world, e| async move {
        let name = vfs::Name::new(b"lab").unwrap();
        host.goes(ErrorKind::Login);
        assert_eq!(e.find("/lab").await.unwrap_err().kind, ErrorKind::Login);
        tokio::time::sleep(35 * SECOND).await;
        host.is_back();
        let attempts = host.attempts.load(Relaxed);
        assert_eq!(e.find("/lab").await.unwrap_err().kind, ErrorKind::Login, "a program");
        assert_eq!(host.attempts.load(Relaxed), attempts);
        e.vfs.asked(&name).await;
        e.find("/lab").await.unwrap();
        assert_eq!(host.attempts.load(Relaxed), attempts + 1);
    });
}

#[test]
fn a_reason_does_not_outlive_its_cause() {
    for kind in [ErrorKind::Access, ErrorKind::Unreachable, ErrorKind::NameServer, ErrorKind::Io] {
        run(Mode::Wb, |host, _world, e| async move {
            host.goes(kind);
            for _ in 0..5 {
                assert_eq!(e.find("/lab").await.unwrap_err().kind, kind);
                tokio::time::sleep(20 * SECOND).await;
            }
            host.is_back();
            tokio::time::sleep(SOON).await;
            let (took, found) = outage(&host, Duration::ZERO, e.find("/lab")).await;
            assert!(found.is_ok() && took < SECOND, "{kind:?}: {found:?} after {took:?}");
        });
    }
}

#[test]
fn who_has_waited_in_vain_hears_why() {
    run(Mode::Wb, |host, world, e| async move {
        world.write("theirs", b"1");
        let theirs = {
            e.lab().await;
            e.find("/lab/theirs").await.unwrap()
        };
        host.goes(ErrorKind::Unreachable);
        let failed = loop {
            let failed = e.read(theirs).await.unwrap_err();
            if failed.kind != ErrorKind::Busy {
                break failed;
            }
        };
        assert!(failed.kind == ErrorKind::Io && failed.detail.contains("nobody there"), "{failed}");
    });
}
