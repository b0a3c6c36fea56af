//! A host that lets in by Kerberos tickets alone, with a key distribution centre of its own.

use crate::e2e::accounts::{ANN, GATEWAY};
use crate::e2e::proc::{Daemon, wait_for};
use crate::e2e::server::{Gateway, Server};
use crate::e2e::sshd::Sshd;
use crate::e2e::world::World;
use crate::run;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::fs;
use std::net::UdpSocket;
use std::process::Command;
use std::time::Duration;

const REALM: &str = "TRELLIS.TEST";
const PASSWORD: &str = "open sesame";
/// How long a ticket lasts, in seconds.
const LIFETIME: f64 = 600.0;

/// The scenario.
pub fn run(world: &World) -> Result<()> {
    let work = world.home_dir(ANN, "work")?;
    let _centre = centre(world)?;
    let mut host = host(world)?;
    let server = world.serve(&[])?;
    let (client, root) = world.client(&server)?;

    ensure!(client.lookup(&root, "ann@safe").is_err(), "there is no ticket yet");
    let status = server.status()?;
    wants_a_ticket(&status["unreached"][0])?;

    let gateway = Gateway::new(world);
    kinit(&gateway)?;
    server.run(&["login", "ann@safe"])?;
    let dir = client.walk(&root, &format!("ann@safe{}", work.display()))?;
    client.put(&dir, "with", b"sent with a ticket")?;
    server.sync()?;
    ensure!(fs::read(work.join("with"))? == b"sent with a ticket", "what was written did not arrive");
    told_ahead(&server)?;

    run::output(&mut gateway.shell("kdestroy"))?;
    host.kill()?;
    host.restart()?;
    client.put(&dir, "without", b"queued without a ticket")?;
    wants_a_ticket(&state(&server, "login needed")?)?;
    ensure!(!work.join("without").exists(), "it arrived without a ticket");
    kinit(&gateway)?;
    server.run(&["login", "ann@safe"])?;
    state(&server, "up")?;
    server.sync()?;
    ensure!(fs::read(work.join("without"))? == b"queued without a ticket", "what was queued did not arrive");
    Ok(())
}

/// A realm with the account [`GATEWAY`] in it and the service of the host.
fn centre(world: &World) -> Result<Daemon> {
    let dir = world.dir.join("kdc");
    fs::create_dir(&dir)?;
    // Nobody else lives in this network.
    let addr = UdpSocket::bind("127.0.0.1:0")?.local_addr()?;
    let config = dir.join("krb5.conf");
    let text = format!(
        "[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n rdns = false\n \
         dns_canonicalize_hostname = false\n default_keytab_name = {dir}/keytab\n default_ccache_name = FILE:{tickets}\n\
         [realms]\n {REALM} = {{\n  kdc = {addr}\n  kdc_listen = {addr}\n  kdc_tcp_listen = {addr}\n  \
         database_name = {dir}/principals\n  key_stash_file = {dir}/stash\n }}\n",
        dir = dir.display(),
        tickets = world.home(GATEWAY).join("tickets").display(),
    );
    fs::write(&config, text)?;
    run::output(Command::new("mount").arg("--bind").arg(&config).arg("/etc/krb5.conf"))?;
    run::output(Command::new("kdb5_util").args(["create", "-s", "-r", REALM, "-P", "of the database"]))?;
    for query in [
        format!("addprinc -pw \"{PASSWORD}\" {}", GATEWAY.name),
        "addprinc -randkey host/127.0.0.1".into(),
        "ktadd host/127.0.0.1".into(),
    ] {
        run::output(Command::new("kadmin.local").args(["-r", REALM, "-q", &query]))?;
    }
    Daemon::start("krb5kdc", Command::new("krb5kdc").args(["-n", "-r", REALM]), &dir.join("log"))
}

/// The host `safe`, which lets [`GATEWAY`]'s tickets in as [`ANN`].
fn host(world: &World) -> Result<Sshd> {
    let login = world.home(ANN).join(".k5login");
    world.write_home(ANN, &login, format!("{}@{REALM}\n", GATEWAY.name).as_bytes())?;
    let lines = "GSSAPIAuthentication yes\nGSSAPIStrictAcceptorCheck no\nPubkeyAuthentication no";
    world.configure("Host safe\n  GSSAPIAuthentication yes\n")?;
    world.host("safe", lines, None)
}

fn kinit(gateway: &Gateway) -> Result<()> {
    run::output(&mut gateway.shell(&format!("kinit -l {LIFETIME}s {} <<< '{PASSWORD}'", GATEWAY.name)))?;
    Ok(())
}

fn wants_a_ticket(home: &Value) -> Result<()> {
    ensure!(home["state"] == "login needed", "{home}");
    ensure!(home["reason"].as_str().is_some_and(|r| r.contains("kinit")), "{home}");
    Ok(())
}

/// `status` and `doctor` show when the ticket ends.
fn told_ahead(server: &Server) -> Result<()> {
    let home = state(server, "up")?;
    let end = &home["expires"][0];
    ensure!(end["what"] == "the Kerberos ticket", "{home}");
    ensure!(end["in_s"].as_f64().is_some_and(|s| s > 0.0 && s <= LIFETIME), "{home}");
    ensure!(end["renew"].as_str().is_some_and(|r| r.contains("kinit")), "{home}");
    let shown = server.run(&["status"])?;
    ensure!(shown.contains("Kerberos ticket"), "status for people hides it: {shown}");
    Ok(())
}

/// Waits until the home is in this state.
fn state(server: &Server, state: &str) -> Result<Value> {
    let mut last = Value::Null;
    let found = wait_for(&format!("the home to be {state}"), Duration::from_secs(90), || {
        std::thread::sleep(Duration::from_millis(100));
        last = server.home_status("ann@safe").unwrap_or_default();
        (last["state"] == state).then(|| last.clone())
    });
    found.with_context(|| format!("{last}"))
}
