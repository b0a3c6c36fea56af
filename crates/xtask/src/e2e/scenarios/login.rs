//! Hosts that ask questions, and logins that end.
//!
//! `gate` asks a question by keyboard-interactive and lets nobody in by key; behind it is `inner`, reached by a jump
//! through `gate`. `lab` is a host with a key.

use crate::e2e::accounts::{ANN, GATEWAY};
use crate::e2e::proc::wait_for;
use crate::e2e::server::{Gateway, Server};
use crate::e2e::sshd::Sshd;
use crate::e2e::terminal::Terminal;
use crate::e2e::world::World;
use crate::nfs::Client;
use crate::run;
use anyhow::{Context, Result, ensure};
use oncrpc::nfs3::NfsFh3;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const RIGHT: &str = "open sesame";
const WRONG: &str = "open barley";
/// The name of the PAM service of a host that asks.
const SERVICE: &str = "trellis-asks";

/// The scenario.
pub fn run(world: &World) -> Result<()> {
    let work = world.home_dir(ANN, "work")?;
    world.write_home(ANN, &work.join("cached"), b"what ann wrote")?;
    let asking = asking_sshd(world)?;
    let gate = Sshd::start_asking(&world.dir, "gate", asking)?;
    let inner = Sshd::start(&world.dir, "inner", "")?;
    configure(world, &gate, &inner)?;
    let mut lab = world.host("lab", "", None)?;
    certify(world)?;
    let server = world.serve(&[])?;
    let (client, root) = world.client(&server)?;
    let chain = Chain { world, server: &server, client: &client, work: &work };

    chain.unattended(&root)?;
    chain.refused_answer()?;
    let dir = chain.right_answer(&root)?;
    doctor(world, &server, None)?;
    chain.ended(&dir)?;
    chain.dead_master(&dir)?;
    let dir = client.walk(&root, &format!("ann@lab{}", work.display()))?;
    revoked(world, &server, &mut lab, &dir, &client)?;
    doctor(world, &server, Some("ann@lab"))?;
    bad_input(&server)
}

/// `trellis doctor` finds nothing that fails but the home `sick`, and says how to heal it.
fn doctor(world: &World, server: &Server, sick: Option<&str>) -> Result<()> {
    let out = server.command(&["doctor", "--json"]).output()?;
    let findings: Vec<Value> = serde_json::from_slice(&out.stdout).context("doctor --json")?;
    let all = || serde_json::to_string_pretty(&findings).unwrap_or_default();
    for about in ["fuse", "ssh", "ports", "disk", "limits", "server", "home", "clock"] {
        ensure!(findings.iter().any(|f| f["about"] == about), "nothing about {about}: {}", all());
    }
    let failed: Vec<&Value> = findings.iter().filter(|f| f["level"] == "fail").collect();
    ensure!(failed.iter().all(|f| f["about"] == "home") && failed.len() == sick.iter().count(), "{}", all());
    ensure!(out.status.code() == Some(sick.iter().count() as i32), "{}: {}", out.status, all());
    if let (Some(sick), Some(finding)) = (sick, failed.first()) {
        let says = |key: &str, part: &str| finding[key].as_str().is_some_and(|text| text.contains(part));
        ensure!(says("found", sick) && says("advice", "trellis login "), "{finding}");
    }
    let open = world.home_dir(GATEWAY, "open-state")?;
    fs::set_permissions(&open, PermissionsExt::from_mode(0o755))?;
    let args = ["doctor", "--state", &open.to_string_lossy()];
    let out = Gateway::new(world).command(&args).output()?;
    let said = String::from_utf8_lossy(&out.stdout);
    ensure!(out.status.code() == Some(1) && said.contains("chmod 700"), "{}: {said}", out.status);
    fs::set_permissions(&open, PermissionsExt::from_mode(0o500))?;
    let out = Gateway::new(world).command(&args).output()?;
    let said = String::from_utf8_lossy(&out.stdout);
    ensure!(out.status.code() == Some(1) && said.contains("chmod u+rwx"), "{}: {said}", out.status);
    Ok(())
}

