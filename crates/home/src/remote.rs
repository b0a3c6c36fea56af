//! A home reached over the network: connected when needed, again when lost, never by two at once.
//!
//! ```text
//! Idle ── a call ──► Connecting ──► Up ── the pipe ends ──► Down
//!                        │ ▲                                  │
//!                        ▼ └──── a call, after the pause ─────┤
//!                       Down ─────────────────────────────────┘
//! ```
//! Any call connects. While a pause lasts, calls fail at once with the reason of the last failure; the pauses
//! grow from a quarter of a second to half a minute while the home stays away, but not beyond a second while somebody
//! waits for it ([`Home::wanted`]). They are a minute where the login was refused, whichever program waits, so that no
//! account gets locked; only a person's command is worth an attempt of its own ([`Home::asked`]). A call that was under way when the pipe ended fails as unreachable: whether it had an
//! effect is unknown, and its caller repeats it.
//!
//! The agent is tried first. Where a host lets us in but runs no program, SFTP is used from then on. Once a
//! home has shown its class it keeps it: objects would change their identity otherwise.

mod life;
#[cfg(test)]
mod tests;

pub(crate) use life::{Life, closed, lost};

use crate::agent::client::{Opener, Opening, Session, Told, new_name};
use crate::agent::deploy::{self, AgentBinaries, Deployed, Pipe, deploy, random};
use crate::limits::agent::KEPT_FOR;
use crate::limits::remote::{GREETING, PAUSE_LOGIN, PAUSE_MAX, PAUSE_MIN, PAUSE_WANTED, PROVEN};
use crate::sparse::Sparse;
use crate::ssh::{SshTarget, credentials};
use crate::{
    Belief, Believed, Changed, Chunk, Claimed, Class, Copied, Entered, Error, ErrorKind, Hello, Home, Link,
    Loc, Name, OpId, Outcome, Page,
};
use crate::{Placed, Result, Seen, StatFs, Status, Term, Turn, Walked, Watched, XattrName, Xattrs};
use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout};

/// One connection to a home, from greeting to end.
#[async_trait::async_trait]
pub trait Connection: Home {
    /// Waits for the end and tells its reason.
    async fn ended(&self) -> Error;

    /// Whether the next connection may hear what is told in vain.
    fn is_kept(&self) -> bool {
        false
    }
}

/// Makes connections.
#[async_trait::async_trait]
pub trait Connector: Send + Sync + 'static {
    /// One attempt. `class`: what the home has shown itself to be, and has to be again.
    async fn connect(&self, class: Option<Class>, meter: &Arc<Meter>) -> Result<Arc<dyn Connection>>;

    /// The command that a person has to run to get past this reason, if there is one: the login asks something.
    fn login_for(&self, why: &Error) -> Option<String> {
        let _ = why;
        None
    }
}

/// Counts over all connections to one home.
#[derive(Debug, Default)]
pub struct Meter {
    /// Sequential waits for the home.
    pub round_trips: AtomicU64,
    /// Answers, and changes on their way, whose bytes were not those that were sent.
    pub damaged: AtomicU64,
    /// Bytes received.
    pub bytes_in: AtomicU64,
    /// Bytes sent.
    pub bytes_out: AtomicU64,
}

impl Meter {
    /// The counts, with the rest of a status.
    pub fn status(&self, link: Link, class: Option<Class>, weaker: Vec<String>) -> Status {
        Status {
            link,
            login: None,
            needs_person: false,
            clock_ahead_s: None,
            class,
            weaker,
            watches: false,
            damaged: self.damaged.load(Ordering::Relaxed),
            round_trips: self.round_trips.load(Ordering::Relaxed),
            bytes_in: self.bytes_in.load(Ordering::Relaxed),
            bytes_out: self.bytes_out.load(Ordering::Relaxed),
        }
    }
}

/// Counts sequential waits: requests that are under way at the same time share one.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    /// Requests sent now belong to this round.
    current: u64,
    /// Rounds below this one are counted.
    counted: u64,
}

/// The home of an account on a host that ssh reaches. Connects nowhere until the first call.
pub fn connect(target: SshTarget, agents: AgentBinaries) -> Arc<RemoteHome> {
    RemoteHome::new(by_ssh(target, agents))
}

/// Connections to that account.
pub fn by_ssh(target: SshTarget, agents: AgentBinaries) -> Arc<dyn Connector> {
    let told = Arc::new(Told::new(new_name()));
    Arc::new(Ssh { target, agents, told, why_sftp: Mutex::new(None), avoid_master: AtomicBool::new(false) })
}

