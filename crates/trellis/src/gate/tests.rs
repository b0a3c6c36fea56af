//! The gate before a home that counts logins.

use super::*;
use home::{HomeId, Time, Turn};
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

/// Connections to nowhere, counted.
struct Knocker {
    logins: AtomicUsize,
    running: AtomicUsize,
    most: AtomicUsize,
    boot: String,
}

/// A home that only knows directories.
struct Dirs {
    boot: String,
}

impl Knocker {
    fn new(boot: &str) -> Arc<Knocker> {
        let none = || AtomicUsize::new(0);
        Arc::new(Knocker { logins: none(), running: none(), most: none(), boot: boot.into() })
    }

    fn logins(&self) -> usize {
        self.logins.load(Ordering::SeqCst)
    }
}

#[async_trait::async_trait]
impl Connector for Knocker {
    async fn connect(&self, _: Option<Class>, _: &Arc<Meter>) -> Result<Arc<dyn Connection>> {
        self.logins.fetch_add(1, Ordering::SeqCst);
        let now = self.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(20)).await;
        self.running.fetch_sub(1, Ordering::SeqCst);
        Ok(Arc::new(Dirs { boot: self.boot.clone() }))
    }
}

#[async_trait::async_trait]
impl Connection for Dirs {
    async fn ended(&self) -> Error {
        std::future::pending().await
    }
}

fn attr() -> home::Attr {
    let time = Time { sec: 1, nsec: 0 };
    home::Attr {
        id: HomeId::default(),
        kind: home::Kind::Dir,
        mode: 0o755,
        nlink: 2,
        uid: 1,
        gid: 1,
        size: 0,
        used: 0,
        atime: time,
        mtime: time,
        ctime: time,
        access: home::Access::ALL,
    }
}

#[async_trait::async_trait]
impl Home for Dirs {
    fn status(&self) -> Status {
        Status::new(Link::Up, Some(Class::Posix))
    }
    async fn attach(&self) -> Result<Hello> {
        Ok(Hello {
            class: Class::Posix,
            stages: true,
            uid: 1,
            gid: 1,
            groups: vec![],
            home_dir: HomePath::root(),
            token: None,
            token_is_new: false,
            boot_id: Bytes::from(self.boot.clone()),
            clock: Time::default(),
            place: None,
        })
    }
    async fn stat(&self, _: &Loc) -> Result<Seen> {
        Ok(Seen { applied: 0, attr: attr() })
    }
    async fn list(&self, _: &Loc, _: Option<&Name>, _: u32) -> Result<Page> {
        Ok(Page { applied: 0, dir: attr(), entries: vec![], more: false })
    }
    async fn watch(&self, dir: &Loc, max: u32, _: u64) -> Result<Watched> {
        Ok(Watched { page: self.list(dir, None, max).await?, epoch: self.epoch() })
    }
    async fn confirm(&self, dirs: Vec<Believed>, _: bool) -> Result<Vec<Result<Belief>>> {
        Ok(dirs.iter().map(|_| Ok(Belief::Unlike)).collect())
    }
    fn confirms(&self) -> bool {
        true
    }
    async fn changes(&self) -> Vec<Changed> {
        vec![Changed { mark: 5.into(), ..Changed::default() }]
    }
    fn epoch(&self) -> Option<u64> {
        Some(9)
    }
    fn window(&self) -> Option<u64> {
        Some(3)
    }
    async fn read(&self, _: &Loc, _: u64, _: u32) -> Result<Chunk> {
        Err(ErrorKind::IsDir.into())
    }
    async fn watch_later(&self, _: &Loc, _: u32, _: u64) -> Result<Watched> {
        Err(ErrorKind::NoSpace.into())
    }
    async fn read_in(&self, _: Turn, _: &Loc, _: u64, _: u32) -> Result<Chunk> {
        Err(ErrorKind::NoSpace.into())
    }
    async fn readlink(&self, _: &Loc) -> Result<Bytes> {
        Err(ErrorKind::Invalid.into())
    }
    async fn statfs(&self, _: &Loc) -> Result<StatFs> {
        Err(ErrorKind::Unsupported.into())
    }
    async fn stage(&self, _: OpId, _: u64, _: Bytes) -> Result<()> {
        Ok(())
    }
    async fn claim(&self, _: u64, _: u32, lost: Vec<u64>) -> Result<Option<Claimed>> {
        Ok(Some(Claimed { begun: lost, ..Claimed::default() }))
    }
    async fn apply(&self, _: Vec<Placed>) -> Result<Vec<Outcome>> {
        Ok(vec![])
    }
}

fn gate(knocker: &Arc<Knocker>, door: &Arc<Door>, host: &HostLock) -> Gate {
    Gate::new(Arc::clone(knocker) as Arc<dyn Connector>, Arc::clone(door), Arc::clone(host), false)
}

fn at(path: &str) -> Loc {
    Loc { path: HomePath::parse(path.as_bytes()).unwrap(), id: None }
}

#[tokio::test]
async fn what_can_wait_gets_through_as_that() {
    let gate = gate(&Knocker::new(""), &Door::new(OwnMounts::default()), &HostLock::default());
    assert_eq!(gate.read_in(Turn::Later, &at("f"), 0, 1).await.unwrap_err().kind, ErrorKind::NoSpace);
    assert_eq!(gate.window(), Some(3));
    assert_eq!(gate.watch_later(&at("d"), 1, 1).await.unwrap_err().kind, ErrorKind::NoSpace);
}

