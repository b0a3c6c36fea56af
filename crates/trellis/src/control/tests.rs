//! Both ends over a pipe, with the engine on a home in memory.

use super::client::Client;
use super::proto::{Entry, Id, Object, Raw, Reply, Request, Set, When};
use super::server::{Control, StopRequest, converse};
use crate::attach::server::Attachments;
use crate::login::watch::Watch;
use crate::login::{Logins, Way};
use crate::mount::Mounts;
use crate::state::StateDir;
use home::memory::MemoryHome;
use home::{ErrorKind, Home, HomePath, Name};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::DuplexStream;
use tokio::sync::mpsc;
use vfs::store::MemStore;
use vfs::{Cred, Mode, Mount, MountOptions, Namespace, Start, Vfs};

/// A root with one name, `lab`.
struct Lab(Arc<dyn Home>);

#[async_trait::async_trait]
impl Namespace for Lab {
    fn configured(&self) -> Vec<Name> {
        vec![Name::new(b"lab").unwrap()]
    }
    async fn resolve(&self, name: &Name) -> home::Result<Mount> {
        if name.as_bytes() != b"lab" {
            return Err(ErrorKind::NotFound.into());
        }
        let options = MountOptions::default();
        let start = Start::Path(HomePath::root());
        Ok(Mount { account: "ann@lab:22".into(), home: Arc::clone(&self.0), start, options })
    }
}

struct Server {
    client: Client<DuplexStream>,
    vfs: Arc<Vfs>,
    stops: mpsc::Receiver<StopRequest>,
    _state: tempfile::TempDir,
}

async fn server() -> Server {
    server_of(Arc::new(MemoryHome::new()), Arc::new(MemStore::default())).await
}

async fn server_of(home: Arc<MemoryHome>, store: Arc<MemStore>) -> Server {
    let state = tempfile::tempdir().unwrap();
    let namespace: Arc<dyn Namespace> = Arc::new(Lab(home));
    let cred = Cred { uid: 1000, gid: 1000, groups: vec![] };
    let vfs = Vfs::open(vfs::Config {
        env: vfs::env::Env::real(state.path()).unwrap(),
        store,
        namespace: Arc::clone(&namespace),
        server_uid: cred.uid,
        server_gid: cred.gid,
        mode: Mode::Wb,
        share: false,
        cache_bytes: 64 << 20,
        spool_from: None,
        batch_bytes: vfs::BATCH_BYTES,
        staleness: Duration::from_secs(5),
    })
    .await
    .unwrap();
    let (stop, stops) = mpsc::channel(1);
    let dir = StateDir::create(Some(&state.path().join("s")), true).unwrap();
    let mounts = Mounts::new(Arc::clone(&vfs), cred.clone(), dir.clone());
    let logins = Arc::new(Logins { homes: vec![], way: Way::default() });
    let watch = Arc::new(Watch::new(Arc::clone(&logins), dir));
    let nfs = vec!["127.0.0.1:7".parse().unwrap()];
    let attachments = Attachments::new(Arc::clone(&vfs), cred.clone());
    let ours = Arc::clone(&vfs);
    let control = Control { vfs, namespace, cred, nfs, mounts, attachments, stop, logins, watch };
    let (near, far) = tokio::io::duplex(64 << 10);
    tokio::spawn(async move { converse(&control, far).await });
    Server { client: Client::over(near), vfs: ours, stops, _state: state }
}

impl Server {
    async fn object(&mut self, request: Request) -> home::Result<Object> {
        match self.client.ask(request).await? {
            Reply::Object(object) => Ok(object),
            other => panic!("{other:?}"),
        }
    }

    async fn lab(&mut self) -> Id {
        self.object(Request::Resolve(Raw(b"/lab".to_vec()))).await.unwrap().id
    }

    async fn done(&mut self, request: Request, payload: &[u8]) {
        assert_eq!(self.client.call(request, payload).await.unwrap().0, Reply::Done);
    }
}

fn entry(dir: Id, name: &[u8]) -> Entry {
    Entry { dir, name: name.into() }
}

