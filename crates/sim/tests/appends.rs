//! The power of the home fails in the middle of an append: what is left of that is our own, whatever it travels with when it
//! is sent again.

#![allow(missing_docs, clippy::unwrap_used)]

use bytes::Bytes;
use home::posix::sys::{Mode as Open, Stamp, Sys};
use home::{HomePath, Time};
use parking_lot::Mutex;
use sim::client::Trace;
use sim::clock::Clock;
use sim::gateway::{Gateway, LAB, Size, cred, home_dir};
use sim::machine::fs::Fs;
use sim::machine::{Around, Call, Cut, Fate, Luck, Machine, SimSys};
use sim::network::{Meddler, Net};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use vfs::{Ctx, Mode, Oid, Stability, Vfs};

const APPENDED: usize = 8 << 10;

struct Calm;

impl Around for Calm {
    fn before(&self, _: Call) -> Fate {
        Fate::Goes
    }
}

/// The power fails once the file has a length, or once it has the time of the append as well: all that is in the file is on the
/// disk then, and of the log what was synced.
struct Failing {
    machine: Arc<Machine>,
    net: Weak<Net>,
    len: usize,
    stamped: bool,
    /// The time that it had with that length first.
    written: Mutex<Option<Time>>,
    is_over: AtomicBool,
}

impl Failing {
    fn is_there(&self) -> bool {
        let file = self.machine.file("/home/ann/f").filter(|(_, data)| data.len() == self.len);
        let time = file.and_then(|(ino, _)| self.machine.image().get(ino).map(|node| node.mtime));
        time.is_some_and(|time| {
            let written = *self.written.lock().get_or_insert(time);
            !self.stamped || time != written
        })
    }
}

impl Meddler for Failing {
    fn meddle(&self) {
        if self.is_there() && !self.is_over.swap(true, Ordering::SeqCst) {
            let all = Cut { keep: usize::MAX, tree: Luck::New, cache: Luck::Old };
            self.machine.cut_to(all, 4096);
            self.net.upgrade().iter().for_each(|net| net.hangup());
        }
    }
    fn power_failed(&self, _: &Fs, _: &Fs) {}
    fn told(&self, _: &HomePath) {}
    fn removes(&self, _: &HomePath, _: bool) {}
}

/// What the power cut leaves of what was added; in the place of the rest there are zeros, or the file ends.
#[derive(Debug, Clone, Copy)]
enum Left {
    Whole,
    Start,
    End,
}

struct World {
    machine: Arc<Machine>,
    net: Arc<Net>,
    gateway: Arc<Gateway>,
    trace: Trace,
}

impl World {
    /// A home with a file of so many bytes, and a gateway.
    async fn new(len: usize) -> World {
        let clock = Clock::new(1_700_000_000, 1_700_000_000);
        let machine = Machine::new(1, clock.clone());
        let sys = SimSys::new(machine.clone(), machine.process(Arc::new(Calm)));
        let home = sys.open_root(b"/home/ann").unwrap();
        let file = sys.create(&home, b"f", 0o644).unwrap();
        sys.write(&file, 0, &vec![b'.'; len]).unwrap();
        drop(file);
        machine.settle();
        let trace = Trace::default();
        let net = Net::new("home", machine.clone(), 1, trace.clone(), Arc::default(), None);
        let size = Size {
            segment: 256 << 10,
            cache: 8 << 20,
            staleness: Duration::from_secs(5),
            spool_from: None,
            batch_bytes: vfs::BATCH_BYTES,
            mode: Mode::Wb,
        };
        let gateway = Gateway::new(net.clone(), None, clock, size, 1);
        gateway.start().await.unwrap();
        World { machine, net, gateway, trace }
    }

    fn vfs(&self) -> Arc<Vfs> {
        self.gateway.sessions().last().unwrap().vfs
    }

    async fn file(&self) -> Oid {
        let (vfs, cred) = (self.vfs(), cred());
        let dir = home_dir(&vfs, &cred, LAB).await.unwrap();
        vfs.lookup(Ctx::of(&cred), dir, b"f").await.unwrap().oid
    }

