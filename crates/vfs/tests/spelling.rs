//! What a name of the root directory means after ssh's configuration has changed.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

mod common;

use common::{Engine, UID, World};
use home::memory::MemoryHome;
use home::testing::fault::Fault;
use home::{Home, Name};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use vfs::env::testing::SeededRng;
use vfs::env::{Env, RealClock};
use vfs::{Config, Cred, Mode, Mount, MountOptions, Namespace, Start, Vfs};

/// `lab`, and what ssh says that it is.
struct Alias {
    account: &'static str,
    home: Arc<dyn Home>,
    /// ssh does not accept its configuration.
    broken: Arc<AtomicBool>,
}

#[async_trait::async_trait]
impl Namespace for Alias {
    fn configured(&self) -> Vec<Name> {
        Vec::new()
    }
    fn permits(&self, name: &Name) -> bool {
        name.as_bytes() == b"lab"
    }
    fn root_name(&self, names: &[Name]) -> Option<Name> {
        names.first().cloned()
    }
    async fn resolve(&self, name: &Name) -> home::Result<Mount> {
        if !self.permits(name) {
            return Err(home::ErrorKind::NotFound.into());
        }
        if self.broken.load(Ordering::Relaxed) {
            return Err(home::Error::new(home::ErrorKind::Login, "bad configuration option"));
        }
        let options = MountOptions { rebase_symlinks: true, ..MountOptions::default() };
        Ok(Mount { account: self.account.into(), home: self.home.clone(), start: Start::Root, options })
    }
}

async fn start(world: &World, account: &'static str, home: Arc<dyn Home>) -> Engine {
    start_by(world, Alias { account, home, broken: Arc::default() }).await
}

async fn start_by(world: &World, alias: Alias) -> Engine {
    let env = Env {
        disk: Arc::new(world.disk.clone()),
        clock: Arc::new(RealClock::new()),
        rng: Arc::new(SeededRng::new(rand::random())),
        work: Arc::new(vfs::env::Threads),
    };
    let vfs = Vfs::open(Config {
        env,
        store: world.store.clone(),
        namespace: Arc::new(alias),
        server_uid: UID,
        server_gid: UID,
        mode: Mode::Wb,
        share: false,
        cache_bytes: world.cache,
        spool_from: None,
        batch_bytes: vfs::BATCH_BYTES,
        staleness: world.staleness,
    });
    Engine { vfs: vfs.await.unwrap(), cred: Cred { uid: UID, gid: UID, groups: vec![] } }
}

/// A world in which `lab` was `ann@10.0.0.5:22`, and a file of it with what is unsent in the journal.
async fn with_unsent() -> (World, vfs::Oid) {
    let world = World::new(Mode::Wb);
    let engine = start(&world, "ann@10.0.0.5:22", world.fault.clone()).await;
    let lab = engine.lab().await;
    let file = engine.create(lab, "f").await.unwrap();
    engine.sync().await;
    world.fault(Fault::Unreachable);
    engine.write(file, 0, b"unsent").await.unwrap();
    engine.vfs.close(None).await;
    world.fault(Fault::None);
    (world, file)
}

#[tokio::test]
async fn a_known_name_keeps_its_volume_when_the_address_changes() {
    let (world, file) = with_unsent().await;
    let engine = start(&world, "ann@10.0.0.6:22", world.fault.clone()).await;
    assert_eq!(engine.find("/lab/f").await.unwrap(), file);
    engine.sync().await;
    assert_eq!(world.at_home("f").await.unwrap(), b"unsent");
}

#[tokio::test]
async fn nothing_unsent_goes_to_another_account_of_the_same_name() {
    let (world, file) = with_unsent().await;
    let other = MemoryHome::new();
    other.set_token([7; 16]);
    let engine = start(&world, "ann@other:22", Arc::new(other.clone())).await;
    let refused = engine.find("/lab/f").await.unwrap_err();
    assert_eq!(refused.kind, home::ErrorKind::Setup);
    assert!(refused.detail.contains("ann@10.0.0.5:22"), "{refused}");
    assert!(engine.vfs.sync(None, Duration::from_secs(2)).await.is_err());
    let root = home::Loc { path: home::HomePath::root(), id: None };
    let page = other.list(&root, None, 10).await.unwrap();
    assert!(page.entries.is_empty());
    engine.vfs.close(None).await;

    // The name leads back: the change goes home. Then it may come to mean the other account.
    let engine = start(&world, "ann@10.0.0.5:22", world.fault.clone()).await;
    assert_eq!(engine.find("/lab/f").await.unwrap(), file);
    engine.sync().await;
    assert_eq!(world.at_home("f").await.unwrap(), b"unsent");
    engine.vfs.close(None).await;
    let engine = start(&world, "ann@other:22", Arc::new(other)).await;
    assert_eq!(engine.find("/lab/f").await.unwrap_err().kind, home::ErrorKind::NotFound);
    assert_ne!(engine.lab().await.volume, file.volume);
}

