//! A home with an agent behind a wire that changes bits: what has arrived damaged is sent again, and leaves nothing there.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod common;

use common::{World, noise};
use home::agent::client::Session;
use home::agent::frame::{HEADER_LEN, Header, PREAMBLE_LEN};
use home::agent::server::{Beside, Program, serve};
use home::posix::Posix;
use home::remote::{Connection, Connector, Meter, RemoteHome};
use home::{Class, Home};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vfs::Mode;

/// What the wire knows bytes of files by.
const MARK: &[u8] = b"bytes that somebody needs";

/// The way to the agent of this folder. Of so many messages with [`MARK`] one bit of that arrives as another.
struct Wire {
    root: PathBuf,
    flips: Arc<AtomicU64>,
}

#[async_trait::async_trait]
impl Connector for Wire {
    async fn connect(&self, _: Option<Class>, meter: &Arc<Meter>) -> home::Result<Arc<dyn Connection>> {
        let root = self.root.as_os_str().as_bytes();
        let home = Arc::new(Posix::open(root)?.with_home_dir(root));
        let program = Program { hash: [9; 32], platform: "test-cpu".into() };
        let ((asks, asked), (hears, says)) = (UnixStream::pair().unwrap(), UnixStream::pair().unwrap());
        let (passed, input) = UnixStream::pair().unwrap();
        let flips = self.flips.clone();
        std::thread::spawn(move || pass(asked, passed, &flips));
        std::thread::spawn(move || serve(home, program, Beside::default(), input, says));
        let ours = [asks, hears].map(|end| {
            end.set_nonblocking(true).unwrap();
            tokio::net::UnixStream::from_std(end).unwrap()
        });
        let [asks, hears] = ours;
        Ok(Arc::new(Session::start(hears, asks, None, meter.clone()).await?))
    }
}

/// Passes messages on until either end is closed.
fn pass(mut from: UnixStream, mut to: UnixStream, flips: &AtomicU64) -> std::io::Result<()> {
    let mut preamble = [0; PREAMBLE_LEN];
    from.read_exact(&mut preamble)?;
    to.write_all(&preamble)?;
    loop {
        let mut head = [0; HEADER_LEN];
        from.read_exact(&mut head)?;
        let mut body = vec![0; Header::decode(&head).unwrap().length as usize];
        from.read_exact(&mut body)?;
        if let Some(at) = body.windows(MARK.len()).position(|bytes| bytes == MARK)
            && flips.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
        {
            body[at] ^= 1;
        }
        to.write_all(&head)?;
        to.write_all(&body)?;
    }
}

/// Makes a file of these bytes, writes over it, and looks what the home has, where so many messages arrive damaged each time.
async fn write_twice(len: usize, flips: u64) {
    let root = tempfile::tempdir().unwrap();
    let wire = Wire { root: root.path().into(), flips: Arc::default() };
    let left = wire.flips.clone();
    let mut world = World::new(Mode::Wb);
    let way: Arc<dyn Home> = RemoteHome::new(Arc::new(wire));
    world.way = Some(way.clone());
    let e = world.start().await;
    let lab = e.lab().await;
    let file = e.create(lab, "f").await.unwrap();
    for round in 0..2 {
        let data = [&noise(len, round)[..], MARK].concat();
        left.store(flips, Relaxed);
        e.write(file, 0, &data).await.unwrap();
        e.sync().await;
        assert!(std::fs::read(root.path().join("f")).unwrap() == data, "{len} bytes are other ones there");
        assert_eq!(left.load(Relaxed), 0, "the wire saw too few messages");
        assert_eq!(way.status().damaged, flips * (round + 1));
    }
    let status = e.vfs.status().volumes.remove(0);
    assert!(status.parked.is_empty() && status.conflicts == 0);
    let names: Vec<_> = std::fs::read_dir(root.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(names.iter().all(|name| name == "f" || name == ".cache"), "{names:?}");
}

#[tokio::test]
async fn what_travels_in_an_operation_and_arrives_damaged_is_sent_again() {
    write_twice(100, 2).await;
    write_twice(60_000, 1).await;
}

#[tokio::test]
async fn what_is_staged_and_arrives_damaged_is_sent_again() {
    write_twice(300_000, 1).await;
}
