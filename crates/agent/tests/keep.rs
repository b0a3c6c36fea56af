//! The program itself: what it watches outlives its connection.

use home::agent::client::{Session, Told, new_name};
use home::{Home, HomePath, Loc};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(10);

/// An agent over a directory, and a session with it.
async fn agent(root: &Path, told: &Arc<Told>) -> (Child, Session) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_trellis-agent"));
    program.arg("--root").arg(root).env("HOME", root).kill_on_drop(true);
    let mut child = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (reader, writer) = (child.stdout.take().unwrap(), child.stdin.take().unwrap());
    let session = Session::start_again(reader, writer, None, Arc::default(), told.clone());
    (child, timeout(PATIENCE, session).await.unwrap().unwrap())
}

/// Whether a process holds what an agent over this directory watched.
fn is_held(root: &Path) -> bool {
    let parts = |process: &Path, file| std::fs::read(process.join(file)).unwrap_or_default();
    let has = |bytes: Vec<u8>, part: &str| bytes.split(|b| *b == 0).any(|one| one == part.as_bytes());
    let home = format!("HOME={}", root.display());
    let holds =
        |process: &Path| has(parts(process, "cmdline"), "--keep") && has(parts(process, "environ"), &home);
    std::fs::read_dir("/proc").unwrap().flatten().any(|process| holds(&process.path()))
}

#[tokio::test]
async fn a_process_stays_that_holds_what_was_watched_until_somebody_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("d")).unwrap();
    let at = Loc { path: HomePath::parse(b"d").unwrap(), id: None };
    let told = Arc::new(Told::new(new_name()));
    let (mut first, session) = agent(dir.path(), &told).await;
    let kept = async {
        while !told.is_kept() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, kept).await.unwrap();
    let watched = session.watch(&at, 10, 5).await.unwrap().epoch;
    assert!(watched.is_some());
    assert!(!is_held(dir.path()), "by two");
    drop(session);
    assert!(timeout(PATIENCE, first.wait()).await.unwrap().unwrap().success());
    assert!(is_held(dir.path()), "by nobody");

    std::fs::write(dir.path().join("d/meanwhile"), b"").unwrap();
    let (_second, session) = agent(dir.path(), &told).await;
    assert!(!is_held(dir.path()), "by two");
    let changes = timeout(PATIENCE, session.changes()).await.unwrap();
    assert_eq!(
        changes.iter().flat_map(|c| &c.names).map(ToString::to_string).collect::<Vec<_>>(),
        ["meanwhile"]
    );
    let _ = timeout(Duration::from_millis(100), session.changes()).await;
    assert_eq!(session.epoch(), watched);
}