#[tokio::test]
async fn a_configuration_that_was_mended_is_believed_soon() {
    let world = World::new(Mode::Wb);
    let broken = Arc::new(AtomicBool::new(true));
    let alias = Alias { account: "ann@lab:22", home: world.fault.clone(), broken: broken.clone() };
    let engine = start_by(&world, alias).await;
    assert!(engine.find("/lab").await.unwrap_err().detail.contains("bad configuration"));
    broken.store(false, Ordering::Relaxed);
    assert!(engine.find("/lab").await.is_err(), "not looked up again for every call");
    tokio::time::sleep(Duration::from_millis(1100)).await;
    engine.lab().await;
}

#[tokio::test]
async fn rebased_links_lead_below_the_mount() {
    let world = World::new(Mode::Wb);
    let engine = start(&world, "ann@lab:22", world.fault.clone()).await;
    let lab = engine.lab().await;
    for (name, target, seen) in
        [("absolute", "/etc/hosts", "/trellis/lab/etc/hosts"), ("relative", "../x", "../x")]
    {
        let made = engine.vfs.symlink(engine.ctx(), lab, name.as_bytes(), target.into(), Default::default());
        let link = made.await.unwrap().oid;
        assert_eq!(engine.vfs.readlink(engine.ctx(), link).await.unwrap().0, seen);
    }
}

#[tokio::test]
async fn a_name_of_an_account_that_lets_us_in_is_not_one_that_wants_a_login() {
    let world = World::new(Mode::Wb);
    let engine = world.start().await;
    world.fault(Fault::Shut);
    for name in ["/lab", "/scp:lab:"] {
        assert_eq!(engine.find(name).await.unwrap_err().kind, home::ErrorKind::Login);
    }
    let status = engine.vfs.status();
    assert_eq!(status.volumes.len(), 0, "who was never met has no volume");
    let names =
        |status: &vfs::VfsStatus| status.unreached.iter().map(|(names, _)| names.len()).collect::<Vec<_>>();
    assert_eq!(names(&status), [2], "two names of one account");
    world.fault(Fault::None);
    engine.vfs.forget_failures();
    world.fault(Fault::Shut);
    engine.find("/scp:lab:").await.unwrap_err();
    world.fault(Fault::None);
    engine.lab().await;
    let status = engine.vfs.status();
    assert_eq!((status.volumes.len(), status.unreached.len()), (1, 0));
}

#[tokio::test]
async fn the_root_has_the_space_of_its_homes() {
    let world = World::new(Mode::Wb);
    let engine = world.start().await;
    let space = async |oid| engine.vfs.statfs(engine.ctx(), oid).await.unwrap();
    assert_eq!(space(vfs::Oid::ROOT).await.total, 0, "no home was used");
    let lab = engine.lab().await;
    let all = space(vfs::Oid::ROOT).await;
    assert!(all.total > 0 && all == space(lab).await, "{all:?}");
    world.fault(Fault::Unreachable);
    assert_eq!(space(vfs::Oid::ROOT).await, all, "what was seen last");
}

/// `~/.cache` was emptied while something was unsent: the token is another one, and nobody was there to put it back.
#[tokio::test]
async fn an_account_without_its_token_is_known_by_its_place() {
    for moved in [false, true] {
        let world = World::new(Mode::Wb);
        world.memory.set_place(Some([1; 16]));
        let engine = start(&world, "ann@lab:22", world.fault.clone()).await;
        let lab = engine.lab().await;
        let file = engine.create(lab, "f").await.unwrap();
        engine.sync().await;
        world.fault(Fault::Unreachable);
        engine.write(file, 0, b"unsent").await.unwrap();
        engine.vfs.close(None).await;
        world.fault(Fault::None);
        world.memory.set_token([7; 16]);
        world.memory.set_place(Some([if moved { 2 } else { 1 }; 16]));

        let engine = start(&world, "ann@lab:22", world.fault.clone()).await;
        if moved {
            let unsent = engine.vfs.sync(None, Duration::from_secs(1)).await.unwrap_err();
            assert_eq!(unsent.len(), 1);
            let why = engine.vfs.status().volumes[0].suspended.clone().unwrap();
            assert!(why.contains("`trellis login --same-account lab`"), "{why}");
            assert_eq!(world.at_home("f").await.unwrap(), b"");
            let stranger = engine.vfs.in_doubt(file.volume).unwrap().unwrap();
            assert_eq!(stranger.token, [7; 16]);
            let other = engine.vfs.same_account(file.volume, [8; 16]).await.unwrap_err();
            assert_eq!(other.kind, home::ErrorKind::Stale);
            engine.vfs.same_account(file.volume, [7; 16]).await.unwrap();
        }
        assert_eq!(engine.find("/lab/f").await.unwrap(), file);
        engine.sync().await;
        assert_eq!(world.at_home("f").await.unwrap(), b"unsent");
        assert_eq!(engine.vfs.in_doubt(file.volume).unwrap(), None);
        engine.vfs.close(None).await;

        // From now on this is its token.
        world.memory.set_place(None);
        let engine = start(&world, "ann@lab:22", world.fault.clone()).await;
        assert_eq!(engine.find("/lab/f").await.unwrap(), file);
        engine.vfs.close(None).await;
    }
}