#[tokio::test]
async fn a_file_is_written_listed_and_read() {
    let mut server = server().await;
    let lab = server.lab().await;
    let name = b"x\xff\n";
    let file =
        server.object(Request::Create { entry: entry(lab, name), mode: 0o640, new: true }).await.unwrap();
    assert_eq!((file.attr.kind, file.attr.mode), ('-', 0o640));
    let text = vec![b'a'; 300_000];
    server.done(Request::Write { file: file.id, at: 0 }, &text).await;
    server.done(Request::Write { file: file.id, at: text.len() as u64 }, b"end").await;
    let set = Set { mode: Some(0o600), mtime: Some(When::At(7, 8)), commit: true, ..Set::default() };
    server.done(Request::Set { object: file.id, set }, b"").await;
    let found = server.object(Request::Lookup(entry(lab, name))).await.unwrap();
    assert_eq!((found.id, found.attr.size, found.attr.mode), (file.id, 300_003, 0o600));
    assert_eq!(found.attr.mtime, (7, 8));
    let Reply::Page(page) = server.client.ask(Request::List { dir: lab, after: 0 }).await.unwrap() else {
        panic!("no page")
    };
    assert_eq!(page.entries.iter().map(|(n, _)| &n.0[..]).collect::<Vec<_>>(), [&name[..]]);
    assert_eq!(page.next, None);
    let read = Request::Read { file: file.id, at: 299_999, len: 100 };
    let (reply, bytes) = server.client.call(read, b"").await.unwrap();
    assert_eq!((reply, &bytes[..]), (Reply::Data { eof: true }, &b"aend"[..]));
}

#[tokio::test]
async fn a_connection_hears_how_far_its_prefetch_is() {
    let mut server = server().await;
    let lab = server.lab().await;
    let name = entry(lab, b"f");
    let file = server.object(Request::Create { entry: name, mode: 0o644, new: true }).await.unwrap();
    server.done(Request::Write { file: file.id, at: 0 }, b"content").await;
    let paths = [&b"/lab"[..], b"/lab/missing"].map(Raw::from).to_vec();
    server.done(Request::Prefetch { paths, names_only: false }, b"").await;
    let mut failed = Vec::new();
    let report = loop {
        match server.client.ask(Request::Prefetched).await.unwrap() {
            Reply::Prefetched(mut report) => {
                failed.append(&mut report.failed);
                if report.over {
                    break report;
                }
            }
            other => panic!("{other:?}"),
        }
    };
    assert_eq!((report.files, report.bytes, report.names), ((1, 1), (7, 7), 1));
    assert_eq!(failed.iter().map(|(path, _)| &path.0[..]).collect::<Vec<_>>(), [&b"/lab/missing"[..]]);
}

#[tokio::test]
async fn making_a_file_again_empties_it() {
    let mut server = server().await;
    let lab = server.lab().await;
    let create = Request::Create { entry: entry(lab, b"f"), mode: 0o644, new: false };
    let one = server.object(create.clone()).await.unwrap();
    server.done(Request::Write { file: one.id, at: 0 }, b"old").await;
    let two = server.object(create).await.unwrap();
    assert_eq!((two.id, two.attr.size), (one.id, 0));
}

#[tokio::test]
async fn directories_and_links() {
    let mut server = server().await;
    let lab = server.lab().await;
    let dir = server.object(Request::Mkdir { entry: entry(lab, b"d"), mode: 0o750 }).await.unwrap();
    assert_eq!((dir.attr.kind, dir.attr.mode), ('d', 0o750));
    let link = Request::Symlink { entry: entry(dir.id, b"l"), target: Raw(b"../t\xfe".to_vec()) };
    let link = server.object(link).await.unwrap();
    let target = server.client.ask(Request::Readlink(link.id)).await.unwrap();
    assert_eq!(target, Reply::Target(Raw(b"../t\xfe".to_vec())));
    let again = server.object(Request::Mkdir { entry: entry(lab, b"d"), mode: 0o700 }).await;
    assert_eq!(again.unwrap_err().kind, ErrorKind::Exists);
}