    async fn write(&self, file: Oid, at: usize, data: Vec<u8>) {
        let (cred, data) = (cred(), Bytes::from(data));
        self.vfs().write(Ctx::of(&cred), file, at as u64, data, Stability::Stable).await.unwrap();
    }

    /// Appends to the file while the power of the home fails, and leaves the home out of reach.
    async fn append_into_cut(&self, file: Oid, len: usize, stamped: bool) {
        let (machine, is_over) = (self.machine.clone(), AtomicBool::new(false));
        let (net, written, len_then) = (Arc::downgrade(&self.net), Mutex::default(), len + APPENDED);
        let failing = Arc::new(Failing { machine, net, len: len_then, stamped, written, is_over });
        self.net.meddle_with(failing.clone());
        self.net.let_meddle(true);
        self.write(file, len, vec![b'A'; APPENDED]).await;
        for _ in 0..60_000 {
            if failing.is_over.load(Ordering::SeqCst) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        assert!(failing.is_over.load(Ordering::SeqCst), "the power never failed");
        self.net.let_meddle(false);
        self.net.set_up(false);
    }

    /// The power cut has kept no more, and no later time.
    fn leave(&self, len: usize, left: Left) {
        let sys = SimSys::new(self.machine.clone(), self.machine.process(Arc::new(Calm)));
        let home = sys.open_root(b"/home/ann").unwrap();
        let file = sys.reopen(&sys.open_name(&home, b"f").unwrap(), Open::ReadWrite).unwrap();
        let time = sys.stat(&file).unwrap().mtime;
        match left {
            Left::Whole => return,
            Left::Start => sys.truncate(&file, (len + APPENDED / 2) as u64).unwrap(),
            Left::End => drop(sys.write(&file, len as u64, &[0; APPENDED / 2]).unwrap()),
        }
        sys.set_times(&file, Stamp::Keep, Stamp::At(time)).unwrap();
        drop(file);
        self.machine.settle();
    }

    async fn restart_gateway(&self) {
        self.gateway.end(false, None);
        self.gateway.bury();
        self.gateway.start().await.unwrap();
    }

    /// What the file has once everything is at the home, without a conflict.
    async fn arrives(&self, when: &str) -> Arc<Vec<u8>> {
        self.net.set_up(true);
        self.vfs().sync(None, Duration::from_secs(600)).await.unwrap();
        let conflicts: u64 = self.vfs().status().volumes.iter().map(|v| v.conflicts).sum();
        let trace = self.trace.lock().join("\n");
        assert_eq!((conflicts, self.machine.names("/home/ann").len()), (0, 2), "{when}: {trace}");
        self.machine.file("/home/ann/f").unwrap().1
    }
}

fn in_world(live: impl AsyncFnOnce()) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    tokio::task::LocalSet::new().block_on(&runtime.unwrap(), live());
}

/// One world: what is left of an append to a file of `len` bytes, and what is sent with that, or after it.
async fn sent_again(len: usize, over: Option<usize>, (restarts, stamped): (bool, bool), left: Left) {
    let world = World::new(len).await;
    let file = world.file().await;
    world.append_into_cut(file, len, stamped).await;
    world.leave(len, left);
    let mut wanted = [vec![b'.'; len], vec![b'A'; APPENDED]].concat();
    if let Some(at) = over {
        world.write(file, at, vec![b'B'; APPENDED / 2]).await;
        wanted[at..at + APPENDED / 2].fill(b'B');
    }
    if restarts {
        world.restart_gateway().await;
    }
    let when = format!("{left:?} to {len}, then over {over:?}, restarts: {restarts}, stamped: {stamped}");
    assert!(*world.arrives(&when).await == wanted, "{when}");
}

/// The gateway has seen nothing of what the file had, so that it cannot tell what was there before a later write went over it.
#[test]
fn what_is_left_of_an_append_is_ours_whatever_is_written_then() {
    for len in [0, 16 << 10, 48 << 10] {
        for over in [None, Some(0), Some(len)] {
            for left in [Left::Whole, Left::Start, Left::End] {
                for stamped in [false, true] {
                    in_world(async || sent_again(len, over, (false, stamped), left).await);
                    // All that waits may have been sent, and goes together.
                    in_world(async || sent_again(len, over, (true, stamped), left).await);
                }
            }
        }
    }
}
