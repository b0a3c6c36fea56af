//! A server that is killed while its host is out of reach: the next one shows the host as it was, and what was unsent goes
//! home when the host is back.

use crate::e2e::accounts::ANN;
use crate::e2e::fuse;
use crate::e2e::proc::wait_for;
use crate::e2e::server::Gateway;
use crate::e2e::sshd::Sshd;
use crate::e2e::trees;
use crate::e2e::world::World;
use crate::run;
use anyhow::{Result, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// All that a program sees of a tree but the times of directories: names, kinds, modes, link counts, sizes, times, targets,
/// contents.
const SEEN: &str = r#"
find . ! -type d -printf '%p %y %m %n %s %T@ %l\n' -o -printf '%p %y %m %n\n' | LC_ALL=C sort
find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
"#;

/// Changes that stay unsent.
const CHANGES: &str = r#"
set -e
mkdir made && echo unsent >made/file
mv d00 moved && rm -r d01
echo more >>moved/e0/'file 1.dat' && ln -s file made/link && ln made/file made/hard
"#;

/// Files of one directory, more than one page of a listing has.
const MANY: usize = 4000;
/// Walks through the tree from the host's return on.
const WALKS: usize = 3;

/// How long a person waits for a look at a host that refuses connections.
const PATIENCE: Duration = Duration::from_secs(20);

/// How a host goes out of reach, and how it comes back.
type Way = (&'static str, fn(&mut Sshd) -> Result<()>, fn(&mut Sshd) -> Result<()>);

/// The scenario.
pub fn run(world: &World) -> Result<()> {
    fuse::allow()?;
    let mut lab = world.host("lab", "", None)?;
    let refuses: Way = ("refuses", Sshd::kill, Sshd::restart);
    let hangs: Way = ("hangs", hang, resume);
    for way in [refuses, hangs] {
        restarted(world, &mut lab, way)?;
    }
    Ok(())
}

fn restarted(world: &World, lab: &mut Sshd, (how, goes, returns): Way) -> Result<()> {
    let work = world.home_dir(ANN, how)?;
    trees::make_source(&work, 1200)?;
    for n in 0..MANY {
        fs::write(work.join(format!("d03/many-{n}")), n.to_string())?;
    }
    run::run(Command::new("chown").arg("-R").arg(ANN.uid.to_string()).arg(&work))?;
    let mut server = world.serve_as(how, &[])?;
    let tree = fuse::mount(world, &server, how)?;
    let gateway = Gateway::named(world, how);
    let top = tree.join(format!("ann@lab{}", work.display()));
    let shell = |script: &str| run::output(&mut gateway.shell(&format!("cd {} && {script}", top.display())));

    shell(SEEN)?;
    goes(lab)?;
    shell(CHANGES)?;
    let before = shell(SEEN)?;
    // Longer than between two checkpoints.
    std::thread::sleep(Duration::from_secs(2));
    server.kill()?;
    server.restart()?;
    wait_for("the mount", PATIENCE, || fuse::mounted().is_ok_and(|all| all.contains(&tree)).then_some(()))?;
    let begun = Instant::now();
    let after = shell(SEEN)?;
    println!("{how}: seen in {:?}, {} lines", begun.elapsed(), after.lines().count());
    same(&format!("{how}: after the restart"), &before, &after)?;
    ensure!(begun.elapsed() < PATIENCE, "{how}: it took {:?}", begun.elapsed());

    // Whoever looks while the connection is made sees no less.
    returns(lab)?;
    for _ in 0..WALKS {
        same(&format!("{how}: after its return"), &before, &shell(SEEN)?)?;
    }
    server.sync()?;
    same(&format!("{how}: at the home"), &before, &at_home(&work)?)?;
    server.run(&["umount", &tree.to_string_lossy()])?;
    server.run(&["stop"]).map(drop)
}

fn hang(lab: &mut Sshd) -> Result<()> {
    lab.hang();
    Ok(())
}

fn resume(lab: &mut Sshd) -> Result<()> {
    lab.resume();
    Ok(())
}

fn at_home(work: &Path) -> Result<String> {
    run::output(Command::new("bash").args(["-c", SEEN]).current_dir(work))
}

fn same(what: &str, one: &str, other: &str) -> Result<()> {
    let differs = one.lines().zip(other.lines()).find(|(a, b)| a != b);
    ensure!(one == other, "{what} it is another tree: {differs:?}");
    Ok(())
}