/// A home that connects when it is used.
pub struct RemoteHome {
    shared: Arc<Shared>,
}

struct Shared {
    connector: Arc<dyn Connector>,
    meter: Arc<Meter>,
    state: Mutex<State>,
    /// Moves whenever the phase does.
    moved: watch::Sender<()>,
}

/// What is weaker there.
const UNFENCED: &str = "~/.cache/trellis cannot be kept there: after a lost connection the files are looked at to find out \
                        what was done";

struct State {
    phase: Phase,
    /// Attempts that failed since the home was last connected.
    failures: u32,
    /// Connections in a row that ended before they were [`PROVEN`].
    short: u32,
    /// What the home was when it was first reached.
    first: Option<Hello>,
    /// What it was to an earlier process.
    expected: Option<Class>,
    weaker: Vec<String>,
    /// Whether it had [`Home::spools`] when it was connected last.
    spools: bool,
    /// A home of the full class that keeps neither fence nor log.
    unfenced: bool,
    /// Seconds, as in [`Status`].
    clock_ahead_s: Option<f64>,
    /// The account has changed, which only [`Home::attach`] accepts.
    foreign: Option<Error>,
    /// Volumes that were claimed, each with the connection of its last claim.
    claims: HashMap<(u64, u32), Weak<dyn Connection>>,
    /// The home made its token for this connection, and nobody has been told.
    new_token: bool,
    task: Option<AbortHandle>,
    /// When a connection ended over which changes were told, which an agent may still hold for the next one.
    lost: Option<Instant>,
}

#[derive(Clone)]
enum Phase {
    Idle,
    Connecting,
    Up(Arc<dyn Connection>),
    Down { why: Error, since: Instant, until: Instant },
}

impl RemoteHome {
    /// A home over connections of any kind.
    pub fn new(connector: Arc<dyn Connector>) -> Arc<RemoteHome> {
        let state = State {
            phase: Phase::Idle,
            failures: 0,
            short: 0,
            first: None,
            spools: false,
            expected: None,
            weaker: Vec::new(),
            unfenced: false,
            clock_ahead_s: None,
            foreign: None,
            claims: HashMap::new(),
            new_token: false,
            task: None,
            lost: None,
        };
        let shared = Shared {
            connector,
            meter: Arc::default(),
            state: Mutex::new(state),
            moved: watch::Sender::new(()),
        };
        Arc::new(RemoteHome { shared: Arc::new(shared) })
    }

    /// Closes the connection, if there is one. Calls under way fail; the next call connects again.
    pub fn close(&self) {
        let mut state = self.shared.state.lock();
        if let Some(task) = state.task.take() {
            task.abort();
        }
        if !matches!(state.phase, Phase::Down { .. }) {
            state.phase = Phase::Idle;
        }
        drop(state);
        self.shared.moved.send_replace(());
    }

    async fn connection(&self) -> Result<Arc<dyn Connection>> {
        let mut moved = self.shared.moved.subscribe();
        loop {
            moved.mark_unchanged();
            {
                let mut state = self.shared.state.lock();
                match &state.phase {
                    Phase::Up(connection) => return Ok(connection.clone()),
                    Phase::Down { why, until, .. } if Instant::now() < *until => return Err(why.clone()),
                    Phase::Connecting => {}
                    Phase::Idle | Phase::Down { .. } => {
                        state.phase = Phase::Connecting;
                        state.task = Some(tokio::spawn(live(self.shared.clone())).abort_handle());
                    }
                }
            }
            // Fails only if the sender is gone, which we hold.
            let _ = moved.changed().await;
        }
    }

    /// A connection to the account that [`Home::attach`] has shown.
    async fn same_account(&self) -> Result<Arc<dyn Connection>> {
        let connection = self.connection().await?;
        match &self.shared.state.lock().foreign {
            Some(error) => Err(error.clone()),
            None => Ok(connection),
        }
    }

    /// A volume was claimed over this connection.
    fn claimed(&self, volume: (u64, u32), over: &Arc<dyn Connection>, known: &Option<Claimed>) {
        let mut state = self.shared.state.lock();
        state.claims.insert(volume, Arc::downgrade(over));
        state.unfenced = known.is_none() && state.first.as_ref().is_some_and(|h| h.class == Class::Posix);
    }
}

