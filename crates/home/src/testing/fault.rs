//! A home that dies, hangs and comes back on demand, for tests of what lies above.

use crate::attr::StatFs;
use crate::error::{Error, ErrorKind, Result};
use crate::op::{Op, OpId, Outcome, Placed};
use crate::remote::Connection;
use crate::sparse::Sparse;
use crate::{
    Belief, Believed, Changed, Chunk, Claimed, Class, Copied, Entered, Hello, Home, Link, Loc, Name, Page,
    Seen, Status, Term, Walked, Watched,
};
use crate::{Turn, XattrName, Xattrs};
use bytes::Bytes;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Fault {
    /// Nothing.
    #[default]
    None,
    /// Each call takes this much longer.
    Delay(Duration),
    /// Each change takes this much longer.
    SlowChanges(Duration),
    /// Calls fail at once, without effect.
    Unreachable,
    /// Calls fail at once, because somebody has to log in first.
    Shut,
    /// Calls take effect, and their answers are lost.
    AnswersLost,
    /// Calls wait, without effect, until another fault is set.
    Hang,
    /// Changes wait, without effect, until another fault is set; questions are answered.
    HangChanges,
    /// Changes take effect, and their answers are lost; questions are answered.
    ChangesUnanswered,
    /// Volumes can be claimed; who looks at an object gets no answer, and changes wait, without effect, until another
    /// fault is set.
    LooksUnanswered,
    /// Changes are refused for this reason.
    Refuse(ErrorKind),
    /// There are no hard links.
    NoLinks,
    /// It says that it is reached by SFTP.
    Sftp,
    /// What was staged is always missed.
    NothingStaged,
    /// Bytes of files are read at once, and arrive under another fault.
    LateBytes,
    /// The same of walks of which `later` is this.
    LateWalks(bool),
    /// The same of names of directories; changes wait, if `changes`, as under [`Fault::HangChanges`].
    LateNames {
        /// Whether they wait.
        changes: bool,
    },
}

/// A home with faults.
pub struct FaultHome {
    inner: Arc<dyn Home>,
    fault: watch::Sender<Fault>,
    calls: AtomicU64,
    refused: AtomicU64,
    claims: AtomicU64,
    after_conflict: Mutex<Option<Fault>>,
}

impl FaultHome {
    /// Without a fault at first.
    pub fn new(inner: Arc<dyn Home>) -> FaultHome {
        FaultHome {
            inner,
            fault: watch::channel(Fault::None).0,
            calls: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            claims: AtomicU64::new(0),
            after_conflict: Mutex::new(None),
        }
    }

    /// As soon as a conflict was answered, this goes wrong.
    pub fn set_after_conflict(&self, fault: Fault) {
        *self.after_conflict.lock() = Some(fault);
    }

    /// From now on this goes wrong; calls that hang go on under it.
    pub fn set(&self, fault: Fault) {
        self.fault.send_replace(fault);
    }

    /// How many calls were made, whatever became of them.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// How many batches of changes were refused.
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// How many claims were answered, whatever they were told.
    pub fn claims(&self) -> u64 {
        self.claims.load(Ordering::Relaxed)
    }

    async fn no_late_names(&self) {
        let mut fault = self.fault.subscribe();
        let _ = fault.wait_for(|f| !matches!(f, Fault::LateNames { .. })).await;
    }

    async fn through<T>(&self, call: impl Future<Output = Result<T>>) -> Result<T> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        let mut fault = self.fault.subscribe();
        let now = fault.wait_for(|f| *f != Fault::Hang).await.map(|f| *f).unwrap_or_default();
        let lost = || Error::new(ErrorKind::Unreachable, "the home does not answer (injected)");
        match now {
            Fault::Unreachable => Err(lost()),
            Fault::Shut => Err(Error::new(ErrorKind::Login, "somebody has to log in (injected)")),
            Fault::AnswersLost => call.await.and_then(|_| Err(lost())),
            Fault::Delay(time) => {
                tokio::time::sleep(time).await;
                call.await
            }
            Fault::None
            | Fault::SlowChanges(_)
            | Fault::Hang
            | Fault::HangChanges
            | Fault::ChangesUnanswered
            | Fault::LooksUnanswered
            | Fault::Refuse(_)
            | Fault::NoLinks
            | Fault::Sftp
            | Fault::NothingStaged
            | Fault::LateBytes
            | Fault::LateWalks(_)
            | Fault::LateNames { .. } => call.await,
        }
    }
}

#[async_trait::async_trait]
impl Home for FaultHome {
    fn status(&self) -> Status {
        let mut status = self.inner.status();
        let fault = *self.fault.borrow();
        if matches!(fault, Fault::Unreachable | Fault::Shut | Fault::AnswersLost) {
            status.link = Link::Down("injected".to_string());
        }
        if fault == Fault::Shut {
            (status.login, status.needs_person) = (Some("trellis login lab".to_string()), true);
        }
        status
    }