#[tokio::test]
async fn what_is_known_is_asked_for() {
    let gate = gate(&Knocker::new(""), &Door::new(OwnMounts::default()), &HostLock::default());
    gate.attach().await.unwrap();
    let believed = Believed { dir: at("d"), mark: 1, digest: [0; 16] };
    assert!(gate.confirms());
    assert_eq!(gate.confirm(vec![believed], true).await.unwrap(), [Ok(Belief::Unlike)]);
}

#[tokio::test]
async fn a_claim_gets_through() {
    let gate = gate(&Knocker::new(""), &Door::new(OwnMounts::default()), &HostLock::default());
    assert_eq!(gate.claim(1, 2, vec![3, 4]).await.unwrap().unwrap().begun, [3, 4]);
}

#[tokio::test]
async fn what_the_home_tells_gets_through() {
    let gate = gate(&Knocker::new(""), &Door::new(OwnMounts::default()), &HostLock::default());
    assert_eq!(gate.epoch(), None, "nothing is told without a connection");
    assert_eq!(gate.watch(&at(""), 1, 5).await.unwrap().epoch, Some(9));
    assert_eq!(
        (gate.epoch(), gate.changes().await[0].mark, gate.status().watches),
        (Some(9), 5.into(), true)
    );
}

#[tokio::test]
async fn accounts_of_one_host_log_in_one_after_the_other() {
    let knocker = Knocker::new("");
    let (door, host) = (Door::new(OwnMounts::default()), HostLock::default());
    let calls: Vec<_> = (0..4)
        .map(|_| {
            let gate = gate(&knocker, &door, &host);
            tokio::spawn(async move { gate.attach().await.is_ok() })
        })
        .collect();
    for call in calls {
        assert!(call.await.unwrap());
    }
    assert_eq!((knocker.logins(), knocker.most.load(Ordering::SeqCst)), (4, 1));
}

#[tokio::test]
async fn hosts_beyond_the_burst_wait_for_their_turn() {
    let door = Door::new(OwnMounts::default());
    for _ in 0..limits::CONNECT_BURST {
        door.turn(0).await.unwrap();
    }
    let soon = tokio::time::timeout(Duration::from_millis(100), door.turn(0)).await;
    assert!(soon.is_err());
    let knocker = Knocker::new("");
    let late = gate(&knocker, &door, &HostLock::default());
    assert!(tokio::time::timeout(Duration::from_millis(100), late.attach()).await.is_err());
    assert_eq!(knocker.logins(), 0);
}

#[tokio::test]
async fn the_home_that_nobody_needs_leaves_for_a_new_one() {
    let knocker = Knocker::new("");
    let door = Door::with_bound(OwnMounts::default(), 2);
    let gates: Vec<_> = (0..3).map(|_| gate(&knocker, &door, &HostLock::default())).collect();
    gates[0].attach().await.unwrap();
    gates[1].attach().await.unwrap();
    gates[0].stat(&at("x")).await.unwrap();
    gates[2].attach().await.unwrap();
    let links: Vec<_> = gates.iter().map(|g| g.status().link).collect();
    assert_eq!(links, [Link::Up, Link::Idle, Link::Up]);
    let _busy = (gates[0].call(), gates[2].call());
    assert_eq!(door.make_room().unwrap_err().kind, ErrorKind::Busy);
}

#[tokio::test]
async fn a_home_that_nobody_needs_is_closed_and_comes_back() {
    let door = Door::new(OwnMounts::default());
    let knocker = Knocker::new("b");
    let home = gate(&knocker, &door, &HostLock::default());
    home.attach().await.unwrap();
    let call = home.call();
    door.close_unused(Duration::ZERO);
    assert_eq!(home.status().link, Link::Up, "a call is under way");
    drop(call);
    door.close_unused(Duration::from_secs(3600));
    assert_eq!(home.status().link, Link::Up, "it was needed just now");
    door.close_unused(Duration::ZERO);
    assert_eq!(home.status().link, Link::Idle);
    home.attach().await.unwrap();
    assert_eq!(knocker.logins(), 2);
}

#[tokio::test]
async fn no_descent_into_our_own_tree() {
    let boot = crate::state::boot_id();
    assert!(!boot.is_empty());
    // SFTP tells no boot: then the name of the host decides.
    let cases = [(boot.as_str(), "far:22", true), ("another boot", "localhost:22", false)];
    for (boot, host, refused) in cases.into_iter().chain([("", "localhost:22", true), ("", "far:22", false)])
    {
        let door = Door::new(OwnMounts::fixed(&["trellis", "srv/deep"]));
        let gate = Gate::new(Knocker::new(boot), door, HostLock::default(), is_this_machine(host));
        gate.attach().await.unwrap();
        assert_eq!(gate.list(&at("trellis"), None, 1).await.is_err(), refused);
        assert_eq!(gate.stat(&at("trellis/lab")).await.is_err(), refused);
        assert_eq!(gate.list(&at("srv/deep/x"), None, 1).await.is_err(), refused);
        assert!(gate.stat(&at("trellis")).await.is_ok());
        assert!(gate.list(&at("trellis2"), None, 1).await.is_ok());
        assert!(gate.list(&at("srv"), None, 1).await.is_ok());
    }
}

#[test]
fn names_of_this_machine() {
    let own = rustix::system::uname().nodename().to_string_lossy().to_ascii_lowercase();
    for host in ["localhost:22", "127.0.0.2:22", "::1:22", "[::1]:22", &format!("{own}:2222")] {
        assert!(is_this_machine(host), "{host}");
    }
    for host in ["localhost.example.org:22", "10.0.0.1:22", "far:22"] {
        assert!(!is_this_machine(host), "{host}");
    }
}