impl Drop for RemoteHome {
    fn drop(&mut self) {
        self.close();
    }
}

/// One connection's life: made, greeted, watched until it ends.
async fn live(shared: Arc<Shared>) {
    let class = {
        let state = shared.state.lock();
        state.expected.or(state.first.as_ref().map(|h| h.class))
    };
    let made = async {
        let connection = shared.connector.connect(class, &shared.meter).await?;
        let hello = connection.attach().await?;
        Ok((connection, hello))
    };
    let (connection, hello) = match made.await {
        Ok(made) => made,
        Err(why) => return shared.failed(why),
    };
    let since = Instant::now();
    {
        let mut state = shared.state.lock();
        state.weaker = connection.status().weaker;
        state.clock_ahead_s = (hello.class == Class::Posix).then(|| ahead(hello.clock));
        state.greet(hello);
        state.failures = 0;
        state.lost = None;
        state.spools = connection.spools();
        state.phase = Phase::Up(connection.clone());
    }
    shared.moved.send_replace(());
    let why = connection.ended().await;
    if connection.is_kept() {
        shared.state.lock().lost = Some(Instant::now());
    }
    tracing::info!(%why, "connection to a home ended");
    shared.ended(why, since.elapsed() >= PROVEN);
}

impl Shared {
    /// An attempt came to nothing.
    fn failed(&self, mut why: Error) {
        let mut state = self.state.lock();
        let is_lost = matches!(why.kind, ErrorKind::UnknownHost | ErrorKind::NameServer);
        if is_lost && (state.first.is_some() || state.expected.is_some()) {
            // There is such a host: it is the way to its name that is lost.
            why.kind = ErrorKind::Unreachable;
        }
        let pause = pause(why.kind, state.failures);
        state.failures = state.failures.saturating_add(1);
        self.down(state, why, pause);
    }

    /// A connection has ended.
    fn ended(&self, why: Error, proven: bool) {
        let mut state = self.state.lock();
        let pause = if proven { Duration::ZERO } else { pause(why.kind, state.short) };
        state.short = if proven { 0 } else { state.short.saturating_add(1) };
        self.down(state, why, pause);
    }

    fn down(&self, mut state: MutexGuard<'_, State>, why: Error, pause: Duration) {
        let since = Instant::now();
        state.phase = Phase::Down { why, since, until: since + pause };
        drop(state);
        self.moved.send_replace(());
    }
}

impl State {
    /// The connection that works.
    fn up(&self) -> Option<&Arc<dyn Connection>> {
        match &self.phase {
            Phase::Up(connection) => Some(connection),
            _ => None,
        }
    }

    /// When to connect for the sake of changes that are told in vain meanwhile: not where that is up to somebody, nor when they
    /// are not held any more.
    fn goes_on_at(&self) -> Option<Instant> {
        match &self.phase {
            Phase::Down { why, until, .. } if !why.kind.needs_person() => {
                self.lost.filter(|lost| *until < *lost + KEPT_FOR).map(|_| *until)
            }
            _ => None,
        }
    }

    /// Compares the greeting with the first one: another token or user is another account, unless it is in the same place.
    fn greet(&mut self, hello: Hello) {
        self.new_token |= hello.token_is_new;
        match &self.first {
            Some(first) if first.is_in_the_same_place(&hello) => {
                self.foreign = None;
                self.first = Some(hello);
            }
            Some(first) if (first.token, first.uid) != (hello.token, hello.uid) => {
                let text = "the account at the other end is not the one that it was; nothing is sent there \
                            until that is confirmed";
                self.foreign = Some(Error::new(ErrorKind::Setup, text));
            }
            Some(_) => self.foreign = None,
            None => self.first = Some(hello),
        }
    }
}

/// Seconds that a clock is ahead of ours.
fn ahead(clock: crate::Time) -> f64 {
    let ours = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    clock.sec as f64 + f64::from(clock.nsec) / 1e9 - ours.as_secs_f64()
}

/// How long to leave a home alone after `failures` earlier failures, with up to a third less by chance, so that
/// many homes behind one dead network do not all come back in the same moment.
fn pause(kind: ErrorKind, failures: u32) -> Duration {
    let pause = match kind {
        kind if kind.needs_person() => PAUSE_LOGIN,
        ErrorKind::UnknownHost => PAUSE_MAX,
        _ => PAUSE_MAX.min(PAUSE_MIN * 2u32.saturating_pow(failures.min(16))),
    };
    pause - pause.mul_f64((random() % 1000) as f64 / 3000.0)
}