/// A folder that may be read and not searched shows its names, and nothing of what they stand for.
#[tokio::test]
async fn what_may_not_be_searched_is_listed_by_name_alone() {
    let mut server = server().await;
    let lab = server.lab().await;
    let dir = server.object(Request::Mkdir { entry: entry(lab, b"d"), mode: 0o700 }).await.unwrap().id;
    server.object(Request::Create { entry: entry(dir, b"f"), mode: 0o644, new: true }).await.unwrap();
    let sync = Request::Sync { path: None, timeout_s: 20.0 };
    server.done(sync.clone(), b"").await;
    for (mode, is_known) in [(0o700, true), (0o600, false), (0o700, true)] {
        let set = Set { mode: Some(mode), ..Set::default() };
        server.done(Request::Set { object: dir, set }, b"").await;
        let Reply::Page(page) = server.client.ask(Request::List { dir, after: 0 }).await.unwrap() else {
            panic!("no page")
        };
        assert_eq!(page.entries.len(), 1);
        assert_eq!(
            (&page.entries[0].0.0[..], page.entries[0].1.is_some()),
            (&b"f"[..], is_known),
            "{mode:o}"
        );
    }
    let set = Set { mode: Some(0o600), ..Set::default() };
    server.done(Request::Set { object: dir, set }, b"").await;
    let denied = server.object(Request::Lookup(entry(dir, b"f"))).await.unwrap_err();
    assert_eq!(denied.kind, ErrorKind::Access);
}

#[tokio::test]
async fn names_move_and_go() {
    let mut server = server().await;
    let lab = server.lab().await;
    let create = Request::Create { entry: entry(lab, b"a"), mode: 0o644, new: true };
    let file = server.object(create.clone()).await.unwrap();
    assert_eq!(server.object(create).await.unwrap_err().kind, ErrorKind::Exists);
    let dir = server.object(Request::Mkdir { entry: entry(lab, b"d"), mode: 0o750 }).await.unwrap();
    server.done(Request::Link { object: file.id, entry: entry(dir.id, b"b") }, b"").await;
    server.done(Request::Rename { from: entry(lab, b"a"), to: entry(dir.id, b"c") }, b"").await;
    let found = server.object(Request::Lookup(entry(dir.id, b"c"))).await.unwrap();
    assert_eq!((found.id, found.attr.nlink), (file.id, 2));
    let full = server.client.ask(Request::Remove { entry: entry(lab, b"d"), is_dir: true }).await;
    assert_eq!(full.unwrap_err().kind, ErrorKind::NotEmpty);
    for name in [&b"b"[..], b"c"] {
        server.done(Request::Remove { entry: entry(dir.id, name), is_dir: false }, b"").await;
    }
    server.done(Request::Remove { entry: entry(lab, b"d"), is_dir: true }, b"").await;
    server.done(Request::SyncHome { object: lab, timeout_s: 20.0 }, b"").await;
    let Reply::Space(_) = server.client.ask(Request::StatFs(lab)).await.unwrap() else { panic!("no space") };
    let gone = server.object(Request::Lookup(entry(lab, b"d"))).await.unwrap_err();
    assert_eq!(gone.kind, ErrorKind::NotFound);
}

#[tokio::test]
async fn reasons_arrive_as_they_were() {
    let mut server = server().await;
    for (path, kind) in [("/nowhere", ErrorKind::NotFound), ("/lab/none", ErrorKind::NotFound)] {
        let failed = server.object(Request::Resolve(Raw(path.into()))).await.unwrap_err();
        assert_eq!(failed.kind, kind, "{path}");
    }
    let bad = server.client.ask(Request::Sync { path: None, timeout_s: -1.0 }).await.unwrap_err();
    assert_eq!(bad.kind, ErrorKind::Invalid);
}

