//! Sessions that go on with the watches of the one before.

use super::super::super::keep::{self, Keeper};
use super::super::super::server::{Beside, Program, serve};
use super::*;
use crate::posix::Posix;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// An agent over a directory, its end, and what passes on its watches.
struct Agent {
    home: Arc<Posix>,
    keeper: Arc<Keeper>,
    thread: std::thread::JoinHandle<()>,
}

fn agent(root: &Path) -> (Agent, UnixStream) {
    let root = root.as_os_str().as_bytes();
    let home = Arc::new(Posix::open(root).unwrap().with_home_dir(root));
    let keeper = Arc::new(Keeper::default());
    let (ours, theirs) = UnixStream::pair().unwrap();
    let (output, beside) =
        (theirs.try_clone().unwrap(), Beside { joins: false, keeper: Some(keeper.clone()) });
    let program = Program { hash: [9; 32], platform: "test-cpu".into() };
    let served = home.clone();
    let thread = std::thread::spawn(move || serve(served, program, beside, theirs, output).unwrap());
    (Agent { home, keeper, thread }, ours)
}

async fn session(stream: UnixStream, told: &Arc<Told>) -> Session {
    stream.set_nonblocking(true).unwrap();
    let (reader, writer) = tokio::net::UnixStream::from_std(stream).unwrap().into_split();
    Session::start_again(reader, writer, None, Arc::default(), told.clone()).await.unwrap()
}

/// An agent leaves when its pipe ends, which is a task of the runtime.
async fn ended(thread: std::thread::JoinHandle<()>) {
    let joined = tokio::task::spawn_blocking(move || thread.join().unwrap());
    tokio::time::timeout(Duration::from_secs(10), joined).await.unwrap().unwrap();
}

/// The names that are told, until this one is.
async fn told_until(session: &Session, last: &str) -> Vec<String> {
    let mut all = Vec::new();
    while !all.iter().any(|name| name == last) {
        let changes = tokio::time::timeout(Duration::from_secs(10), session.changes()).await.unwrap();
        all.extend(changes.into_iter().flat_map(|c| c.names).map(|name| name.to_string()));
    }
    all
}

/// The first agent is asked to keep its watches without anybody waiting for it.
async fn until_kept(told: &Told) {
    while !told.is_kept() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test]
async fn who_comes_back_hears_what_has_happened_in_the_same_span() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("d")).unwrap();
    let told = Arc::new(Told::new(new_name()));
    let (first_agent, stream) = agent(dir.path());
    let first = session(stream, &told).await;
    until_kept(&told).await;
    let watched = first.watch(&loc(b"d"), 10, 5).await.unwrap();
    assert!(watched.epoch.is_some());
    fs::write(dir.path().join("d/heard"), b"").unwrap();
    assert_eq!(told_until(&first, "heard").await, ["heard"]);

    // The agent does not know yet that its client has gone, as after a change of the client's address.
    fs::write(dir.path().join("d/unheard"), b"").unwrap();
    let (second_agent, stream) = agent(dir.path());
    let second = session(stream, &told).await;
    assert_eq!(second.epoch(), None, "what was told is not taken in yet");
    let heard = told_until(&second, "unheard").await;
    assert_eq!((heard, second.epoch()), (vec!["unheard".to_owned()], None), "nor now");
    fs::write(dir.path().join("d/later"), b"").unwrap();
    told_until(&second, "later").await;
    let next = tokio::time::timeout(Duration::from_millis(100), second.changes()).await;
    assert!(next.is_err(), "{next:?}");
    assert_eq!(second.epoch(), watched.epoch);
    assert!(!first_agent.home.tells() && second_agent.home.tells());
    drop((first, second));
    ended(first_agent.thread).await;
    ended(second_agent.thread).await;
}

#[tokio::test]
async fn an_agent_that_is_gone_for_good_ends_the_span() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("d")).unwrap();
    let told = Arc::new(Told::new(new_name()));
    let (first_agent, stream) = agent(dir.path());
    let first = session(stream, &told).await;
    until_kept(&told).await;
    let before = first.watch(&loc(b"d"), 10, 5).await.unwrap().epoch.unwrap();
    drop(first);
    ended(first_agent.thread).await;
    assert!(first_agent.home.give_watches().is_some());
    // Its socket goes with the process.
    assert!(keep::fetch(&told.name).is_none());
    drop(first_agent.keeper);

    let (_agent, stream) = agent(dir.path());
    let second = session(stream, &told).await;
    assert!(second.epoch().unwrap() > before);
    assert_eq!(second.watch(&loc(b"d"), 10, 5).await.unwrap().epoch, second.epoch());
}

/// An agent that says this when it is asked to keep watches, and nothing at all while it is silent.
async fn keeping(theirs: tokio::io::DuplexStream, says: bool, silent: Arc<AtomicBool>) {
    let (mut heard, mut to) = tokio::io::split(theirs);
    to.write_all(&frame::preamble()).await.unwrap();
    heard.read_exact(&mut [0; frame::PREAMBLE_LEN]).await.unwrap();
    let mut head = [0; HEADER_LEN];
    while heard.read_exact(&mut head).await.is_ok() {
        let header = Header::decode(&head).unwrap();
        let mut body = vec![0; header.length as usize];
        heard.read_exact(&mut body).await.unwrap();
        let reply = match Request::from_bytes(body.into()) {
            _ if silent.load(Ordering::SeqCst) => continue,
            Ok(Request::Hello(_)) => Reply::Hello(Accept { features: WATCHES | KEEPS, ..Accept::nothing() }),
            Ok(Request::Keep(_)) => Reply::Keep(says),
            _ => {
                let sign = Frame::new(Type::Notice, Class::Control, 0, Vec::new());
                to.write_all(&sign.to_vec()).await.unwrap();
                continue;
            }
        };
        let frame = Frame::new(Type::Reply, header.class, header.id, vec![reply.to_bytes()]);
        to.write_all(&frame.to_vec()).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_silence_the_agent_says_whether_all_was_told() {
    for says in [true, false] {
        let told = Arc::new(Told::new(new_name()));
        let silent = Arc::new(AtomicBool::new(false));
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        tokio::spawn(keeping(theirs, says, silent.clone()));
        let (reader, writer) = tokio::io::split(ours);
        let s = Session::start_again(reader, writer, None, Arc::default(), told.clone()).await.unwrap();
        until_kept(&told).await;
        let first = s.epoch().unwrap();
        silent.store(true, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs(21)).await;
        assert_eq!(s.epoch(), None);
        silent.store(false, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert_eq!((s.epoch(), s.status().link), (None, Link::Up), "it is heard, but was not asked yet");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(s.epoch().unwrap() == first, says);
    }
}