/// By ssh: the agent, else SFTP.
struct Ssh {
    target: SshTarget,
    agents: AgentBinaries,
    /// What its agents tell.
    told: Arc<Told>,
    /// Why no agent can run there, once known.
    why_sftp: Mutex<Option<String>>,
    /// The last attempt went over a master and found nobody: the master may have lost its own connection.
    avoid_master: AtomicBool,
}

#[async_trait::async_trait]
impl Connector for Ssh {
    async fn connect(&self, class: Option<Class>, meter: &Arc<Meter>) -> Result<Arc<dyn Connection>> {
        let facts = self.target.facts().await?;
        let avoid = self.avoid_master.swap(false, Ordering::Relaxed);
        let (target, over_master) = self.target.through(&facts, avoid);
        let leading = (!over_master).then(|| target.leading(&facts)).flatten();
        let over = if over_master { Some(target.clone()) } else { None };
        let (first, further) = leading.map_or((target.clone(), over), |(first, over)| (first, Some(over)));
        let made = self.connect_to(&target, (&first, further), class, meter).await;
        match made {
            Err(e) if e.kind == ErrorKind::Unreachable => {
                self.avoid_master.store(over_master, Ordering::Relaxed);
                Err(e)
            }
            Err(e) if crate::ssh::is_refusal(&e) => {
                let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
                let now = now.map_or(0, |d| d.as_secs() as i64);
                match credentials::trouble(&facts, &e.detail, now).await {
                    Some(why) => Err(Error::new(e.kind, format!("{why}. {}", e.detail))),
                    None => Err(e),
                }
            }
            made => made,
        }
    }

    fn login_for(&self, why: &Error) -> Option<String> {
        (why.kind == ErrorKind::Login).then(|| self.target.login_command())
    }
}

/// A session with an agent that was started.
async fn greeted(pipe: Pipe, meter: Arc<Meter>) -> Result<Session> {
    in_time(Session::start(pipe.reader, pipe.writer, Some(pipe.child), meter)).await
}

async fn in_time(session: impl Future<Output = Result<Session>>) -> Result<Session> {
    let late = |_| Error::new(ErrorKind::Unreachable, "the agent was started, but does not greet");
    timeout(GREETING, session).await.map_err(late)?
}

impl Ssh {
    /// Makes further connections to the account, or into its running agent. `over`: over a connection that there is.
    fn opener(&self, target: &SshTarget, over: Option<SshTarget>) -> Opener {
        let logs_in = over.is_none();
        let (target, agents) = (over.unwrap_or_else(|| target.clone()), self.agents.clone());
        let open = move |join| -> Opening {
            let (target, agents) = (target.clone(), agents.clone());
            Box::pin(async move {
                if let Some(pid) = join {
                    return greeted(deploy::join(&target, &agents, pid).await?, Arc::default()).await;
                }
                match deploy(&target, &agents).await? {
                    Deployed::Agent(pipe) => greeted(*pipe, Arc::default()).await,
                    Deployed::Impossible(why) => Err(Error::new(ErrorKind::Unsupported, why)),
                }
            })
        };
        Opener { open: Arc::new(open), logs_in }
    }

    /// By the agent over `first`, or by SFTP.
    async fn connect_to(
        &self,
        target: &SshTarget,
        (first, further): (&SshTarget, Option<SshTarget>),
        class: Option<Class>,
        meter: &Arc<Meter>,
    ) -> Result<Arc<dyn Connection>> {
        let known = self.why_sftp.lock().clone().filter(|_| class != Some(Class::Posix));
        let why = match known {
            Some(why) => why,
            None => match deploy(first, &self.agents).await? {
                Deployed::Agent(pipe) => {
                    let Pipe { reader, writer, child } = *pipe;
                    let told = self.told.clone();
                    let session = Session::start_again(reader, writer, Some(child), meter.clone(), told);
                    let session = in_time(session).await?;
                    return Ok(Arc::new(session.widened_by(self.opener(target, further))));
                }
                Deployed::Impossible(why) if class == Some(Class::Posix) => {
                    let text = format!("{target}: the agent ran there before, but cannot now: {why}");
                    return Err(Error::new(ErrorKind::Unreachable, text));
                }
                Deployed::Impossible(why) => why,
            },
        };
        let session = crate::sftp::Session::start(first, &why, meter.clone(), further);
        let late = || Error::new(ErrorKind::Unreachable, "the SFTP server was started, but does not greet");
        let session = timeout(GREETING, session).await.map_err(|_| late())?;
        let session = session.map_err(|e| match e.kind {
            // Neither shell nor SFTP: tell both reasons.
            ErrorKind::Unsupported => Error::new(ErrorKind::Setup, format!("{}; {}", e.detail, why)),
            _ => e,
        })?;
        *self.why_sftp.lock() = Some(why);
        Ok(Arc::new(session))
    }
}