#[tokio::test]
async fn sync_means_at_home_and_status_tells() {
    let mut server = server().await;
    let lab = server.lab().await;
    server.object(Request::Create { entry: entry(lab, b"f"), mode: 0o644, new: false }).await.unwrap();
    let sync = Request::Sync { path: Some(Raw(b"/lab/f".to_vec())), timeout_s: 20.0 };
    server.done(sync, b"").await;
    server.done(Request::Sync { path: None, timeout_s: 20.0 }, b"").await;
    let Reply::Status(report) = server.client.ask(Request::Status).await.unwrap() else {
        panic!("no status")
    };
    assert_eq!(report.nfs, ["127.0.0.1:7"]);
    let home = &report.homes[0];
    assert_eq!((home.account.as_str(), home.unsent_ops, home.mode.as_str()), ("ann@lab:22", 0, "wb"));
    let names = server.client.ask(Request::Names).await.unwrap();
    assert_eq!(names, Reply::Names(vec![Raw(b"lab".to_vec())]));
}

/// Who logs in hears of an account that is not the one that it was, though it answers.
#[tokio::test]
async fn a_login_to_another_account_is_no_connection() {
    let (home, store) = (Arc::new(MemoryHome::new()), Arc::new(MemStore::default()));
    let mut first = server_of(Arc::clone(&home), Arc::clone(&store)).await;
    first.lab().await;
    first.done(Request::LoggedIn("lab".into()), b"").await;
    first.vfs.close(None).await;
    home.set_token([7; 16]);
    let mut again = server_of(home, store).await;
    let told = again.client.ask(Request::LoggedIn("lab".into())).await.unwrap_err();
    assert!(told.detail.contains("another account answers"), "{}", told.detail);
}

#[tokio::test]
async fn a_home_gets_another_mode() {
    let mut server = server().await;
    let lab = server.lab().await;
    let mode = |path: &str, mode: &str| Request::Mode { path: Raw(path.into()), mode: mode.into() };
    server.done(mode("/lab/some/path", "offline"), b"").await;
    server.object(Request::Create { entry: entry(lab, b"f"), mode: 0o644, new: false }).await.unwrap_err();
    let Reply::Status(report) = server.client.ask(Request::Status).await.unwrap() else {
        panic!("no status")
    };
    assert_eq!((report.homes[0].mode.as_str(), report.homes[0].staleness_s), ("offline", None));
    server.done(mode("lab", "wb"), b"").await;
    server.object(Request::Create { entry: entry(lab, b"f"), mode: 0o644, new: false }).await.unwrap();
    for (path, new) in [("/lab", "strict"), ("/lab", "quick"), ("/", "wb")] {
        let failed = server.client.ask(mode(path, new)).await.unwrap_err();
        assert_eq!(failed.kind, ErrorKind::Invalid, "{path} {new}");
    }
}

#[tokio::test]
async fn a_wish_to_stop_is_handed_on_and_answered() {
    let mut server = server().await;
    let mut stops = std::mem::replace(&mut server.stops, mpsc::channel(1).1);
    let serve = tokio::spawn(async move {
        let request = stops.recv().await.unwrap();
        request.done.send(vec![]).unwrap();
        request.drain
    });
    let reply = server.client.ask(Request::Stop { drain_s: 2.5 }).await.unwrap();
    assert_eq!(reply, Reply::Unsent(vec![]));
    assert_eq!(serve.await.unwrap(), Duration::from_millis(2500));
    let again = server.client.ask(Request::Stop { drain_s: 1.0 }).await.unwrap_err();
    assert_eq!(again.kind, ErrorKind::Busy);
}

#[tokio::test]
async fn a_server_that_starts_or_ends_is_waited_for() {
    let temp = tempfile::tempdir().unwrap();
    let dir = StateDir::create(Some(&temp.path().join("s")), true).unwrap();
    assert!(Client::reach(&dir).await.unwrap().is_none());
    let reach = || {
        let dir = dir.clone();
        tokio::spawn(async move { Client::reach(&dir).await })
    };
    let lock = dir.lock_server().unwrap();
    let starts = reach();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!starts.is_finished());
    let listener = tokio::net::UnixListener::bind(dir.socket_path().unwrap().0).unwrap();
    assert!(starts.await.unwrap().unwrap().is_some());
    drop(listener);
    std::fs::remove_file(dir.socket_path().unwrap().0).unwrap();
    let ends = reach();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!ends.is_finished());
    drop(lock);
    assert!(ends.await.unwrap().unwrap().is_none());
}
