//! The root directory over an ssh configuration that the test makes up.

use super::*;
use crate::config;
use crate::mounts::OwnMounts;
use home::remote::{Connection, Meter};
use std::sync::atomic::{AtomicUsize, Ordering};

/// ssh as in a configuration where `lab` is an alias of `ann@lab.example.org`.
#[derive(Default)]
struct Fake {
    asked: AtomicUsize,
    asking: AtomicUsize,
    most_asking: AtomicUsize,
    made: AtomicUsize,
}

/// Connects to nobody.
struct Nowhere;

#[async_trait::async_trait]
impl Connector for Nowhere {
    async fn connect(&self, _: Option<home::Class>, _: &Arc<Meter>) -> Result<Arc<dyn Connection>> {
        Err(ErrorKind::Unreachable.into())
    }
}

#[async_trait::async_trait]
impl Accounts for Fake {
    async fn identity(&self, account: &Account) -> Result<String> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        self.most_asking.fetch_max(self.asking.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        tokio::task::yield_now().await;
        self.asking.fetch_sub(1, Ordering::SeqCst);
        let user = account.user.as_deref().unwrap_or("ann");
        let host = if account.host == "lab" { "lab.example.org" } else { &account.host };
        Ok(format!("{user}@{host}:22"))
    }
    fn remote(&self, _: &Account) -> Result<Arc<dyn Connector>> {
        self.made.fetch_add(1, Ordering::SeqCst);
        Ok(Arc::new(Nowhere))
    }
    fn local(&self, _: &HomePath) -> Result<Arc<dyn Home>> {
        let dir = std::env::temp_dir();
        let posix = home::posix::Posix::open(dir.as_os_str().as_encoded_bytes())?;
        Ok(Arc::new(home::posix::PosixHome::new(posix)))
    }
}

fn root(config: &str, dynamic: Dynamic) -> Root<Fake> {
    let entries = config::parse(config).unwrap().home;
    Root::new(entries, dynamic, Fake::default(), Door::new(OwnMounts::default()))
}

async fn resolve(root: &Root<Fake>, name: &str) -> Result<Mount> {
    root.resolve(&Name::new(name.as_bytes()).unwrap()).await
}

const LAB: &str = "[[home]]\nname = \"work\"\nscl = \"scp:lab:/data\"\nmode = \"strict\"\nprotect = []\n\
                   [[home]]\nname = \"here\"\nscl = \"local:/srv\"\n";