/// sshd under a name of its own, with a PAM service of that name which knows the right answer.
fn asking_sshd(world: &World) -> Result<PathBuf> {
    let check = world.dir.join("check-answer");
    fs::write(&check, format!("#!/bin/bash\nIFS= read -r -d '' answer\n[[ $answer == '{RIGHT}' ]]\n"))?;
    fs::set_permissions(&check, PermissionsExt::from_mode(0o755))?;
    let services = world.dir.join("pam.d");
    run::output(Command::new("cp").arg("-r").arg("/etc/pam.d").arg(&services))?;
    let check = check.display();
    let service = format!(
        "auth required pam_exec.so quiet expose_authtok {check}\nauth required pam_permit.so\n\
         account required pam_permit.so\n\
         session required pam_permit.so\n"
    );
    fs::write(services.join(SERVICE), service)?;
    run::output(Command::new("mount").arg("--bind").arg(&services).arg("/etc/pam.d"))?;
    let program = world.dir.join(SERVICE);
    symlink("/usr/sbin/sshd", &program)?;
    Ok(program)
}

fn configure(world: &World, gate: &Sshd, inner: &Sshd) -> Result<()> {
    let home = world.home(GATEWAY);
    let (key, known) = (home.join("key"), world.known_hosts());
    for (host, more) in [(gate, "PubkeyAuthentication no"), (inner, "ProxyJump gate")] {
        let (alias, ip, port) = (&host.alias, host.addr.ip(), host.addr.port());
        world.configure(&format!(
            "Host {alias}\n  HostName {ip}\n  Port {port}\n  HostKeyAlias {alias}\n  User {ann}\n  \
             IdentityFile {key}\n  IdentitiesOnly yes\n  UserKnownHostsFile {known}\n  {more}\n  \
             GlobalKnownHostsFile /dev/null\n  NumberOfPasswordPrompts 1\n  GSSAPIAuthentication no\n",
            ann = ANN.name,
            key = key.display(),
            known = known.display(),
        ))?;
    }
    // An agent that has gone with the session that it belonged to.
    world.configure(&format!("Host lab\n  IdentityAgent {}\n", home.join("gone-agent").display()))
}

/// A certificate beside the key that soon ends. It opens nothing; the key does.
fn certify(world: &World) -> Result<()> {
    let home = world.home(GATEWAY);
    run::output(
        Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(home.join("ca")),
    )?;
    let sign = ["-q", "-I", "gateway", "-n", "ann", "-V", "-5m:+30m", "-s"];
    run::output(Command::new("ssh-keygen").args(sign).arg(home.join("ca")).arg(home.join("key.pub")))?;
    GATEWAY.own(&home.join("key-cert.pub"))
}

/// `trellis login ARGS` at a terminal.
fn login(server: &Server, args: &[&str]) -> Result<Terminal> {
    Terminal::start(server.command(&[&["login"], args].concat()))
}

/// Waits until the home is in this state.
fn until(server: &Server, name: &str, state: &str) -> Result<Value> {
    let mut last = Value::Null;
    let found = wait_for(&format!("{name} to be {state}"), Duration::from_secs(60), || {
        std::thread::sleep(Duration::from_millis(100));
        last = server.home_status(name).unwrap_or_default();
        (last["state"] == state).then(|| last.clone())
    });
    found.with_context(|| format!("{last}"))
}

/// What happens to `ann@inner`, behind the host that asks.
struct Chain<'a> {
    world: &'a World,
    server: &'a Server,
    client: &'a Client,
    work: &'a Path,
}

