//! kill -9 of the server in the middle of work, and calls that are sent again after it.

use crate::e2e::accounts::{ANN, GATEWAY};
use crate::e2e::guest::Guest;
use crate::e2e::proc::wait_for;
use crate::e2e::server::Server;
use crate::e2e::trees::{self, Times};
use crate::e2e::world::World;
use crate::nfs::{Client, at, mode};
use anyhow::{Context, Result, ensure};
use oncrpc::nfs3::*;
use oncrpc::xdr::Xdr;
use std::fs;
use std::time::Duration;

/// Rounds of work of which the server lives through some only in part.
const ROUNDS: usize = 8;

const SCRIPT: &str = r#"
cd "/trellis/ann@lab$WORK"
echo kept >kept
kept=$(stat -c %i kept)
exec 7<kept
round() {
  mkdir "r$1"
  tar -xf "$W/src.tar" -C "r$1"
  mv "r$1/d00" "r$1/moved"
  mkdir "r$1/empty"
  rmdir "r$1/empty"
  ln "r$1/moved/e0/file 1.dat" "r$1/hard"
  ln -s hard "r$1/soft"
  # What fsync acknowledged must be there after any crash.
  head -c 100000 /dev/zero | tr '\0' "$1" | dd of="r$1/synced" bs=10000 conv=fsync status=none
  rm "r$1/moved/e0/file 2.dat"
  [[ $(stat -c %i kept) == "$kept" ]] || fail "the inode number changed"
  [[ $(cat kept) == kept ]] || fail "a file lost its content"
  step "round $1"
}
for ((n = 1; n <= ROUNDS; n++)); do round $n; done
[[ $(cat <&7) == kept ]] || fail "an open file lost its content"
for ((i = 1; i <= ROUNDS; i++)); do
  [[ $(stat -c %h "r$i/hard") == 2 && $(readlink "r$i/soft") == hard ]] || fail "links of round $i"
  [[ ! -e "r$i/moved/e0/file 2.dat" && ! -e "r$i/d00" && ! -e "r$i/empty" ]] || fail "removed names of round $i are back"
done
step "done"
sync
"#;

/// The scenario with a kernel client.
pub fn run(world: &World) -> Result<()> {
    let src = world.dir.join("src");
    trees::make_source(&src, 300)?;
    let tar = std::process::Command::new("tar")
        .args([
            "--format=posix",
            "--owner",
            &GATEWAY.uid.to_string(),
            "--group",
            &GATEWAY.uid.to_string(),
            "-cf",
        ])
        .arg(world.dir.join("src.tar"))
        .arg("-C")
        .arg(&src)
        .arg(".")
        .status()?;
    ensure!(tar.success());
    let work = world.home_dir(ANN, "work")?;
    let _lab = world.host("lab", "", None)?;
    let mut server = world.serve(&[])?;

    let script = format!("WORK={} ROUNDS={ROUNDS}\n{SCRIPT}", work.display());
    let mut guest = Guest::new(world, server.addr, GATEWAY, &script, Duration::from_secs(540))?.start()?;
    // At odd moments of later rounds.
    for (after_round, pause_ms) in [(1, 150), (3, 600), (5, 1100)] {
        wait_for("the next round", Duration::from_secs(180), || {
            let reached = guest.said().contains(&format!("round {after_round}"));
            (reached || !matches!(guest.works(), Ok(true))).then_some(())
        })?;
        std::thread::sleep(Duration::from_millis(pause_ms));
        server.kill()?;
        println!("killed in round {}", guest.said().matches("round").count() + 1);
        std::thread::sleep(Duration::from_millis(500));
        server.restart()?;
        ensure!(guest.works()?, "the client ended:\n{}", guest.said());
    }
    guest.finish()?;
    server.sync()?;

    fs::rename(src.join("d00"), src.join("moved"))?;
    fs::hard_link(src.join("moved/e0/file 1.dat"), src.join("hard"))?;
    std::os::unix::fs::symlink("hard", src.join("soft"))?;
    fs::remove_file(src.join("moved/e0/file 2.dat"))?;
    for round in 1..=ROUNDS {
        let synced = fs::read(work.join(format!("r{round}/synced")))?;
        let digits = round.to_string();
        ensure!(
            synced.len() == 100_000 && synced.iter().all(|b| *b == digits.as_bytes()[0]),
            "round {round}"
        );
        fs::write(src.join("synced"), &synced)?;
        fs::remove_file(work.join(format!("r{round}/synced")))?;
        fs::remove_file(src.join("synced"))?;
        trees::compare(&src, &work.join(format!("r{round}")), Times::Exact)?;
    }
    let status = server.home_status("ann@lab")?;
    ensure!(status["conflicts"] == 0 && status["parked"].as_array().is_some_and(Vec::is_empty), "{status}");
    Ok(())
}

