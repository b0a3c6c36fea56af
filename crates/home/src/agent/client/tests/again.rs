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

/// A directory with a directory `d`, and the first session over it, whose agent keeps what it watches.
async fn begun() -> (tempfile::TempDir, Arc<Told>, Agent, Session) {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("d")).unwrap();
    let told = Arc::new(Told::new(new_name()));
    let (agent, stream) = agent(dir.path());
    let session = session(stream, &told).await;
    until_kept(&told).await;
    (dir, told, agent, session)
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
    let kept = async {
        while !told.is_kept() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), kept).await.unwrap();
}

#[tokio::test]
async fn who_comes_back_hears_what_has_happened_in_the_same_span() {
    let (dir, told, first_agent, first) = begun().await;
    let watched = first.watch(&loc(b"d"), 10, 5).await.unwrap();
    assert!(watched.epoch.is_some());
    fs::write(dir.path().join("d/heard"), b"").unwrap();
    assert_eq!(told_until(&first, "heard").await, ["heard"]);

    // The agent does not know yet that its client has gone, as after a change of the client's address.
    fs::write(dir.path().join("d/unheard"), b"").unwrap();
    let (second_agent, stream) = agent(dir.path());
    let second = session(stream, &told).await;
    assert_eq!(told_until(&second, "unheard").await, ["unheard"]);
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
    let (dir, told, first_agent, first) = begun().await;
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
        assert_eq!(s.epoch().is_none(), says, "what was told meanwhile is to be taken in");
        assert!(tokio::time::timeout(Duration::from_secs(1), s.changes()).await.is_err());
        assert_eq!(s.epoch().unwrap() == first, says);
    }
}

#[tokio::test]
async fn nothing_is_believed_before_what_was_told_in_vain_is_taken_in() {
    let told = Told::new(new_name());
    let news = |mark: u64| News::Changed(vec![Changed { mark: mark.into(), ..Changed::default() }]);
    let (first, _) = told.begin();
    told.hear(first, news(1)).unwrap();
    let epoch = told.epoch().unwrap();
    assert_eq!(told.changes().await.len(), 1);

    let (second, heard) = told.begin();
    assert_eq!(heard, 1);
    told.hear(first, news(2)).unwrap();
    told.hear(second, news(2)).unwrap();
    assert_eq!(told.begin().1, 2, "what the first one brings late counts once");
    told.goes_on();
    assert_eq!((told.epoch(), told.changes().await.len(), told.epoch()), (None, 1, None));
    assert!(tokio::time::timeout(Duration::from_millis(10), told.changes()).await.is_err());
    assert_eq!(told.epoch(), Some(epoch));
    told.breaks();
    assert!(told.epoch().unwrap() > epoch && told.begin().1 == 0);
}

/// Connections to agents over one directory.
struct Agents {
    root: std::path::PathBuf,
    told: Arc<Told>,
    /// The pipe to the last one.
    last: Mutex<Option<UnixStream>>,
}

#[async_trait::async_trait]
impl crate::remote::Connector for Agents {
    async fn connect(
        &self,
        _: Option<HomeClass>,
        _: &Arc<Meter>,
    ) -> Result<Arc<dyn crate::remote::Connection>> {
        let (_agent, stream) = agent(&self.root);
        *self.last.lock() = Some(stream.try_clone().unwrap());
        Ok(Arc::new(session(stream, &self.told).await))
    }
}

#[tokio::test]
async fn a_home_that_was_lost_is_connected_again_by_who_waits_for_changes() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("d")).unwrap();
    let told = Arc::new(Told::new(new_name()));
    let agents = Arc::new(Agents { root: dir.path().into(), told: told.clone(), last: Mutex::default() });
    let home = crate::remote::RemoteHome::new(agents.clone());
    let (heard, mut names) = tokio::sync::mpsc::unbounded_channel();
    let listener = home.clone();
    tokio::spawn(async move {
        loop {
            let changes = listener.changes().await;
            changes.into_iter().flat_map(|c| c.names).for_each(|name| heard.send(name.to_string()).unwrap());
        }
    });
    home.attach().await.unwrap();
    until_kept(&told).await;
    let watched = home.watch(&loc(b"d"), 10, 5).await.unwrap().epoch;
    assert!(watched.is_some());
    let cut = agents.last.lock().take().unwrap();
    cut.shutdown(std::net::Shutdown::Both).unwrap();
    fs::write(dir.path().join("d/unheard"), b"").unwrap();
    let name = tokio::time::timeout(Duration::from_secs(10), names.recv()).await.unwrap();
    assert_eq!(name.as_deref(), Some("unheard"), "nobody has asked for anything");
    assert!(agents.last.lock().is_some());
    let goes_on = async {
        while home.epoch().is_none() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        home.epoch()
    };
    assert_eq!(tokio::time::timeout(Duration::from_secs(10), goes_on).await.unwrap(), watched);
}
