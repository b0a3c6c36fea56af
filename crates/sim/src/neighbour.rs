//! A client of another home, whose network and machine are well: whatever becomes of the first home, each of its calls is
//! answered within a bound.

use crate::client::{Check, Trace};
use crate::gateway::{DEN, Gateway, Session, Sessions, cred, home_dir};
use home::ErrorKind;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};
use vfs::{CreateHow, Cred, Ctx, Oid, SetAttrs, Stability};

/// How long a few calls may take together: each asks its own home a few times, and that answers within 60 ms.
const BOUND: Duration = Duration::from_secs(2);
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// The client.
pub struct Neighbour {
    sessions: Arc<Sessions>,
    cred: Cred,
    rng: StdRng,
    trace: Trace,
    /// What each file has; nothing of those that a call without an answer may have changed.
    files: BTreeMap<&'static str, Known>,
    written: u32,
}

/// The content of a file; `None`: there is no such file.
type Known = Option<Vec<u8>>;

impl Neighbour {
    /// A client of a gateway.
    pub fn new(gateway: &Gateway, seed: u64, trace: Trace) -> Neighbour {
        let files = NAMES.iter().map(|name| (*name, None)).collect();
        let rng = StdRng::seed_from_u64(seed);
        Neighbour { sessions: gateway.sessions(), cred: cred(), rng, trace, files, written: 0 }
    }

    /// Does so many things.
    pub async fn work(&mut self, count: u64) -> Check {
        for _ in 0..count {
            let session = self.sessions.living().await;
            let sessions = self.sessions.clone();
            let begun = Instant::now();
            let done = tokio::select! {
                biased;
                done = timeout(BOUND, self.one(&session)) => Some(done),
                () = sessions.dead(&session) => None,
            };
            match done.filter(|_| session.is_alive()) {
                Some(Ok(done)) => done?,
                Some(Err(_)) => {
                    return Err(format!("I16: the other home's client has waited for {:?}", begun.elapsed()));
                }
                None => sleep(Duration::from_millis(1)).await,
            }
            let pause = self.rng.random_range(0..300);
            sleep(Duration::from_millis(pause)).await;
        }
        Ok(())
    }

    async fn one(&mut self, s: &Session) -> Check {
        let (what, name) = (self.rng.random_range(0..10), NAMES[self.rng.random_range(0..NAMES.len())]);
        self.trace.lock().push(format!("neighbour: {what} {name}"));
        let vfs = &s.vfs;
        let top = home_dir(vfs, &self.cred, DEN).await.map_err(|e| format!("I16: the other home: {e}"))?;
        let done = match what {
            0..4 => self.write(s, top, name).await,
            4..7 => return self.read(s, top, name).await,
            7 => self.remove(s, top, name).await,
            8 => vfs.readdir(Ctx::of(&self.cred), top, 0, 100).await.map(drop),
            _ => {
                let unsent = vfs.sync(Some(top.volume), BOUND).await;
                return unsent.map_err(|unsent| format!("I16: the other home waits: {unsent:?}"));
            }
        };
        done.map_err(|e| format!("I16: {what} {name} at the other home: {:?} {e}", e.kind))
    }

    async fn write(&mut self, s: &Session, top: Oid, name: &'static str) -> home::Result<()> {
        self.written += 1;
        let data = format!("N{:06};", self.written).into_bytes().repeat(100);
        self.files.remove(name);
        let ctx = Ctx::of(&self.cred);
        let made = s.vfs.create(ctx, top, name.as_bytes(), CreateHow::Unchecked, SetAttrs::default()).await?;
        s.vfs.write(ctx, made.oid, 0, data.clone().into(), Stability::Stable).await?;
        self.knows(s, name, Some(data));
        Ok(())
    }

    async fn remove(&mut self, s: &Session, top: Oid, name: &'static str) -> home::Result<()> {
        self.files.remove(name);
        match s.vfs.remove(Ctx::of(&self.cred), top, name.as_bytes()).await {
            Err(e) if e.kind != ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        self.knows(s, name, None);
        Ok(())
    }

    /// An answer of a dead process is none.
    fn knows(&mut self, s: &Session, name: &'static str, content: Known) {
        if s.is_alive() {
            self.files.insert(name, content);
        }
    }

    /// What an answered call has left is found again.
    async fn read(&mut self, s: &Session, top: Oid, name: &'static str) -> Check {
        let ctx = Ctx::of(&self.cred);
        let found = async {
            let file = s.vfs.lookup(ctx, top, name.as_bytes()).await?.oid;
            Ok::<_, home::Error>(Some(s.vfs.read(ctx, file, 0, 10_000).await?.data.concat()))
        };
        let found = match found.await {
            Err(e) if e.kind == ErrorKind::NotFound => None,
            found => found.map_err(|e| format!("I16: a read of {name}: {:?} {e}", e.kind))?,
        };
        match self.files.get(name).filter(|known| s.is_alive() && **known != found) {
            Some(_) => Err(format!("I1: {name} at the other home is not what it was")),
            None => Ok(()),
        }
    }
}
