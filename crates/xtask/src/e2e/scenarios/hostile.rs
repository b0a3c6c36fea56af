//! Hostile hosts, names, bytes and callers.

mod crowd;
mod wire;

use crate::e2e::accounts::{ANN, GATEWAY, STRANGER};
use crate::e2e::server::Server;
use crate::e2e::sshd::Sshd;
use crate::e2e::trees;
use crate::e2e::world::World;
use crate::nfs::{Client, at, status_of};
use anyhow::{Context, Result, bail, ensure};
use oncrpc::nfs3::*;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Nothing here may take longer; a host that is refused needs one ssh login.
const ANSWER_MAX: Duration = Duration::from_secs(15);

/// The scenario.
pub fn run(world: &World) -> Result<()> {
    let work = world.home_dir(ANN, "work")?;
    world.write_home(ANN, &work.join("precious"), b"precious")?;
    let ssh = world.home_dir(ANN, ".ssh")?;
    world.write_home(ANN, &ssh.join("authorized_keys"), b"ann's key")?;
    let _lab = world.host("lab", "", None)?;
    let mut changed = world.host("changed", "", None)?;
    changed.change_host_key()?;
    let unknown = Sshd::start(&world.dir, "unknown", "")?;
    world.route("unknown", unknown.addr)?;
    let _locked = world.host("locked", "DenyUsers ann", None)?;
    // A copy, because the account may not reach the place of the original.
    let liar = world.dir.join("liar");
    fs::copy(std::env::current_exe()?, &liar)?;
    let evil = format!("ForceCommand {} evil-sftp", liar.display());
    let _evil = world.host("evil", &evil, None)?;
    let mut server = world.serve(&[])?;
    let (mut client, root) = world.client(&server)?;
    let dir = client.walk(&root, &format!("ann@lab{}", work.display()))?;
    let precious = client.lookup(&dir, "precious")?;

    hosts(&client, &root)?;
    hostile_root_names(world, &client, &root)?;
    hostile_file_names(&client, &dir)?;
    protected_folders(world, &client, &root, &ssh)?;
    evil_home(&client, &root).with_context(|| server.run(&["status"]).unwrap_or_default())?;
    forged_handles(&client, &precious)?;
    other_callers(&mut client, &root, &dir, &precious)?;
    wire::garbage(server.addr, &precious)?;
    refused_options(world)?;
    crowd::unknown_hosts(&server)?;
    crowd::half_records(&server)?;

    server.must_run()?;
    let (client, _) = world.client(&server)?;
    ensure!(client.read_all(&precious)? == b"precious", "the server lost something");
    server.sync()?;
    ensure!(fs::read(work.join("precious"))? == b"precious", "the home lost something");
    ensure!(fs::read(ssh.join("authorized_keys"))? == b"ann's key");
    let log = fs::read(world.dir.join("server.log"))?;
    ensure!(!log.contains(&0x1b), "the log holds escape sequences that came from outside");
    says_why(&server)
}

/// The answer must be one of these, and soon.
fn expect<T>(what: &str, allowed: &[NfsStat3], call: impl FnOnce() -> Result<T>) -> Result<()> {
    let began = Instant::now();
    let answer = call();
    let status = status_of(&answer);
    ensure!(began.elapsed() < ANSWER_MAX, "{what}: the answer took {:?}", began.elapsed());
    match status {
        Some(status) if allowed.contains(&status) => Ok(()),
        Some(status) => bail!("{what}: answers {status:?}, not one of {allowed:?}"),
        None => Err(answer.err().context("no answer")?.context(what.to_string())),
    }
}

/// Hosts that cannot be trusted or do not let us in.
fn hosts(client: &Client, root: &NfsFh3) -> Result<()> {
    for name in ["ann@unknown", "ann@changed", "ann@locked", "scp:ann@locked:"] {
        expect(name, &[NfsStat3::Acces], || client.lookup(root, name))?;
    }
    expect("no such host", &[NfsStat3::NoEnt], || client.lookup(root, "ann@no-such-host.invalid"))
}