/// A call that changes something.
struct Change {
    what: &'static str,
    proc: u32,
    send: Send,
}

/// Sends a call with this xid; answers the bytes of its result.
type Send = Box<dyn Fn(&Client, u32) -> Result<bytes::Bytes>>;

fn change<A: Xdr + 'static>(what: &'static str, proc: u32, args: A) -> Change {
    Change { what, proc, send: Box::new(move |client, xid| client.raw(xid, proc, &args)) }
}

/// The scenario with a user-space client: the same xid again, from the same port, after kill -9.
pub fn retransmit(world: &World) -> Result<()> {
    let work = world.home_dir(ANN, "work")?;
    let _lab = world.host("lab", "", None)?;
    let mut server = world.serve(&[])?;
    let (client, root) = world.client(&server)?;
    let dir = client.walk(&root, &format!("ann@lab{}", work.display()))?;
    for name in ["old", "doomed", "moving"] {
        client.put(&dir, name, name.as_bytes())?;
    }
    client.mkdir(&dir, "empty")?;
    let old = client.lookup(&dir, "old")?;
    let dirs = MkdirArgs { at: at(&dir, "dir"), attributes: mode(0o755) };
    let link =
        SymlinkArgs { at: at(&dir, "soft"), symlink_attributes: mode(0o777), symlink_data: "old".into() };
    let changes = [
        change(
            "CREATE",
            procs::CREATE,
            CreateArgs { at: at(&dir, "new"), how: CreateHow3::Guarded(mode(0o644)) },
        ),
        change("MKDIR", procs::MKDIR, dirs),
        change("SYMLINK", procs::SYMLINK, link),
        change("LINK", procs::LINK, LinkArgs { file: old, link: at(&dir, "hard") }),
        change("REMOVE", procs::REMOVE, at(&dir, "doomed")),
        change("RMDIR", procs::RMDIR, at(&dir, "empty")),
        change("RENAME", procs::RENAME, RenameArgs { from: at(&dir, "moving"), to: at(&dir, "moved") }),
    ];
    let port = client.local;
    let answers = send(&client, &changes)?;
    ensure!(send(&client, &changes)? == answers, "a call sent again at once has another answer");
    drop(client);
    restart(&mut server)?;
    let client = Client::connect_from(port, server.addr, GATEWAY.uid)?;
    for (change, (first, again)) in changes.iter().zip(answers.iter().zip(send(&client, &changes)?)) {
        ensure!(again[..4] == [0; 4], "{} sent again after a restart fails: {:?}", change.what, &again[..4]);
        // Status and handle are the first ones; attributes and wcc data may be fresh, or absent (RFC 1813 2.6).
        let told = if matches!(change.proc, procs::CREATE | procs::MKDIR | procs::SYMLINK) { 44 } else { 4 };
        ensure!(again[..told] == first[..told], "{} has another answer after a restart", change.what);
    }
    // A new call is a new call, whatever its name did before.
    let new = CreateArgs { at: at(&dir, "new"), how: CreateHow3::Guarded(mode(0o644)) };
    let fresh = client.raw(999, procs::CREATE, &new)?;
    ensure!(fresh[..4] == (NfsStat3::Exist as u32).to_be_bytes(), "a second CREATE of a name must fail");
    exclusive_create(&client, &dir)?;
    server.sync()?;
    let names = trees::names(&work)?;
    ensure!(names.len() == 7, "{names:?}");
    Ok(())
}

fn send(client: &Client, changes: &[Change]) -> Result<Vec<bytes::Bytes>> {
    let numbered = (5_000..).zip(changes);
    numbered
        .map(|(xid, c)| (c.send)(client, xid).with_context(|| format!("{} ({})", c.what, c.proc)))
        .collect()
}

fn restart(server: &mut Server) -> Result<()> {
    server.kill()?;
    server.restart()
}

/// EXCLUSIVE with the same verifier finds the file that it made, with another one it does not.
fn exclusive_create(client: &Client, dir: &NfsFh3) -> Result<()> {
    let args = |verf| CreateArgs { at: at(dir, "exclusive"), how: CreateHow3::Exclusive(verf) };
    let made = |xid, verf| Ok::<_, anyhow::Error>(client.raw(xid, procs::CREATE, &args(verf))?[..4].to_vec());
    ensure!(made(7001, [1; 8])? == [0; 4]);
    ensure!(made(7002, [1; 8])? == [0; 4], "the same verifier must find its file");
    ensure!(made(7003, [2; 8])? == (NfsStat3::Exist as u32).to_be_bytes());
    Ok(())
}