    async fn attach(&self) -> Result<Hello> {
        let hello = self.through(self.inner.attach()).await?;
        Ok(match *self.fault.borrow() {
            Fault::Sftp => Hello { class: Class::Sftp, token: None, ..hello },
            _ => hello,
        })
    }

    async fn stat(&self, at: &Loc) -> Result<Seen> {
        let seen = self.through(self.inner.stat(at)).await;
        match *self.fault.borrow() {
            Fault::LooksUnanswered => {
                seen.and(Err(Error::new(ErrorKind::Unreachable, "the answer is lost (injected)")))
            }
            _ => seen,
        }
    }

    async fn look(&self, dir: &Loc, name: &Name) -> Result<(Seen, Result<Seen>)> {
        let seen = self.through(self.inner.look(dir, name)).await;
        match *self.fault.borrow() {
            Fault::LooksUnanswered => {
                seen.and(Err(Error::new(ErrorKind::Unreachable, "the answer is lost (injected)")))
            }
            _ => seen,
        }
    }

    async fn list(&self, dir: &Loc, after: Option<&Name>, max: u32) -> Result<Page> {
        let page = self.through(self.inner.list(dir, after, max)).await;
        self.no_late_names().await;
        page
    }

    async fn watch(&self, dir: &Loc, max: u32, mark: u64) -> Result<Watched> {
        let watched = self.through(self.inner.watch(dir, max, mark)).await;
        self.no_late_names().await;
        watched
    }

    async fn confirm(&self, dirs: Vec<Believed>, later: bool) -> Result<Vec<Result<Belief>>> {
        self.through(self.inner.confirm(dirs, later)).await
    }

    fn confirms(&self) -> bool {
        self.inner.confirms()
    }

    async fn walk(&self, from: Vec<Loc>, bytes: u32, later: bool) -> Result<Walked> {
        let walked = self.through(self.inner.walk(from, bytes, later)).await;
        let mut fault = self.fault.subscribe();
        let _ = fault.wait_for(|f| *f != Fault::LateWalks(later)).await;
        walked
    }

    fn walks(&self) -> bool {
        self.inner.walks()
    }

    fn window(&self) -> Option<u64> {
        self.inner.window()
    }

    async fn changes(&self) -> Vec<Changed> {
        self.inner.changes().await
    }

    fn epoch(&self) -> Option<u64> {
        self.inner.epoch().filter(|_| !matches!(*self.fault.borrow(), Fault::Unreachable | Fault::Shut))
    }

    async fn read(&self, file: &Loc, at: u64, len: u32) -> Result<Chunk> {
        self.read_in(Turn::Now, file, at, len).await
    }

    async fn read_known(
        &self,
        file: &Loc,
        at: u64,
        len: u32,
        known: Vec<u64>,
        later: bool,
    ) -> Result<Sparse> {
        self.through(self.inner.read_known(file, at, len, known, later)).await
    }

    fn knows(&self) -> bool {
        self.inner.knows()
    }

    async fn watch_later(&self, dir: &Loc, max: u32, mark: u64) -> Result<Watched> {
        self.through(self.inner.watch_later(dir, max, mark)).await
    }

    async fn read_in(&self, turn: Turn, file: &Loc, at: u64, len: u32) -> Result<Chunk> {
        let chunk = self.through(self.inner.read_in(turn, file, at, len)).await;
        let mut fault = self.fault.subscribe();
        let _ = fault.wait_for(|f| *f != Fault::LateBytes).await;
        chunk
    }

    async fn readlink(&self, at: &Loc) -> Result<Bytes> {
        self.through(self.inner.readlink(at)).await
    }

    async fn statfs(&self, at: &Loc) -> Result<StatFs> {
        self.through(self.inner.statfs(at)).await
    }

    async fn xattrs(&self, at: &Loc, want: Option<&XattrName>) -> Result<Xattrs> {
        self.through(self.inner.xattrs(at, want)).await
    }

    async fn stage(&self, op: OpId, at: u64, data: Bytes) -> Result<()> {
        self.through(self.inner.stage(op, at, data)).await
    }

    async fn copy(&self, op: OpId, places: Vec<Loc>, parts: Vec<Copied>) -> Result<()> {
        self.through(self.inner.copy(op, places, parts)).await
    }

    async fn spool(&self, op: OpId) -> Result<u64> {
        self.through(self.inner.spool(op)).await
    }

    async fn unspool(&self, op: OpId) -> Result<()> {
        self.through(self.inner.unspool(op)).await
    }