impl Chain<'_> {
    /// Nobody is there to answer: an error that is told, with the command.
    fn unattended(&self, root: &NfsFh3) -> Result<()> {
        ensure!(self.client.lookup(root, "ann@inner").is_err(), "nobody has answered");
        let status = self.server.status()?;
        let unreached = &status["unreached"][0];
        ensure!(unreached["name"] == "ann@inner" && unreached["state"] == "login needed", "{status}");
        ensure!(unreached["login"].as_str().is_some_and(|c| c.starts_with("trellis login ")), "{status}");
        ensure!(unreached["reason"].as_str().is_some_and(|r| r.contains("not known yet")), "{status}");
        let shown = self.server.run(&["status"])?;
        ensure!(shown.contains("run: trellis login "), "status for people hides the command: {shown}");
        Ok(())
    }

    /// New host keys are shown for a yes; a wrong answer is a clear error and changes nothing.
    fn refused_answer(&self) -> Result<()> {
        let mut no = login(self.server, &["ann@inner"])?;
        no.answer("(yes/no/[fingerprint])?", "no")?;
        let (status, screen) = no.finish()?;
        ensure!(status.code() == Some(1) && screen.contains("not logged in"), "{status}: {screen}");
        ensure!(fs::read_to_string(self.world.known_hosts())?.lines().all(|l| !l.starts_with("gate")));

        let mut wrong = login(self.server, &["ann@inner"])?;
        wrong.answer("(yes/no/[fingerprint])?", "yes")?;
        wrong.answer("Password:", WRONG)?;
        let (status, screen) = wrong.finish()?;
        ensure!(status.code() == Some(1), "{status}: {screen}");
        ensure!(
            screen.contains("gate on the way refused")
                && screen.contains("added to known_hosts, and nothing else has changed"),
            "{screen}"
        );
        let list = self.server.run(&["login", "--list", "--json"])?;
        ensure!(list.trim() == "[]", "a refused login is listed: {list}");
        Ok(())
    }

    fn right_answer(&self, root: &NfsFh3) -> Result<NfsFh3> {
        let mut right = login(self.server, &["ann@inner"])?;
        right.answer("Password:", RIGHT)?;
        right.answer("(yes/no/[fingerprint])?", "yes")?;
        let (status, screen) = right.finish()?;
        ensure!(status.success() && screen.contains("ends 12h after its last use"), "{status}: {screen}");
        ensure!(screen.contains("the server is connected to ann@inner"), "{screen}");

        let dir = self.client.walk(root, &format!("ann@inner{}", self.work.display()));
        let dir = dir.with_context(|| self.server.run(&["status"]).unwrap_or_default())?;
        self.client.put(&dir, "first", b"after the login")?;
        self.server.sync()?;
        ensure!(fs::read(self.work.join("first"))? == b"after the login");
        self.client.list(&dir)?;
        self.client.read(&self.client.lookup(&dir, "cached")?, 0, 100)?;

        let home = self.server.home_status("ann@inner")?;
        ensure!(home["master"]["ends_after_idle_s"] == 43_200 && home["master"]["in_use"] == true, "{home}");
        let list: Value = serde_json::from_str(&self.server.run(&["login", "--list", "--json"])?)?;
        ensure!(
            list[0]["alive"] == true && list[0]["in_use"] == true && list[0]["host"] == "ann@inner",
            "{list}"
        );
        let again = self.server.run(&["login", "scp:ann@inner:"])?;
        ensure!(again.contains("already logged in"), "{again}");
        Ok(dir)
    }

    /// The login is ended: what is written waits, what is cached is read, and the next login sends everything.
    fn ended(&self, dir: &NfsFh3) -> Result<()> {
        self.server.run(&["login", "--end", "ann@inner"])?;
        self.queued(dir, "ended", b"written without a login")
    }

    /// The master is killed, and leaves its socket behind.
    fn dead_master(&self, dir: &NfsFh3) -> Result<()> {
        let socket = self.server.home_status("ann@inner")?["master"]["socket"].clone();
        let socket = socket.as_str().context("no master")?;
        let check = ["-O", "check", "-o", &format!("ControlPath={socket}"), "x"];
        let said = Command::new("ssh").args(check).output()?;
        let said = String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).into_owned();
        let pid = said.split("pid=").nth(1).and_then(|rest| rest.split(')').next()).context(said.clone())?;
        run::output(Command::new("kill").args(["-KILL", pid]))?;
        ensure!(Path::new(socket).exists(), "a killed master leaves its socket");
        self.queued(dir, "killed", b"written behind a dead master")
    }

    fn queued(&self, dir: &NfsFh3, name: &str, text: &[u8]) -> Result<()> {
        self.client.put(dir, name, text).context("a home that needs a login takes changes")?;
        let home = until(self.server, "ann@inner", "login needed")?;
        ensure!(home["unsent_ops"].as_u64().is_some_and(|n| n > 0) && home["master"].is_null(), "{home}");
        let command = home["login"].as_str().context("no command")?.to_owned();
        ensure!(home["reason"].as_str().is_some_and(|r| r.contains(&command)), "{home}");
        let cached = self.client.lookup(dir, "cached")?;
        ensure!(&self.client.read(&cached, 0, 100)?.0[..] == b"what ann wrote", "cached bytes");
        ensure!(!self.work.join(name).exists(), "it arrived without a login");
        // Exactly what a person is told to type.
        let words: Vec<&str> = command.split(' ').collect();
        ensure!(words[..2] == ["trellis", "login"], "{command}");
        let mut right = Terminal::start(Gateway::new(self.world).command(&words[1..]))?;
        right.answer("Password:", RIGHT)?;
        let (status, screen) = right.finish()?;
        ensure!(status.success(), "{status}: {screen}");
        self.server.sync()?;
        ensure!(fs::read(self.work.join(name))? == text, "what was queued did not arrive");
        Ok(())
    }
}

