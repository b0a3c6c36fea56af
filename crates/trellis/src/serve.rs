//! The server, put together: state directory, namespace, engine, NFS, control socket; and its orderly end.

use crate::accounts::Ssh;
use crate::attach::server::Attachments;
use crate::control::report::{UnsentReport, left_over};
use crate::control::server::{self as control, Control, StopRequest};
use crate::gate::Door;
use crate::login::watch::Watch;
use crate::login::{Logins, Way};
use crate::mount::Mounts;
use crate::mounts::OwnMounts;
use crate::options::Options;
use crate::root::{Dynamic, Root};
use crate::state::{self, StateDir};
use crate::{limits, log, show, unsent};
use frontend::nfs::{Access, Allow, ExportPolicy, NfsServer};
use home::io_text;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use vfs::store::FjallStore;
use vfs::{Cred, Namespace, Vfs};

/// Tells whoever started us what he asks for; nobody may be listening any more, or the disk of the log may be full.
macro_rules! tell {
    ($($text:tt)*) => {
        let _ = writeln!(std::io::stdout(), $($text)*);
    };
}

/// Where and how to serve.
pub struct Serve {
    /// The state directory, if not the usual one.
    pub state: Option<PathBuf>,
    /// Told when requests are accepted.
    pub ready: Option<PathBuf>,
    /// Everything else.
    pub options: Options,
}

/// Serves until it is told to stop.
pub async fn run(serve: Serve) -> Result<(), String> {
    let options = serve.options;
    let listen = match &options.listen[..] {
        _ if options.no_nfs => Vec::new(),
        [] => vec![SocketAddr::from(([127, 0, 0, 1], 0))],
        some => some.to_vec(),
    };
    check_identity(rustix::process::geteuid().is_root(), options.no_root_squash)?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    raise_open_files();
    let state = StateDir::create(serve.state.as_deref(), options.allow_network_state)?;
    let _lock = state.lock_server()?;
    let (ready, ssh_config) = (absolute(serve.ready)?, absolute(options.ssh_config.clone())?);
    check_ssh_config(ssh_config.as_deref())?;
    forget_ready(ready.as_deref())?;
    leave_directory()?;
    unsent::forget(&state)?;
    let mut signals = Signals::catch()?;
    let policy = policy(&options).await?;
    check_ports(&listen, &policy)?;
    let listeners = bind(&state, &listen).await?;
    let nfs: Vec<SocketAddr> = listeners.iter().filter_map(|l| l.local_addr().ok()).collect();
    let mounts = OwnMounts::default();
    mounts.listen(nfs.clone());
    let dynamic = dynamic(&options, &nfs);
    tell_of_hosts(&dynamic);
    let door = Door::new(mounts);
    tokio::spawn(Arc::clone(&door).close_idle());
    let way = Way::new(ssh_config, Some(&state));
    let logins = Arc::new(Logins { homes: options.home.clone(), way: way.clone() });
    let namespace: Arc<dyn Namespace> =
        Arc::new(Root::new(options.home.clone(), dynamic, Ssh::new(way), door));
    let cred = own_cred();
    let vfs = open_engine(&state, &options, Arc::clone(&namespace), &cred).await?;
    let (stop, stopped) = watch::channel(false);
    let serving = serve_nfs(listeners, &vfs, policy, &stopped);
    let (wish, wishes) = mpsc::channel(1);
    let socket = control::bind(&state)?;
    let mounts = Mounts::new(Arc::clone(&vfs), cred.clone(), state.clone());
    mounts.again().await;
    let served = Arc::clone(&mounts);
    let watch = Arc::new(Watch::new(Arc::clone(&logins), state.clone()));
    let watching = tokio::spawn(Arc::clone(&watch).run(Arc::clone(&vfs)));
    let attachments = Attachments::new(Arc::clone(&vfs), cred.clone());
    let attached = Arc::clone(&attachments);
    let control = Control {
        vfs: Arc::clone(&vfs),
        namespace,
        cred,
        nfs: nfs.clone(),
        mounts: served,
        attachments,
        stop: wish,
        logins,
        watch,
    };
    let controlling = tokio::spawn(control::serve(Arc::new(control), socket));
    announce(&nfs, ready.as_deref())?;
    tell_manager();
    let ending = wait_for_the_end(&mut signals, wishes).await;
    let serving = Serving { mounts, attachments: attached, stop, listeners: serving };
    finish(&state, &vfs, serving, ending, &mut signals).await?;
    controlling.abort();
    watching.abort();
    Ok(())
}

