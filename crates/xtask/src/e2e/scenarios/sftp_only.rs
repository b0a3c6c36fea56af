//! An account that allows nothing but SFTP.

use crate::e2e::accounts::{BOB, GATEWAY};
use crate::e2e::guest::Guest;
use crate::e2e::server::Server;
use crate::e2e::sshd::Sshd;
use crate::e2e::trees::{self, Times};
use crate::e2e::world::World;
use crate::wan_link;
use anyhow::{Result, ensure};
use oncrpc::nfs3::StableHow;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

const RTT: Duration = Duration::from_millis(60);

const SCRIPT: &str = r#"
cd "/trellis/bob@box$WORK"
step "copy a tree in and out"
cp -rp --preserve=mode,timestamps "$W/src" tree
cp -rp tree /tmp/out
diff -r --no-dereference "$W/src" /tmp/out
step "rename"
mkdir -p a/b
echo text >a/f
mv a/f a/b/g
mv a c
[[ $(cat c/b/g) == text ]]
echo new >n
echo old >o
mv n o
[[ $(cat o) == new ]]
step "symbolic link and mode"
ln -s c/b/g s
[[ $(cat s) == text && $(readlink s) == c/b/g ]]
chmod 0640 c/b/g
[[ $(stat -c %a c/b/g) == 640 ]]
touch -d '2001-02-03 04:05:06' c/b/g
[[ $(stat -c %Y c/b/g) == $(date -d '2001-02-03 04:05:06' +%s) ]]
step "what SFTP has no word for"
[[ $(mkfifo pipe 2>&1) == *'Operation not permitted'* && ! -e pipe ]]
step "remove"
mkdir gone
echo x >gone/x
rm -r gone
[[ ! -e gone ]]
step "a big file"
cp "$W/big" big
sync
cmp big "$W/big"
step "done"
"#;

/// The scenario.
pub fn run(world: &World) -> Result<()> {
    trees::make_source(&world.dir.join("src"), 300)?;
    trees::noise_file(&world.dir.join("big"), 9, 64 << 20)?;
    let chown = std::process::Command::new("chown")
        .args(["-R", &GATEWAY.uid.to_string()])
        .args([world.dir.join("src"), world.dir.join("big")])
        .status()?;
    ensure!(chown.success());
    let work = world.home_dir(BOB, "work")?;
    let _box = world.host("box", "ForceCommand internal-sftp", None)?;
    let server = world.serve(&[])?;

    let script = format!("WORK={}\n{SCRIPT}", work.display());
    Guest::new(world, server.addr, GATEWAY, &script, Duration::from_secs(400))?.run()?;
    server.sync()?;

    trees::compare(&world.dir.join("src"), &work.join("tree"), Times::Seconds)?;
    ensure!(trees::same_bytes(&world.dir.join("big"), &work.join("big"))?, "other bytes arrived");
    ensure!(fs::read_to_string(work.join("o"))? == "new\n");
    ensure!(fs::read_link(work.join("s"))?.as_os_str() == "c/b/g");
    let file = fs::metadata(work.join("c/b/g"))?;
    ensure!(file.mode() & 0o7777 == 0o640 && file.uid() == BOB.uid);
    ensure!(!work.join("gone").exists());

    let status = server.home_status("bob@box")?;
    ensure!(status["class"] == "sftp", "class: {}", status["class"]);
    let weaker = status["weaker"].to_string();
    ensure!(weaker.contains("second"), "status does not say that times have seconds: {weaker}");
    ensure!(server.run(&["status"])?.contains("sftp"), "status for people hides the class");
    far_away(world, &server, &work)
}

/// Over a long and fast wire one channel carries too little: there are further ones of the same connection, for reads. What
/// is written in place goes over one alone, because another one would open whatever file has the name by then.
fn far_away(world: &World, server: &Server, work: &Path) -> Result<()> {
    // Of each channel a file.
    let logs = world.home_dir(BOB, "logs")?;
    let program = format!("/usr/lib/openssh/sftp-server -e -l INFO 2>{}/$$", logs.display());
    let sshd = Sshd::start(&world.dir, "far", &format!("ForceCommand {program}"))?;
    let relay = wan_link::with_rtt(sshd.addr, RTT)?;
    world.trust(&sshd)?;
    world.route("far", relay.addr())?;
    let channels = |with: &str| -> Result<usize> {
        let logs = fs::read_dir(&logs)?.map(|log| Ok(fs::read_to_string(log?.path())?));
        Ok(logs.collect::<Result<Vec<_>>>()?.iter().filter(|log| log.contains(with)).count())
    };
    server.run(&["prefetch", &format!("bob@far{}/big", work.display())])?;
    let read = channels("/big\" flags READ")?;
    ensure!(read > 2, "{read} channels for a long read");
    let (client, root) = world.client(server)?;
    let dir = client.walk(&root, &format!("bob@far{}", work.display()))?;
    let file = client.create(&dir, "long")?;
    let noise = fs::read(work.join("big"))?;
    for (i, part) in noise.chunks(1 << 20).enumerate() {
        client.write(&file, (i as u64) << 20, part, StableHow::Unstable)?;
    }
    server.sync()?;
    ensure!(trees::same_bytes(&work.join("long"), &work.join("big"))?, "other bytes arrived far away");
    let wrote = channels("/long\" flags READ,WRITE")?;
    ensure!(wrote == 1, "{wrote} channels opened a file to write in place");
    Ok(())
}