#[async_trait::async_trait]
impl Home for RemoteHome {
    fn status(&self) -> Status {
        let state = self.shared.state.lock();
        let link = match &state.phase {
            _ if state.foreign.is_some() => {
                Link::Down(state.foreign.as_ref().map(|e| e.detail.clone()).unwrap_or_default())
            }
            Phase::Idle => Link::Idle,
            Phase::Connecting => Link::Connecting,
            Phase::Up(connection) => connection.status().link,
            Phase::Down { why, .. } => Link::Down(why.detail.clone()),
        };
        let class = state.first.as_ref().map(|h| h.class);
        let (login, refused) = match &state.phase {
            Phase::Down { why, .. } if state.foreign.is_none() => {
                (self.shared.connector.login_for(why), why.kind.needs_person())
            }
            _ => (None, false),
        };
        let needs_person = refused || state.foreign.is_some();
        let clock_ahead_s = state.clock_ahead_s;
        let unfenced = state.unfenced.then(|| UNFENCED.to_owned());
        let weaker = state.weaker.iter().cloned().chain(unfenced).collect();
        let watches = state.foreign.is_none() && state.up().is_some_and(|c| c.epoch().is_some());
        Status {
            login,
            needs_person,
            clock_ahead_s,
            watches,
            ..self.shared.meter.status(link, class, weaker)
        }
    }

    fn retry_now(&self) {
        let mut state = self.shared.state.lock();
        (state.failures, state.short) = (0, 0);
        if let Phase::Down { until, .. } = &mut state.phase {
            *until = Instant::now();
        }
    }

    fn wanted(&self) -> Option<Duration> {
        let mut state = self.shared.state.lock();
        let Phase::Down { why, since, until } = &mut state.phase else { return None };
        if !why.kind.needs_person() {
            *until = (*until).min(*since + PAUSE_WANTED);
        }
        Some(until.saturating_duration_since(Instant::now()))
    }

    fn asked(&self) {
        if let Phase::Down { since, until, .. } = &mut self.shared.state.lock().phase {
            *until = (*until).min(*since + PAUSE_WANTED);
        }
    }

    fn expect(&self, class: Class) {
        self.shared.state.lock().expected = Some(class);
    }

    /// Takes the account as it is now, even if it is another one than before: the caller compares.
    async fn attach(&self) -> Result<Hello> {
        let mut hello = self.connection().await?.attach().await?;
        let mut state = self.shared.state.lock();
        hello.token_is_new = std::mem::take(&mut state.new_token);
        state.first = Some(hello.clone());
        state.foreign = None;
        Ok(hello)
    }

    async fn stat(&self, at: &Loc) -> Result<Seen> {
        self.same_account().await?.stat(at).await
    }

    async fn look(&self, dir: &Loc, name: &Name) -> Result<(Seen, Result<Seen>)> {
        self.same_account().await?.look(dir, name).await
    }

    async fn list(&self, dir: &Loc, after: Option<&Name>, max: u32) -> Result<Page> {
        self.same_account().await?.list(dir, after, max).await
    }

    async fn watch(&self, dir: &Loc, max: u32, mark: u64) -> Result<Watched> {
        self.same_account().await?.watch(dir, max, mark).await
    }

    async fn confirm(&self, dirs: Vec<Believed>, later: bool) -> Result<Vec<Result<Belief>>> {
        self.same_account().await?.confirm(dirs, later).await
    }

    fn confirms(&self) -> bool {
        let state = self.shared.state.lock();
        state.foreign.is_none() && state.up().is_some_and(|connection| connection.confirms())
    }

    async fn walk(&self, from: Vec<Loc>, bytes: u32, later: bool) -> Result<Walked> {
        self.same_account().await?.walk(from, bytes, later).await
    }

    fn walks(&self) -> bool {
        let state = self.shared.state.lock();
        state.foreign.is_none() && state.up().is_some_and(|connection| connection.walks())
    }

