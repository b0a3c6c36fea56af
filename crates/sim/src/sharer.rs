//! A client that works in the same folder as another program at the home: neither may destroy what it has not seen.

use crate::client::{Check, Trace};
use crate::gateway::{Gateway, LAB, Session, Sessions, cred, home_dir};
use crate::ledger::{Ledger, Tokens, tokens};
use crate::outsider::{FOLDER, FOLDERS, NAMES};
use home::{Error, ErrorKind};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;
use vfs::{CreateHow, Cred, Ctx, Oid, SetAttrs, Stability};

/// The client.
pub struct Sharer {
    sessions: Arc<Sessions>,
    ledger: Arc<Ledger>,
    cred: Cred,
    rng: StdRng,
    trace: Trace,
    /// A disk may be full for a while.
    full: bool,
    /// Folders are moved.
    moves: bool,
}

/// What a program hears of a full disk: nothing was taken, or what was taken before stays here for now.
const FULL: [ErrorKind; 2] = [ErrorKind::NoSpace, ErrorKind::Full];

/// Errors that a program has to expect where another one works.
const USUAL: [ErrorKind; 5] =
    [ErrorKind::NotFound, ErrorKind::Exists, ErrorKind::Stale, ErrorKind::Busy, ErrorKind::Unreachable];

/// Excuses what the engine was told of a name, when the call is over, answered or not.
struct Told<'a> {
    ledger: &'a Ledger,
    name: &'a str,
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        self.ledger.excuse_told(self.name);
    }
}

impl Sharer {
    /// A client of a gateway. `full`: a disk may be full for a while; `moves`: folders are moved.
    pub fn new(
        gateway: &Gateway,
        ledger: Arc<Ledger>,
        seed: u64,
        trace: Trace,
        (full, moves): (bool, bool),
    ) -> Sharer {
        let rng = StdRng::seed_from_u64(seed);
        Sharer { sessions: gateway.sessions(), ledger, cred: cred(), rng, trace, full, moves }
    }

    fn is_usual(&self, e: &Error) -> bool {
        USUAL.contains(&e.kind) || self.full && FULL.contains(&e.kind)
    }

    /// Makes random calls. One without an answer may have happened or not.
    pub async fn work(&mut self, calls: u64) -> Check {
        for _ in 0..calls {
            let session = self.sessions.living().await;
            let sessions = self.sessions.clone();
            let done = tokio::select! {
                biased;
                done = self.one(&session) => Some(done),
                () = sessions.dead(&session) => None,
            };
            match done.filter(|_| session.is_alive()) {
                Some(Err(e)) if !self.is_usual(&e) => return Err(format!("shared: {:?} {e}", e.kind)),
                None => sleep(Duration::from_millis(1)).await,
                _ => {}
            }
            let pause = self.rng.random_range(0..300);
            sleep(Duration::from_millis(pause)).await;
        }
        Ok(())
    }

    /// What somebody sees who looks at a file before he destroys it.
    async fn seen(&self, s: &Session, file: Oid) -> home::Result<Tokens> {
        let read = s.vfs.read(Ctx::of(&self.cred), file, 0, 100_000).await?;
        Ok(tokens(&read.data.concat()))
    }

    async fn one(&mut self, s: &Session) -> home::Result<()> {
        let (what, name) = (self.rng.random_range(0..10), NAMES[self.rng.random_range(0..NAMES.len())]);
        let other = NAMES[self.rng.random_range(0..NAMES.len())];
        let stable = self.rng.random_bool(0.7);
        let folder = if self.moves { FOLDERS[self.rng.random_range(0..FOLDERS.len())] } else { FOLDER };
        let at = if self.moves { format!(" in {folder}") } else { String::new() };
        let mut text = format!("shared: {what} {name} {other}{at}");
        let done = self.call(s, (what, folder), (name, other), stable, &mut text).await;
        if let Err(e) = &done {
            text.push_str(&format!(" => {:?}", e.kind));
        }
        if !s.is_alive() {
            text.push_str(" (dead)");
        }
        self.trace.lock().push(text);
        done
    }

    async fn call(
        &self,
        s: &Session,
        (what, folder): (u32, &str),
        names: (&str, &str),
        stable: bool,
        text: &mut String,
    ) -> home::Result<()> {
        let (ctx, (name, other)) = (Ctx::of(&self.cred), names);
        self.ledger.begin();
        let top = home_dir(&s.vfs, &self.cred, LAB).await?;
        let dir = s.vfs.lookup(ctx, top, folder.as_bytes()).await?.oid;
        let file = match what {
            0..2 => {
                s.vfs.create(ctx, dir, name.as_bytes(), CreateHow::Guarded, SetAttrs::default()).await?.oid
            }
            _ => s.vfs.lookup(ctx, dir, name.as_bytes()).await?.oid,
        };
        match what {
            0..5 => self.append(s, (file, name), stable, text).await,
            5..7 => {
                let _told = self.destroy(&self.seen(s, file).await?, name, text);
                let set = SetAttrs { size: Some(0), ..SetAttrs::default() };
                s.vfs.setattr(ctx, file, set, None).await?;
                self.append(s, (file, name), stable, text).await
            }
            7 => {
                let _told = self.destroy(&self.seen(s, file).await?, name, text);
                self.ledger.removal();
                s.vfs.remove(ctx, dir, name.as_bytes()).await.map(drop)
            }
            _ => {
                let _told = match s.vfs.lookup(ctx, dir, other.as_bytes()).await {
                    Ok(found) if found.oid == file => return Ok(()),
                    Ok(found) => self.destroy(&self.seen(s, found.oid).await?, other, text),
                    Err(e) if e.kind == ErrorKind::NotFound => self.destroy(&Tokens::new(), other, text),
                    Err(e) => return Err(e),
                };
                self.ledger.removal();
                let how = vfs::RenameHow::Replace;
                s.vfs.rename(ctx, dir, name.as_bytes(), dir, other.as_bytes(), how).await.map(drop)
            }
        }
    }

    /// What was seen may go, and what the engine hears of until the call is over: it may look again.
    fn destroy<'a>(&'a self, seen: &Tokens, name: &'a str, text: &mut String) -> Told<'a> {
        text.push_str(&format!(", knowing {seen:?}"));
        self.ledger.excuse(seen.iter().cloned());
        Told { ledger: &self.ledger, name }
    }

    async fn append(
        &self,
        s: &Session,
        (file, name): (Oid, &str),
        stable: bool,
        text: &mut String,
    ) -> home::Result<()> {
        let token = self.ledger.token('O');
        let want = if stable { Stability::Stable } else { Stability::Unstable };
        let ctx = Ctx::of(&self.cred);
        self.ledger.wrote(name, &token);
        let done = s.vfs.append(ctx, file, token.clone().into(), want).await?;
        if !stable && s.vfs.commit(ctx, file).await?.verifier != done.written.verifier {
            return Err(Error::new(ErrorKind::Busy, "another verifier"));
        }
        text.push_str(&format!(", wrote {token} at {}", done.at));
        // An answer of a dead process is none.
        if s.is_alive() {
            self.ledger.require(&token);
        }
        Ok(())
    }
}