#[tokio::test]
async fn all_spellings_of_an_account_share_one_home() {
    let root = root(LAB, Dynamic::All);
    let mut mounts = Vec::new();
    for (name, start) in [
        ("lab", Start::Root),
        ("ann@lab", Start::Root),
        ("scp:lab:", Start::Root),
        ("ssh:ann@lab.example.org:", Start::Root),
        ("scp:lab:.", Start::HomeDir),
        ("work", Start::Path(HomePath::parse(b"data").unwrap())),
    ] {
        let mount = resolve(&root, name).await.unwrap();
        assert_eq!((mount.account.as_str(), mount.start), ("ann@lab.example.org:22", start), "{name}");
        assert_eq!(mount.options.mode, Some(Mode::Strict), "{name}");
        assert!(mount.options.protect.is_empty(), "{name}");
        mounts.push(mount.home);
    }
    assert!(mounts.iter().all(|home| Arc::ptr_eq(home, &mounts[0])));
    assert_eq!(root.accounts.made.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn other_accounts_have_the_usual_policies_and_are_asked_about_once() {
    let root = root("", Dynamic::All);
    let one = resolve(&root, "bob@lab").await.unwrap();
    let two = resolve(&root, "bob@lab").await.unwrap();
    assert_eq!(one.account, "bob@lab.example.org:22");
    assert!(Arc::ptr_eq(&one.home, &two.home));
    assert_eq!(root.accounts.asked.load(Ordering::SeqCst), 1);
    let protect: Vec<_> = one.options.protect.iter().map(ToString::to_string).collect();
    assert_eq!(protect, ["/.ssh", "/.gnupg", "/.cache/trellis"]);
    assert_eq!((one.options.mode, one.options.share, one.options.rebase_symlinks), (None, None, false));
}

#[tokio::test]
async fn what_is_no_host_is_not_found_without_asking_ssh() {
    let root = root(LAB, Dynamic::All);
    for name in [".git", "scp:-oProxyCommand=x:", "-x", "scp:lab", "a b", "lab:", "x\u{1b}y"] {
        assert_eq!(resolve(&root, name).await.err().map(|e| e.kind), Some(ErrorKind::NotFound), "{name:?}");
    }
    assert_eq!(root.accounts.asked.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn beyond_loopback_only_patterns_and_configured_names_lead_anywhere() {
    let patterns = Dynamic::Only(vec!["*.example.org".parse().unwrap()]);
    let root = root(LAB, patterns);
    assert!(resolve(&root, "x.example.org").await.is_ok());
    assert!(resolve(&root, "work").await.is_ok());
    let refused = resolve(&root, "lab").await.err().unwrap();
    assert_eq!(refused.kind, ErrorKind::NotFound);
    assert!(refused.detail.contains("--hosts"), "{refused}");
}

#[tokio::test]
async fn local_homes_are_strict_and_only_configured() {
    let root = root(LAB, Dynamic::All);
    let here = resolve(&root, "here").await.unwrap();
    assert_eq!((here.account.as_str(), here.start), ("local:/srv", Start::Root));
    assert_eq!(here.options.mode, Some(Mode::Strict));
    assert!(resolve(&root, "local:").await.is_err());
    let names: Vec<_> = root.configured().iter().map(ToString::to_string).collect();
    assert_eq!(names, ["work", "here"]);
}

#[tokio::test]
async fn names_that_nobody_uses_are_forgotten_when_there_are_too_many() {
    let root = root("", Dynamic::All);
    let kept = resolve(&root, "kept").await.unwrap();
    for n in 0..limits::NAMES_KNOWN + 5 {
        root.identity(&Account { user: None, host: format!("h{n}") }).await.unwrap();
    }
    assert!(root.known().identities.len() <= limits::NAMES_KNOWN);
    assert!(Arc::ptr_eq(&resolve(&root, "kept").await.unwrap().home, &kept.home));
}

#[tokio::test]
async fn names_of_other_rules_are_not_listed() {
    let root = root(LAB, Dynamic::Only(vec!["*.example.org".parse().unwrap()]));
    let permitted = |name: &str| root.permits(&Name::new(name.as_bytes()).unwrap());
    assert!(permitted("work") && permitted("here") && permitted("scp:x.example.org:."));
    assert!(!permitted("lab") && !permitted("scp:lab:") && !permitted("-x") && !permitted(".git"));
}

#[tokio::test]
async fn absolute_links_lead_below_a_name_of_the_root_of_the_host() {
    let name = |text: &str| Name::new(text.as_bytes()).unwrap();
    let found = |root: &Root<Fake>, names: &[&str]| {
        let names: Vec<Name> = names.iter().map(|n| name(n)).collect();
        root.root_name(&names).map(|n| n.to_string())
    };
    let open = root(LAB, Dynamic::All);
    assert_eq!(found(&open, &["work"]).as_deref(), Some("lab"));
    assert_eq!(found(&open, &["scp:ann@lab:."]).as_deref(), Some("ann@lab"));
    assert_eq!(found(&open, &["here"]).as_deref(), Some("here"));
    let closed = root(LAB, Dynamic::Only(vec![]));
    assert_eq!(found(&closed, &["work", "scp:lab:"]), None);
    let whole = format!("{LAB}[[home]]\nname = \"all\"\nscl = \"scp:lab:/\"\n");
    assert_eq!(found(&root(&whole, Dynamic::Only(vec![])), &["work"]).as_deref(), Some("all"));
}

#[tokio::test]
async fn few_processes_are_asked_at_the_same_time() {
    let root = Arc::new(root("", Dynamic::All));
    let mut lookups = tokio::task::JoinSet::new();
    for i in 0..100 {
        let root = Arc::clone(&root);
        lookups.spawn(async move { resolve(&root, &format!("ann@host{i}")).await.is_ok() });
    }
    assert!(lookups.join_all().await.into_iter().all(|found| found));
    assert_eq!(root.accounts.most_asking.load(Ordering::SeqCst), limits::SSH_ASKS);
}
