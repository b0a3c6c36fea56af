//! The servers that are measured, each with the same files, and their CPU time.

use super::workload::{FILES, HOT_BYTES, TREE_DIRS, TREE_FILES, file_name};
use crate::e2e::{ANN, Daemon, GATEWAY, SERVER_IP, Server, Sshd, World, noise_file, wait_for};
use crate::nfs::Client;
use crate::run;
use anyhow::{Context, Result};
use oncrpc::nfs3::NfsFh3;
use std::cell::RefCell;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// A server, and a client of it.
pub struct Target {
    /// As it stands in the table.
    pub name: &'static str,
    /// Where it serves NFS.
    pub addr: SocketAddr,
    /// As whom it is called.
    pub uid: u32,
    /// For what is done once.
    pub client: Client,
    /// The folder with all files.
    pub dir: NfsFh3,
    /// A folder of [`FILES`] files in it.
    pub many: NfsFh3,
    /// A folder with the folders of a large tree.
    pub tree: NfsFh3,
    /// Whether only changes are measured.
    pub for_changes_only: bool,
    /// Privileged ports are taken from here downwards.
    pub next_port: RefCell<u16>,
    pid: i32,
    _running: Running,
}

/// What must live as long as the server is measured.
enum Running {
    Trellis { _server: Box<Server>, _home: Box<Sshd> },
    Ganesha { _daemon: Daemon },
}

impl Target {
    /// Memory of the server's process in bytes.
    pub fn memory(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).context("no VmRSS")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? << 10)
    }

    /// CPU time of the server's process since its start: user and system, all threads, without children.
    pub fn cpu(&self) -> Result<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid))?;
        let fields: Vec<_> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        // utime and stime are fields 14 and 15 of proc_pid_stat(5), in ticks of 1/100 s; the rest begins at 3.
        let ticks: u64 =
            fields.get(11..13).context("short stat")?.iter().filter_map(|f| f.parse::<u64>().ok()).sum();
        Ok(Duration::from_millis(ticks * 10))
    }
}

/// Starts all servers.
pub fn start_all(world: &World) -> Result<Vec<Target>> {
    start_rpcbind(world)?;
    Ok(vec![
        trellis(world, TREE_DIRS)?,
        ganesha(world, "ganesha", 20_491, &plain(world)?, false)?,
        ganesha(world, "ganesha, sync,dirsync", 20_591, &synced(world)?, true)?,
    ])
}

/// Those that sync each change, without a large tree.
pub fn start_for_changes(world: &World) -> Result<Vec<Target>> {
    start_rpcbind(world)?;
    Ok(vec![trellis(world, 0)?, ganesha(world, "ganesha, sync,dirsync", 20_591, &synced(world)?, true)?])
}

/// Trellis on a home that a loopback sshd serves.
fn trellis(world: &World, tree_dirs: usize) -> Result<Target> {
    let work = world.home_dir(ANN, "bench")?;
    make_files(&work, ANN.uid, tree_dirs)?;
    let home = world.host("lab", "", None)?;
    // Figures are of the caches, so answers may be as old as the run is long.
    let server = world.serve(&["--staleness", "1h"])?;
    let (client, root) = world.client(&server)?;
    let dir = client.walk(&root, &format!("ann@lab{}", work.display()))?;
    let (many, tree) = (client.lookup(&dir, "many")?, client.lookup(&dir, "tree")?);
    let (addr, pid) = (server.addr, server.pid());
    let running = Running::Trellis { _server: Box::new(server), _home: Box::new(home) };
    let next_port = RefCell::new(590);
    Ok(Target {
        name: "Trellis",
        addr,
        uid: GATEWAY.uid,
        client,
        dir,
        many,
        tree,
        for_changes_only: false,
        next_port,
        pid,
        _running: running,
    })
}