    fn spools(&self) -> bool {
        self.inner.spools()
    }

    fn copies(&self) -> bool {
        self.inner.copies()
    }

    async fn claim(&self, gateway: u64, volume: u32, lost: Vec<u64>) -> Result<Option<Claimed>> {
        let claimed = self.through(self.inner.claim(gateway, volume, lost)).await;
        self.claims.fetch_add(1, Ordering::Relaxed);
        claimed
    }

    async fn claim_in(&self, gateway: u64, volume: u32, lost: Vec<u64>, term: Term) -> Result<Entered> {
        let entered = self.through(self.inner.claim_in(gateway, volume, lost, term)).await;
        self.claims.fetch_add(1, Ordering::Relaxed);
        entered
    }

    async fn apply(&self, ops: Vec<Placed>) -> Result<Vec<Outcome>> {
        let mut fault = self.fault.subscribe();
        let waits = |f: &Fault| {
            matches!(f, Fault::HangChanges | Fault::LooksUnanswered | Fault::LateNames { changes: true })
        };
        let now = fault.wait_for(|f| !waits(f)).await;
        let now = now.map(|f| *f).unwrap_or_default();
        if let Fault::Refuse(kind) = now {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Ok(vec![Outcome::Refused(kind)]);
        }
        if now == Fault::NothingStaged {
            return self.through(std::future::ready(Err(ErrorKind::NotStaged.into()))).await;
        }
        if let Fault::SlowChanges(time) = now {
            tokio::time::sleep(time).await;
        }
        let links = ops.iter().position(|o| now == Fault::NoLinks && matches!(o.op, Op::Link { .. }));
        if links == Some(0) {
            return Ok(vec![Outcome::Refused(ErrorKind::Unsupported)]);
        }
        let mut ops = ops;
        ops.truncate(links.unwrap_or(usize::MAX));
        let answer = self.through(self.inner.apply(ops)).await;
        let conflict = |outcome: &Outcome| matches!(outcome, Outcome::Conflict(_));
        if answer.as_ref().is_ok_and(|outcomes| outcomes.iter().any(conflict))
            && let Some(fault) = self.after_conflict.lock().take()
        {
            self.set(fault);
        }
        match now {
            Fault::ChangesUnanswered => {
                answer.and(Err(Error::new(ErrorKind::Unreachable, "the answer is lost (injected)")))
            }
            _ => answer,
        }
    }
}

/// As a connection: it ends when nothing is reached through it any more.
#[async_trait::async_trait]
impl Connection for FaultHome {
    async fn ended(&self) -> Error {
        let mut fault = self.fault.subscribe();
        let _ = fault.wait_for(|fault| *fault == Fault::Unreachable).await;
        Error::new(ErrorKind::Unreachable, "the connection is lost (injected)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HomePath;
    use crate::memory::MemoryHome;
    use crate::op::New;
    use crate::testing::Outside;

    fn create() -> Vec<Placed> {
        let dir = Loc { path: HomePath::root(), id: None };
        let op = Op::Create { dir, name: Name::new(b"f").unwrap(), new: New::File, mode: 0o644 };
        let id = OpId { gateway: 1, volume: 1, seq: 1 };
        vec![Placed { id, time: Default::default(), plain: false, resent: false, op }]
    }

    #[tokio::test]
    async fn what_is_unreachable_has_no_effect_and_a_lost_answer_has() {
        let memory = MemoryHome::new();
        let home = FaultHome::new(Arc::new(memory.clone()));
        for (fault, effect) in [(Fault::Unreachable, 0), (Fault::AnswersLost, 1)] {
            home.set(fault);
            assert_eq!(home.apply(create()).await.unwrap_err().kind, ErrorKind::Unreachable);
            assert_eq!(memory.names(&HomePath::root()).len(), effect);
            assert!(matches!(home.status().link, Link::Down(_)));
        }
        home.set(Fault::None);
        assert!(matches!(home.apply(create()).await.unwrap()[..], [Outcome::Done(_)]));
        assert_eq!((home.calls(), memory.counters().ops), (3, 1));
    }

    #[tokio::test]
    async fn a_hang_ends_when_the_fault_does() {
        let home = Arc::new(FaultHome::new(Arc::new(MemoryHome::new())));
        for (then, works) in [(Fault::None, true), (Fault::Unreachable, false)] {
            home.set(Fault::Hang);
            let other = home.clone();
            let waiting = tokio::spawn(async move { other.attach().await });
            tokio::time::sleep(Duration::from_millis(20)).await;
            assert!(!waiting.is_finished());
            home.set(then);
            assert_eq!(waiting.await.unwrap().is_ok(), works);
        }
    }
}