/// Root can do to every account what its users never asked for, so it has to say that it means it.
fn check_identity(root: bool, no_root_squash: bool) -> Result<(), String> {
    match root && !no_root_squash {
        true => Err("the server should run as an ordinary user, whose ssh keys it uses: start it as that user, or, if \
                     root's own accounts are meant, with --no-root-squash"
            .into()),
        false => Ok(()),
    }
}

/// NFS believes a request because of its source port; that is worth nothing where anyone may use low ports.
fn check_ports(listen: &[SocketAddr], policy: &ExportPolicy) -> Result<(), String> {
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_unprivileged_port_start").unwrap_or_default();
    check_port_start(text.trim().parse().unwrap_or(1024), listen, policy)
}

/// Users of this machine reach every listener, from the listener's own address.
fn check_port_start(first_open: u32, listen: &[SocketAddr], policy: &ExportPolicy) -> Result<(), String> {
    let may_call = |l: &SocketAddr| l.ip().is_unspecified() || policy.access(l.ip()) != Access::None;
    match first_open < 1024 && listen.iter().any(may_call) && !policy.any_port {
        true => Err(format!(
            "every user of this machine may use ports from {first_open} up, and could act as you by NFS: run \
             `sysctl -w net.ipv4.ip_unprivileged_port_start=1024` as root, serve no NFS with --no-nfs, or accept it with --insecure"
        )),
        false => Ok(()),
    }
}

/// A file that cannot be read would be found out with the first host, by a client that sees only an error number.
pub fn check_ssh_config(path: Option<&Path>) -> Result<(), String> {
    let Some(path) = path else { return Ok(()) };
    let opened = std::fs::File::open(path).map(drop);
    opened.map_err(|e| {
        format!("--ssh-config {}: {e}; name a file that ssh -F can read", shown(path), e = io_text(&e))
    })
}

/// Whoever waits for the file must not find the one of an earlier server.
fn forget_ready(path: Option<&Path>) -> Result<(), String> {
    match path.map(|p| (p, std::fs::remove_file(p))) {
        Some((path, Err(e))) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("--ready {}: {e}; name a file that can be written", shown(path), e = io_text(&e)))
        }
        _ => Ok(()),
    }
}

fn shown(path: &Path) -> String {
    show::text(path.as_os_str().as_encoded_bytes())
}

fn absolute(path: Option<PathBuf>) -> Result<Option<PathBuf>, String> {
    let absolute =
        path.map(|p| std::path::absolute(&p).map_err(|e| format!("{}: {e}", p.display(), e = io_text(&e))));
    absolute.transpose()
}

/// A server must not keep the place busy that it was started in, and must not depend on its being there.
fn leave_directory() -> Result<(), String> {
    std::env::set_current_dir("/").map_err(|e| format!("directory /: {}", io_text(&e)))
}

fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if let Err(e) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum }) {
        tracing::warn!("the limit of open files stays at {:?}: {e}", limit.current, e = io_text(&e.into()));
    }
}

/// The rules for all clients.
async fn policy(options: &Options) -> Result<ExportPolicy, String> {
    let cred = own_cred();
    Ok(ExportPolicy {
        allow: networks(options).await?,
        any_port: options.insecure,
        no_root_squash: options.no_root_squash,
        server_uid: cred.uid,
        server_gid: cred.gid,
    })
}

async fn networks(options: &Options) -> Result<Vec<Allow>, String> {
    let mut allow = Vec::new();
    for spec in &options.allow {
        allow.extend(spec.resolve().await?);
    }
    if allow.is_empty() {
        allow = Allow::loopback();
        if options.listen.iter().any(|l| !l.ip().is_loopback()) {
            log::say(
                "only this machine may connect: allow others with --allow ADDRESS or --allow NETWORK/PREFIX",
            );
        }
    }
    Ok(allow)
}

/// Every name on loopback; beyond it, whoever can reach the port could send us to any host, so that patterns
/// are needed.
fn dynamic(options: &Options, nfs: &[SocketAddr]) -> Dynamic {
    match options.hosts.is_empty() && nfs.iter().all(|l| l.ip().is_loopback()) {
        true => Dynamic::All,
        false => Dynamic::Only(options.hosts.clone()),
    }
}