    async fn changes(&self) -> Vec<Changed> {
        let mut moved = self.shared.moved.subscribe();
        loop {
            moved.mark_unchanged();
            let (up, again) = {
                let state = self.shared.state.lock();
                (state.up().cloned(), state.goes_on_at())
            };
            let another = moved.changed();
            match (up, again) {
                (Some(connection), _) => tokio::select! {
                    changes = connection.changes() => return changes,
                    _ = another => {}
                },
                (None, Some(at)) => tokio::select! {
                    () = tokio::time::sleep_until(at) => drop(self.connection().await),
                    _ = another => {}
                },
                // Fails only if the sender is gone, which we hold.
                (None, None) => drop(another.await),
            }
        }
    }

    fn epoch(&self) -> Option<u64> {
        let state = self.shared.state.lock();
        state.up().filter(|_| state.foreign.is_none())?.epoch()
    }

    async fn read(&self, file: &Loc, at: u64, len: u32) -> Result<Chunk> {
        self.same_account().await?.read(file, at, len).await
    }

    async fn read_known(
        &self,
        file: &Loc,
        at: u64,
        len: u32,
        known: Vec<u64>,
        later: bool,
    ) -> Result<Sparse> {
        self.same_account().await?.read_known(file, at, len, known, later).await
    }

    fn window(&self) -> Option<u64> {
        let state = self.shared.state.lock();
        state.up().filter(|_| state.foreign.is_none())?.window()
    }

    fn knows(&self) -> bool {
        let state = self.shared.state.lock();
        state.foreign.is_none() && state.up().is_some_and(|connection| connection.knows())
    }

    async fn watch_later(&self, dir: &Loc, max: u32, mark: u64) -> Result<Watched> {
        self.same_account().await?.watch_later(dir, max, mark).await
    }

    async fn read_in(&self, turn: Turn, file: &Loc, at: u64, len: u32) -> Result<Chunk> {
        self.same_account().await?.read_in(turn, file, at, len).await
    }

    async fn readlink(&self, at: &Loc) -> Result<Bytes> {
        self.same_account().await?.readlink(at).await
    }

    async fn statfs(&self, at: &Loc) -> Result<StatFs> {
        self.same_account().await?.statfs(at).await
    }

    async fn xattrs(&self, at: &Loc, want: Option<&XattrName>) -> Result<Xattrs> {
        self.same_account().await?.xattrs(at, want).await
    }

    async fn stage(&self, op: OpId, at: u64, data: Bytes) -> Result<()> {
        self.same_account().await?.stage(op, at, data).await
    }

    async fn copy(&self, op: OpId, places: Vec<Loc>, parts: Vec<Copied>) -> Result<()> {
        self.same_account().await?.copy(op, places, parts).await
    }

    async fn spool(&self, op: OpId) -> Result<u64> {
        self.same_account().await?.spool(op).await
    }

    async fn unspool(&self, op: OpId) -> Result<()> {
        self.same_account().await?.unspool(op).await
    }

    fn spools(&self) -> bool {
        let state = self.shared.state.lock();
        state.foreign.is_none() && state.spools
    }

    fn copies(&self) -> bool {
        let state = self.shared.state.lock();
        state.foreign.is_none() && state.up().is_some_and(|connection| connection.copies())
    }

    async fn claim(&self, gateway: u64, volume: u32, lost: Vec<u64>) -> Result<Option<Claimed>> {
        let connection = self.same_account().await?;
        let known = connection.claim(gateway, volume, lost).await?;
        self.claimed((gateway, volume), &connection, &known);
        Ok(known)
    }

    async fn claim_in(&self, gateway: u64, volume: u32, lost: Vec<u64>, term: Term) -> Result<Entered> {
        let connection = self.same_account().await?;
        let entered = connection.claim_in(gateway, volume, lost, term).await?;
        self.claimed((gateway, volume), &connection, &entered.known);
        Ok(entered)
    }

    async fn apply(&self, ops: Vec<Placed>) -> Result<Vec<Outcome>> {
        let connection = self.same_account().await?;
        if let Some(OpId { gateway, volume, .. }) = ops.first().map(|placed| placed.id) {
            let claimed = self.shared.state.lock().claims.get(&(gateway, volume)).cloned();
            if claimed.is_some_and(|claimed| !Weak::ptr_eq(&claimed, &Arc::downgrade(&connection))) {
                return Err(ErrorKind::NotClaimed.into());
            }
        }
        connection.apply(ops).await
    }
}