/// nfs-ganesha with its VFS back-end on a folder.
fn ganesha(
    world: &World,
    name: &'static str,
    port: u16,
    export: &Path,
    for_changes_only: bool,
) -> Result<Target> {
    make_files(export, GATEWAY.uid, if for_changes_only { 0 } else { TREE_DIRS })?;
    let config = world.dir.join(format!("ganesha-{port}.conf"));
    let log = world.dir.join(format!("ganesha-{port}.log"));
    let text = format!(
        "NFS_CORE_PARAM {{ Protocols = 3; NFS_Port = {port}; MNT_Port = {}; Bind_addr = {SERVER_IP}; \
         Enable_NLM = false; Enable_RQUOTA = false; }}\n\
         EXPORT {{ Export_Id = 1; Path = {1}; Pseudo = /x; Access_Type = RW; Squash = None; SecType = sys; \
         Protocols = 3; Transports = TCP; FSAL {{ Name = VFS; }} }}\n\
         LOG {{ Default_Log_Level = WARN; }}\n",
        port + 1,
        export.display(),
    );
    fs::write(&config, text)?;
    let mut cmd = Command::new("ganesha.nfsd");
    cmd.args(["-F", "-f"]).arg(&config).arg("-L").arg(&log);
    cmd.arg("-p").arg(world.dir.join(format!("ganesha-{port}.pid")));
    let daemon = Daemon::start(name, &mut cmd, &log)?;
    let addr = SocketAddr::new(SERVER_IP.parse()?, port);
    let mount = SocketAddr::new(SERVER_IP.parse()?, port + 1);
    wait_for(name, Duration::from_secs(60), || TcpStream::connect(addr).ok())
        .with_context(|| format!("ganesha does not start:\n{}", daemon.tail()))?;
    let dir = wait_for("its export", Duration::from_secs(100), || {
        Client::connect(mount, GATEWAY.uid).ok()?.mount(&export.to_string_lossy()).ok()
    })?;
    let client = Client::connect(addr, GATEWAY.uid)?;
    let (many, tree) = (client.lookup(&dir, "many")?, client.lookup(&dir, "tree")?);
    let pid = daemon.pid().as_raw_nonzero().get();
    let running = Running::Ganesha { _daemon: daemon };
    let next_port = RefCell::new(if for_changes_only { 290 } else { 440 });
    Ok(Target {
        name,
        addr,
        uid: GATEWAY.uid,
        client,
        dir,
        many,
        tree,
        for_changes_only,
        next_port,
        pid,
        _running: running,
    })
}

/// A folder on the same file system as the state of Trellis.
fn plain(world: &World) -> Result<PathBuf> {
    let dir = world.dir.join("export");
    fs::create_dir_all(&dir)?;
    Ok(dir)
}

/// A folder on a file system that syncs every change, as Trellis does with its journal.
fn synced(world: &World) -> Result<PathBuf> {
    let (image, dir) = (world.dir.join("synced.img"), world.dir.join("synced"));
    fs::create_dir_all(&dir)?;
    let script = "truncate -s 4G \"$1\"; mkfs.ext4 -q \"$1\"; mount -o loop,sync,dirsync \"$1\" \"$2\"";
    run::output(Command::new("sh").args(["-euc", script, "-"]).arg(image).arg(&dir))?;
    let export = dir.join("export");
    fs::create_dir_all(&export)?;
    Ok(export)
}

/// ganesha registers its services or does not start.
fn start_rpcbind(world: &World) -> Result<()> {
    fs::create_dir_all("/run/rpcbind")?;
    run::output(Command::new("rpcbind").arg("-w").current_dir(&world.dir)).map(drop)
}

fn make_files(dir: &Path, uid: u32, tree_dirs: usize) -> Result<()> {
    fill(&dir.join("many"), FILES)?;
    let tree = dir.join("tree");
    fs::create_dir_all(&tree)?;
    for i in 0..tree_dirs {
        fill(&tree.join(format!("dir{i:05}")), TREE_FILES)?;
    }
    noise_file(&dir.join("hot"), 5, HOT_BYTES)?;
    run::output(Command::new("chown").args(["-R", &format!("{uid}:{uid}")]).arg(dir)).map(drop)
}

fn fill(dir: &Path, files: usize) -> Result<()> {
    fs::create_dir_all(dir)?;
    for i in 0..files {
        fs::write(dir.join(file_name(i)), b"a file")?;
    }
    Ok(())
}