/// Said at the start, because a client that finds no host sees only "no such file".
fn tell_of_hosts(dynamic: &Dynamic) {
    if *dynamic == Dynamic::Only(Vec::new()) {
        log::say(
            "other machines may reach this port, so only configured homes have names: allow more hosts with --hosts PATTERN",
        );
    }
}

async fn bind(state: &StateDir, listen: &[SocketAddr]) -> Result<Vec<TcpListener>, String> {
    let mut listeners = Vec::new();
    for wanted in listen {
        let address = state.fixed_port(*wanted);
        let listener = TcpListener::bind(address).await.map_err(|e| match wanted.port() {
            0 if address.port() != 0 => format!(
                "listen on {address}: {e}; clients may have mounted this port, which was chosen before: free it, or choose \
                 another with --listen {}:PORT",
                address.ip(), e = io_text(&e)
            ),
            _ => format!("listen on {address}: {}; choose another address with --listen ADDR:PORT", io_text(&e)),
        })?;
        if wanted.port() == 0 {
            state.keep_port(listener.local_addr().map_err(|e| e.to_string())?)?;
        }
        listeners.push(listener);
    }
    Ok(listeners)
}

fn own_cred() -> Cred {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    Cred { uid, gid, groups: Vec::new() }
}

async fn open_engine(
    state: &StateDir,
    options: &Options,
    namespace: Arc<dyn Namespace>,
    cred: &Cred,
) -> Result<Arc<Vfs>, String> {
    let here = |e: &dyn std::fmt::Display| format!("state directory {}: {e}", state.path().display());
    let env = vfs::env::Env::real(state.path()).map_err(|e| here(&e))?;
    let store = FjallStore::open(&state.path().join("meta")).map_err(|e| here(&e))?;
    let config = vfs::Config {
        env,
        store: Arc::new(store),
        namespace,
        server_uid: cred.uid,
        server_gid: cred.gid,
        mode: options.mode.map_or(vfs::Mode::Wb, Into::into),
        share: options.share,
        cache_bytes: cache_bytes(state, options),
        spool_from: Some(vfs::SPOOL_FROM),
        batch_bytes: vfs::BATCH_BYTES,
        staleness: options.staleness.map_or(limits::STALENESS, |s| s.0),
    };
    Vfs::open(config).await.map_err(|e| here(&show::message(&e.detail)))
}

fn cache_bytes(state: &StateDir, options: &Options) -> u64 {
    let tenth = rustix::fs::statvfs(state.path()).map(|fs| fs.f_blocks.saturating_mul(fs.f_frsize) / 10);
    let usual = limits::CACHE_BYTES.min(tenth.unwrap_or(limits::CACHE_BYTES));
    options.cache.map_or(usual, |c| c.0).max(limits::CACHE_LEAST)
}

fn serve_nfs(
    listeners: Vec<TcpListener>,
    vfs: &Arc<Vfs>,
    policy: ExportPolicy,
    stopped: &watch::Receiver<bool>,
) -> Vec<JoinHandle<()>> {
    let server = Arc::new(NfsServer::new(Arc::clone(vfs), Arc::new(policy)));
    let each = listeners.into_iter().map(|listener| {
        let (server, mut stopped) = (Arc::clone(&server), stopped.clone());
        tokio::spawn(async move {
            // The sender lives until the end; should it go, that is the end too.
            let stop = async move { drop(stopped.wait_for(|s| *s).await) };
            server.listen(listener, stop).await;
        })
    });
    each.collect()
}

fn announce(nfs: &[SocketAddr], ready: Option<&Path>) -> Result<(), String> {
    log::say(concat!("trellis ", env!("CARGO_PKG_VERSION"), " serves"));
    if nfs.is_empty() {
        let added = crate::advice::addition();
        tell!("serving mounts by FUSE alone; mount the tree with\n  trellis mount{added}");
    }
    for address in nfs {
        tell!("serving NFS on {address}; mount it as root with\n  {}", mount_line(*address));
    }
    match ready {
        Some(path) => {
            let nfs: Vec<String> = nfs.iter().map(ToString::to_string).collect();
            let mut text = serde_json::json!({ "nfs": nfs }).to_string();
            text.push('\n');
            state::write_atomically(path, text.as_bytes())
                .map_err(|e| format!("--ready {e}; choose another file"))
        }
        None => Ok(()),
    }
}