/// Names in the root that are not `[user@]host` or an SCL.
fn hostile_root_names(world: &World, client: &Client, root: &NfsFh3) -> Result<()> {
    let long = "h".repeat(256);
    let names = [
        "scp:-oProxyCommand=touch${IFS}pwned:",
        "-oProxyCommand=touch${IFS}pwned",
        "ann@-oProxyCommand=touch${IFS}pwned",
        "-F@lab",
        "scp:",
        "scp::",
        "scp:ann@:",
        "@lab",
        "ann@",
        "scp:[::1:",
        "lab;reboot",
        "lab\nlab",
        "lab\u{1b}[31m",
        "l\u{e4}b",
        "$(reboot)",
        "a b@lab",
    ];
    for name in names {
        expect(&format!("root name {name:?}"), &[NfsStat3::NoEnt, NfsStat3::Inval], || {
            client.lookup(root, name)
        })?;
    }
    expect("a long root name", &[NfsStat3::NameTooLong, NfsStat3::NoEnt], || client.lookup(root, &long))?;
    let denied = [NfsStat3::Rofs, NfsStat3::Acces];
    expect("CREATE in the root", &denied, || client.create(root, "file"))?;
    expect("MKDIR in the root", &denied, || client.mkdir(root, "dir"))?;
    expect("REMOVE in the root", &denied, || client.remove(root, "ann@lab"))?;
    ensure!(client.lookup(root, "..").is_ok_and(|up| up == *root), ".. of the root is the root");
    let pwned = Command::new("find")
        .arg(&world.dir)
        .args(["/tmp", "/root", "-maxdepth", "3", "-name", "pwned"])
        .output()?;
    ensure!(pwned.stdout.is_empty(), "a name was executed");
    Ok(())
}

/// Names below a home: what a file may not be called, and what it may.
fn hostile_file_names(client: &Client, dir: &NfsFh3) -> Result<()> {
    let refused = [NfsStat3::Inval, NfsStat3::Acces, NfsStat3::Exist, NfsStat3::NoEnt];
    for name in ["", ".", "..", "a/b", "../up", "/", "nul\0", "\0"] {
        expect(&format!("CREATE {name:?}"), &refused, || client.create(dir, name))?;
        expect(&format!("MKDIR {name:?}"), &refused, || client.mkdir(dir, name))?;
        expect(
            &format!("RENAME to {name:?}"),
            &[&refused[..], &[NfsStat3::NotEmpty, NfsStat3::IsDir]].concat(),
            || client.rename(at(dir, "precious"), at(dir, name)),
        )?;
    }
    for name in ["a/b", "nul\0", "../precious"] {
        expect(&format!("LOOKUP {name:?}"), &refused, || client.lookup(dir, name))?;
    }
    expect("a name of 256 bytes", &[NfsStat3::NameTooLong], || client.create(dir, "x".repeat(256)))?;
    let control = b"\x1b[31m\x07\n\xff";
    client.put(dir, control, b"odd").context("control bytes are bytes like others")?;
    let file = client.lookup(dir, control)?;
    ensure!(client.read_all(&file)? == b"odd");
    client.remove(dir, control)
}

/// `.ssh` of the account: no way to write below it, to move it, or to move what it lies in.
fn protected_folders(world: &World, client: &Client, root: &NfsFh3, ssh: &Path) -> Result<()> {
    let denied = [NfsStat3::Acces, NfsStat3::Perm];
    let home = client.walk(root, &format!("ann@lab{}", world.home(ANN).display()))?;
    let above = client.walk(root, &format!("ann@lab{}", world.dir.join("home").display()))?;
    let dir = client.lookup(&home, ".ssh")?;
    let keys = client.lookup(&dir, "authorized_keys")?;
    expect("WRITE", &denied, || client.write(&keys, 0, b"my key", StableHow::FileSync))?;
    expect("SETATTR", &denied, || client.chmod(&keys, 0o666))?;
    expect("CREATE", &denied, || client.create(&dir, "config"))?;
    expect("MKDIR", &denied, || client.mkdir(&dir, "sub"))?;
    expect("SYMLINK", &denied, || client.symlink(at(&dir, "rc"), "/tmp/rc"))?;
    expect("REMOVE", &denied, || client.remove(&dir, "authorized_keys"))?;
    expect("RENAME within", &denied, || client.rename(at(&dir, "authorized_keys"), at(&dir, "old")))?;
    expect("RENAME out", &denied, || client.rename(at(&dir, "authorized_keys"), at(&home, "keys")))?;
    expect("RENAME of .ssh", &denied, || client.rename(at(&home, ".ssh"), at(&home, "dot")))?;
    expect("RENAME above", &denied, || client.rename(at(&above, "ann"), at(&above, "ann2")))?;
    expect("LINK in", &denied, || {
        client.link(&client.put(&home, "mine", b"key")?, at(&dir, "authorized_keys2"))
    })?;
    expect("LINK out", &denied, || client.link(&keys, at(&home, "keys")))?;
    expect("RENAME in", &denied, || client.rename(at(&home, "mine"), at(&dir, "authorized_keys")))?;
    client.mkdir(&home, "other")?;
    let over = [&denied[..], &[NfsStat3::NotEmpty, NfsStat3::Exist]].concat();
    expect("RENAME over .ssh", &over, || client.rename(at(&home, "other"), at(&home, ".ssh")))?;
    // Folders that are not there yet are protected as well.
    expect("MKDIR .gnupg", &denied, || client.mkdir(&home, ".gnupg"))?;
    expect("SYMLINK .gnupg", &denied, || client.symlink(at(&home, ".gnupg"), "work"))?;
    // By identity, not by spelling: through a symbolic link that the server does not follow anyway, and the twin.
    let twin = client.walk(root, &format!("scp:ann@lab:{}", ssh.display()))?;
    expect("CREATE through the other name", &denied, || client.create(&twin, "config"))?;
    ensure!(trees::names(ssh)? == [b"authorized_keys".to_vec()]);
    Ok(())
}

