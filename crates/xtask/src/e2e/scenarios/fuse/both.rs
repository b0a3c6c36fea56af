//! The same tree through NFS and FUSE at one time.

use crate::e2e::accounts::{ANN, GATEWAY};
use crate::e2e::fuse;
use crate::e2e::guest::Guest;
use crate::e2e::proc::wait_for;
use crate::e2e::server::Server;
use crate::e2e::world::World;
use crate::run;
use anyhow::{Context, Result, ensure};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const ROUNDS: usize = 4;
/// The attribute timeout of FUSE (1 s), and time to look.
const FUSE_SEES: Duration = Duration::from_millis(1500);

/// The NFS client answers each round. Its kernel may believe attributes of a file for `acregmax` (60 s), and those of a
/// directory as long (nfs(5)).
const SCRIPT: &str = r#"
cd "$ROOT/ann@lab$WORK"
seen() { for ((n = 0; n < 650; n++)); do ! "$@" 2>/dev/null || return 0; sleep 0.1; done; fail "not seen by NFS: $*"; }
holds() { [[ $(cat "$1") == "$2" ]]; }
seen test -e from-fuse
for i in $(seq "$ROUNDS"); do
  seen holds from-fuse "round $i"
  echo "round $i" >from-nfs
  echo "$i" >"name $i"
  sync
  step "round $i"
done
seen test -e new
[[ ! -e gone ]] || seen test ! -e gone
echo bye >from-nfs
sync
"#;

/// The scenario.
pub fn run(world: &World) -> Result<()> {
    fuse::allow()?;
    let work = world.home_dir(ANN, "work")?;
    let _lab = world.host("lab", "", None)?;
    let mut server = world.serve(&[])?;
    let tree = fuse::mount(world, &server, "tree")?;
    let here = tree.join(format!("ann@lab{}", work.display()));
    shell(&here, "echo 'round 0' >from-fuse; echo nothing >from-nfs; touch gone")?;
    let script = format!("WORK={} ROUNDS={ROUNDS}\n{SCRIPT}", work.display());
    let client = Guest::new(world, server.addr, GATEWAY, &script, Duration::from_secs(300))?.start()?;
    for round in 1..=ROUNDS {
        shell(&here, &format!("echo 'round {round}' >from-fuse"))?;
        seen_by_fuse(&server, &here, &work, &format!("round {round}\n"))?;
        let began = Instant::now();
        let name = format!("[[ -e 'name {round}' ]]");
        wait_for("a name that NFS made", FUSE_SEES + Duration::from_secs(1), || shell(&here, &name).ok())?;
        println!("round {round}: the name came after {:?}", began.elapsed());
    }
    shell(&here, "rm gone; touch new")?;
    seen_by_fuse(&server, &here, &work, "bye\n")?;
    client.finish()?;
    server.must_run()
}

/// The kernel is kept busy with the old content, so that it has it in its caches, until the engine knows the new one;
/// then FUSE must show it in time.
fn seen_by_fuse(server: &Server, here: &Path, work: &Path, text: &str) -> Result<()> {
    let told = format!("/ann@lab{}/from-nfs", work.display());
    wait_for("a change by NFS", Duration::from_secs(120), || {
        shell(here, "cat from-nfs >/dev/null; [[ ! -e 'name 9' ]]").ok()?;
        (server.run(&["cat", &told]).ok()? == text).then_some(())
    })?;
    let began = Instant::now();
    wait_for("the change by FUSE", FUSE_SEES, || (shell(here, "cat from-nfs").ok()? == text).then_some(()))
        .with_context(|| format!("{text:?} is not seen in time"))?;
    println!("{text:?} was seen after {:?}", began.elapsed());
    ensure!(shell(here, "stat -c %s from-nfs")?.trim() == text.len().to_string());
    Ok(())
}

/// What the account's own shell says in that folder.
fn shell(here: &Path, line: &str) -> Result<String> {
    let mut bash = Command::new("bash");
    bash.args(["-euc", &format!("cd '{}'; {line}", here.display())]);
    run::output(bash.uid(GATEWAY.uid).gid(GATEWAY.uid).current_dir("/"))
}