/// A service manager that started us waits for this (sd_notify(3)); without one nobody listens.
fn tell_manager() {
    if let Err(e) = sd_notify::notify(&[sd_notify::NotifyState::Ready]) {
        tracing::warn!("the service manager could not be told that the server is ready: {}", io_text(&e));
    }
}

/// The exact command for a client.
pub fn mount_line(address: SocketAddr) -> String {
    let port = address.port();
    let (host, proto) = match address {
        a if a.ip().is_unspecified() => {
            (rustix::system::uname().nodename().to_string_lossy().into_owned(), "tcp")
        }
        SocketAddr::V4(a) => (a.ip().to_string(), "tcp"),
        SocketAddr::V6(a) => (format!("[{}]", a.ip()), "proto=tcp6"),
    };
    format!(
        "mount -t nfs -o vers=3,{proto},port={port},mountport={port},nolock,nosuid,nodev {host}:/ /trellis"
    )
}

/// The signals that end the server.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// The end of the terminal, unless whoever started us wants it ignored (nohup(1)).
    hangup: Option<Signal>,
}

impl Signals {
    /// From now on these signals do not kill the process.
    fn catch() -> Result<Signals, String> {
        let catch = |kind| signal(kind).map_err(|e| format!("signals: {}", io_text(&e)));
        let (terminate, interrupt) = (catch(SignalKind::terminate())?, catch(SignalKind::interrupt())?);
        let hangup = if ignores_hangup() { None } else { Some(catch(SignalKind::hangup())?) };
        Ok(Signals { terminate, interrupt, hangup })
    }

    async fn next(&mut self) {
        let hangup = async {
            match &mut self.hangup {
                Some(signal) => drop(signal.recv().await),
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            () = hangup => {}
        }
    }
}

/// Whether SIGHUP was ignored when this process began (proc(5) `SigIgn`).
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|l| l.strip_prefix("SigIgn:"));
    mask.and_then(|m| u64::from_str_radix(m.trim(), 16).ok()).is_some_and(|m| m & 1 != 0)
}

/// How the server ends.
struct Ending {
    drain: Duration,
    done: Option<tokio::sync::oneshot::Sender<Vec<UnsentReport>>>,
}

async fn wait_for_the_end(signals: &mut Signals, mut wishes: mpsc::Receiver<StopRequest>) -> Ending {
    tokio::select! {
        () = signals.next() => Ending { drain: limits::DRAIN_AT_SIGNAL, done: None },
        Some(wish) = wishes.recv() => Ending { drain: wish.drain, done: Some(wish.done) },
    }
}

/// Through what clients come in.
struct Serving {
    mounts: Arc<Mounts>,
    attachments: Arc<Attachments>,
    stop: watch::Sender<bool>,
    listeners: Vec<JoinHandle<()>>,
}

impl Serving {
    /// Takes no more requests, but for those of mounts that are in use; answers these.
    async fn end(&self) -> Vec<PathBuf> {
        // What the kernel holds back comes in while a mount is taken away.
        let busy = self.mounts.end().await;
        self.attachments.end().await;
        // Nobody is left to tell only if every listener has ended already.
        let _ = self.stop.send(true);
        let until = tokio::time::Instant::now() + limits::LAST_ANSWERS;
        while self.listeners.iter().any(|l| !l.is_finished()) && tokio::time::Instant::now() < until {
            tokio::time::sleep(limits::START_POLL).await;
        }
        self.listeners.iter().for_each(JoinHandle::abort);
        busy
    }
}