/// A home that lists names which no file can have, and objects which no client should get.
fn evil_home(client: &Client, root: &NfsFh3) -> Result<()> {
    let dir = client.walk(root, "ann@evil/dir")?;
    let entries = client.list(&dir)?;
    let mut names: Vec<_> = entries.iter().map(|e| String::from_utf8_lossy(&e.name).into_owned()).collect();
    names.sort();
    names.retain(|n| n != "." && n != "..");
    names.retain(|n| n != "huge");
    ensure!(names == ["\u{1b}[31mred\n", "dir", "good", "suid"], "the home's names arrive as {names:?}");
    let suid = client.getattr(&client.lookup(&dir, "suid")?)?;
    ensure!(suid.mode & 0o6000 == 0, "a set-uid file arrives with mode {:o}", suid.mode);
    for name in ["huge", "device"] {
        let refused = [NfsStat3::NoEnt, NfsStat3::Io, NfsStat3::Fbig];
        expect(name, &refused, || client.getattr(&client.lookup(&dir, name)?))?;
    }
    Ok(())
}

/// Handles that this server never gave.
fn forged_handles(client: &Client, good: &NfsFh3) -> Result<()> {
    let refused = [NfsStat3::BadHandle, NfsStat3::Stale];
    let handle = |bytes: &[u8]| NfsFh3::new(bytes).context("too long");
    for bytes in [&[][..], &[0; 1], &[0; 32], &[0xff; 32], &[7; 64], &good[..31]] {
        let forged = handle(bytes)?;
        expect(&format!("GETATTR {forged:?}"), &refused, || client.getattr(&forged))?;
    }
    for at in 0..good.len() {
        let mut bytes = good.to_vec();
        bytes[at] ^= 1;
        let forged = handle(&bytes)?;
        expect(&format!("READ with byte {at} changed"), &refused, || client.read(&forged, 0, 10))?;
    }
    Ok(())
}

/// Another uid and root, by name and by handle.
fn other_callers(client: &mut Client, root: &NfsFh3, dir: &NfsFh3, file: &NfsFh3) -> Result<()> {
    for uid in [STRANGER.uid, ANN.uid, 0] {
        client.set_uid(uid);
        let denied = [NfsStat3::Acces];
        expect(&format!("READ by {uid}"), &denied, || client.read(file, 0, 10))?;
        expect(&format!("LOOKUP by {uid}"), &denied, || client.lookup(dir, "precious"))?;
        expect(&format!("READDIRPLUS by {uid}"), &denied, || client.list(dir))?;
        expect(&format!("CREATE by {uid}"), &denied, || client.create(dir, "theirs"))?;
        expect(&format!("WRITE by {uid}"), &denied, || client.write(file, 0, b"x", StableHow::FileSync))?;
        // Only the server's uid may cause a login.
        let other = [NfsStat3::Acces, NfsStat3::NoEnt];
        expect(&format!("a new host for {uid}"), &other, || client.lookup(root, "bob@lab"))?;
    }
    client.set_uid(GATEWAY.uid);
    Ok(())
}

/// What `serve` must refuse to start with.
fn refused_options(world: &World) -> Result<()> {
    let gateway = crate::e2e::server::Gateway::new(world);
    let state = world.home(GATEWAY).join("state2").display().to_string();
    let cases: [&[&str]; 4] = [
        &["serve", "--state", &state, "--listen", "nonsense"],
        &["serve", "--state", &state, "--allow", "10.0.0.0/99"],
        &["serve", "--state", &state, "--mode", "fast"],
        // Already served from there.
        &["serve", "--state", &gateway.state().display().to_string(), "--listen", "127.0.0.1:0"],
    ];
    for args in cases {
        let out = gateway.command(args).output()?;
        let said = String::from_utf8_lossy(&out.stderr);
        ensure!(!out.status.success() && !said.trim().is_empty(), "{args:?}: {} {said:?}", out.status);
    }
    Ok(())
}

/// `status` tells a person what to do about each host.
fn says_why(server: &Server) -> Result<()> {
    let said = server.run(&["status"])?;
    ensure!(!said.contains('\u{1b}'), "status prints escape sequences that came from outside: {said:?}");
    Ok(())
}