/// A key is revoked in mid-flight, and comes back; then the host poses as another one.
fn revoked(world: &World, server: &Server, lab: &mut Sshd, dir: &NfsFh3, client: &Client) -> Result<()> {
    let home = server.home_status("ann@lab")?;
    let end = &home["expires"][0];
    let soon = end["in_s"].as_f64().is_some_and(|s| (1000.0..1801.0).contains(&s));
    ensure!(soon && end["what"].as_str().is_some_and(|w| w.contains("key-cert.pub")), "{home}");
    let shown = server.run(&["status"])?;
    ensure!(shown.contains("key-cert.pub ends in"), "{shown}");
    let logged = || fs::read_to_string(world.dir.join("server.log")).unwrap_or_default();
    let told = |what: &str| wait_for(what, Duration::from_secs(90), || logged().contains(what).then_some(()));
    told("key-cert.pub ends in")?;

    // Whoever has not seen the names of a folder cannot know that one is free.
    client.list(dir)?;
    let (keys, taken) = (world.authorized_keys(ANN), world.dir.join("taken"));
    fs::rename(&keys, &taken)?;
    lab.kill()?;
    lab.restart()?;
    client.put(dir, "revoked", b"written with a revoked key")?;
    let home = until(server, "ann@lab", "login needed")?;
    let reason = home["reason"].as_str().unwrap_or_default();
    ensure!(reason.contains("ssh-agent") && reason.contains("gone-agent"), "{home}");
    let (gateway, program) = (Gateway::new(world), world.trellis.display());
    let alone = format!("exec setsid --wait {program} login ann@lab --state {}", gateway.state().display());
    let refused = gateway.shell(&alone).output()?;
    ensure!(refused.status.code() == Some(1), "a revoked key logs in");
    let said = String::from_utf8_lossy(&refused.stderr);
    ensure!(said.contains("; nothing has changed") && said.contains("needs a terminal"), "{said}");
    fs::rename(&taken, &keys)?;
    // The server tries by itself within a minute; a login makes it try now.
    let said = server.run(&["login", "ann@lab"])?;
    ensure!(said.contains("the server is connected"), "{said}");
    server.sync()?;
    ensure!(fs::read(world.home(ANN).join("work/revoked"))? == b"written with a revoked key");

    let known = fs::read(world.known_hosts())?;
    server.run(&["login", "--end", "ann@lab"])?;
    lab.change_host_key()?;
    client.put(dir, "posed", b"not for another host")?;
    let home = until(server, "ann@lab", "login needed")?;
    ensure!(home["reason"].as_str().is_some_and(|r| r.contains("ssh-keygen -R")), "{home}");
    let (status, screen) = login(server, &["ann@lab"])?.finish()?;
    ensure!(status.code() == Some(1) && screen.contains("HAS CHANGED"), "{status}: {screen}");
    ensure!(fs::read(world.known_hosts())? == known, "a changed key was accepted");
    Ok(())
}

fn bad_input(server: &Server) -> Result<()> {
    let cases: [(&[&str], i32); 7] = [
        (&["login"], 2),
        (&["login", "-oProxyCommand=x"], 2),
        (&["login", "a b"], 2),
        (&["login", "--for", "soon", "lab"], 2),
        (&["login", "--for", "0", "lab"], 2),
        (&["login", "--end", "nobody@lab"], 1),
        (&["login", "no-such-host.invalid"], 1),
    ];
    for (args, code) in cases {
        let out = server.command(args).output()?;
        let said = String::from_utf8_lossy(&out.stderr);
        ensure!(
            out.status.code() == Some(code) && !said.trim().is_empty(),
            "{args:?}: {} {said:?}",
            out.status
        );
        ensure!(!said.contains("panicked"), "{args:?}: {said}");
    }
    Ok(())
}