/// Takes no more requests, sends home what can be sent in time, and closes the journal. A second signal ends
/// it at once; what was acknowledged as stable is in the journal either way.
async fn finish(
    state: &StateDir,
    vfs: &Arc<Vfs>,
    serving: Serving,
    ending: Ending,
    signals: &mut Signals,
) -> Result<(), String> {
    let Ending { drain, done } = ending;
    log::say(&format!("stopping; unsent changes have {} to go home", show::span(drain.as_secs_f64())));
    let close = async {
        let busy = serving.end().await;
        let volumes = vfs.close(Some(drain)).await;
        serving.mounts.abandon(&busy).await;
        (volumes, vfs.kept_back(None))
    };
    let (volumes, kept_back) = tokio::select! {
        closed = close => closed,
        () = signals.next() => return Err("stopped at once by a second signal".into()),
    };
    if let Err(why) = unsent::note(state, &volumes, &kept_back) {
        // Without the note nobody goes around the journal.
        tracing::warn!("{why}; until a server has run again, commands without one are refused");
    }
    let left = left_over(&volumes, &kept_back);
    left.iter().for_each(|home| log::say(&unsent_line(home)));
    log::say("ended");
    if let Some(done) = done
        && done.send(left).is_ok()
    {
        // The answer travels on a task of its own.
        tokio::time::sleep(limits::FAREWELL).await;
    }
    Ok(())
}

/// What is not at a home, for a person.
pub fn unsent_line(home: &UnsentReport) -> String {
    format!(
        "{}: {}, {} not sent yet: {}",
        show::text(home.account.as_bytes()),
        show::count(home.ops, "operation"),
        show::size(home.bytes),
        show::message(&home.why)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(list: &[&str]) -> Vec<SocketAddr> {
        list.iter().map(|a| a.parse().unwrap()).collect()
    }

    #[test]
    fn root_must_say_that_it_means_it() {
        assert!(check_identity(true, false).unwrap_err().contains("--no-root-squash"));
        assert!(check_identity(true, true).is_ok() && check_identity(false, false).is_ok());
    }

    #[test]
    fn low_ports_must_mean_something() {
        let strict = ExportPolicy::local(1, 1);
        let open = ExportPolicy { any_port: true, ..strict.clone() };
        let net = ExportPolicy { allow: vec!["10.0.0.0/24".parse().unwrap()], ..strict.clone() };
        let refused =
            |first, listen: &str, policy| check_port_start(first, &addresses(&[listen]), policy).is_err();
        assert!(!refused(1024, "127.0.0.1:0", &strict) && refused(0, "127.0.0.1:0", &strict));
        assert!(refused(1023, "0.0.0.0:1", &strict) && !refused(0, "127.0.0.1:0", &open));
        assert!(!refused(0, "10.0.0.1:1", &strict), "it may not call from there");
        assert!(refused(0, "10.0.0.1:1", &net), "local users call from the listener's own address");
        let why = check_port_start(0, &addresses(&["127.0.0.1:0"]), &strict).unwrap_err();
        assert!(why.contains("--insecure"));
    }

    #[test]
    fn other_machines_need_patterns() {
        let none = Options::default();
        let some = Options { hosts: vec!["lab*".parse().unwrap()], ..Options::default() };
        let (local, wide) =
            (addresses(&["127.0.0.1:1", "[::1]:1"]), addresses(&["127.0.0.1:1", "0.0.0.0:1"]));
        assert_eq!(dynamic(&none, &local), Dynamic::All);
        assert_eq!(dynamic(&none, &wide), Dynamic::Only(vec![]));
        assert_eq!(dynamic(&some, &local), Dynamic::Only(some.hosts.clone()));
        assert_eq!(dynamic(&some, &wide), Dynamic::Only(some.hosts.clone()));
    }

    #[test]
    fn files_that_are_named_are_checked_at_the_start() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        assert!(check_ssh_config(Some(&file)).unwrap_err().contains("ssh -F"));
        assert!(check_ssh_config(None).is_ok() && forget_ready(Some(&file)).is_ok());
        std::fs::write(&file, "").unwrap();
        assert!(check_ssh_config(Some(&file)).is_ok() && forget_ready(Some(&file)).is_ok());
        assert!(!file.exists());
        assert!(forget_ready(Some(dir.path())).unwrap_err().contains("--ready"));
    }

    #[test]
    fn the_mount_line_is_exact() {
        assert_eq!(
            mount_line("127.0.0.1:4711".parse().unwrap()),
            "mount -t nfs -o vers=3,tcp,port=4711,mountport=4711,nolock,nosuid,nodev 127.0.0.1:/ /trellis"
        );
        assert!(mount_line("[::1]:4711".parse().unwrap()).contains("proto=tcp6,"));
        assert!(mount_line("[::1]:4711".parse().unwrap()).ends_with(" [::1]:/ /trellis"));
        assert!(!mount_line("0.0.0.0:4711".parse().unwrap()).contains("0.0.0.0"));
    }
}
