//! A client that makes one thing after the other and takes nothing back: directories, and in each of them a few files, each
//! whole and safe before the next one is begun. At the home none is ever seen without all before it.

use crate::client::{Check, Trace};
use crate::compare::files;
use crate::gateway::{Gateway, LAB, Session, Sessions, cred, home_dir};
use crate::machine::fs::Fs;
use crate::model::{is_whole, whole};
use home::ErrorKind;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;
use vfs::{CreateHow, Cred, Ctx, Oid, SetAttrs, Stability};

/// Its folder, below the account's home directory.
pub const FOLDER: &str = "chain";
/// Files in a directory.
const IN_ONE: u32 = 4;
/// How long it waits until everything is at the home.
const BARRIER: Duration = Duration::from_secs(60);
/// What it is told when it has to come again.
const LATER: [ErrorKind; 4] = [ErrorKind::Busy, ErrorKind::Full, ErrorKind::NoSpace, ErrorKind::Unreachable];

/// What has been made, the first one is 1.
pub struct Links {
    state: Mutex<State>,
    /// The home's power fails: only what a barrier has told of is whole for certain.
    cuts: bool,
    /// The home cannot exchange names: what is written again lies aside, under its own name, until its copy has that.
    aside: bool,
}

#[derive(Default)]
struct State {
    /// So many are whole and safe.
    made: u32,
    /// So many are at the home, a barrier told.
    home: u32,
}

fn place(link: u32) -> (String, String) {
    (format!("d{}", link / IN_ONE), format!("n{link}"))
}

impl Links {
    /// Nothing is made. `cuts`: the home's power may fail; `aside`: it cannot exchange names.
    pub fn new(cuts: bool, aside: bool) -> Links {
        Links { state: Mutex::default(), cuts, aside }
    }

    /// Those at the home, and whether each is whole.
    fn at(image: &Fs) -> BTreeMap<u32, bool> {
        let top = format!("/{FOLDER}/");
        let link = |path: &str| path.strip_prefix(&top)?.split_once("/n")?.1.parse().ok();
        let is_it = |n: u32, data: &[u8]| is_whole(data) && data.starts_with(&whole(n)[..8]);
        files(image).iter().filter_map(|(path, data)| link(path).map(|n| (n, is_it(n, data)))).collect()
    }

    /// Those that lie aside in a staging folder, and whether each is whole.
    fn lying_aside(image: &Fs) -> BTreeMap<u32, bool> {
        let link = |path: &str| path.split_once("/out-")?.1.split_once("%sn")?.1.parse().ok();
        files(image).iter().filter_map(|(path, data)| link(path).map(|n| (n, is_whole(data)))).collect()
    }

    /// None is at the home without all before it.
    pub fn check(&self, image: &Fs) -> Check {
        let mut there = Links::at(image);
        let last = there.last_key_value().map_or(0, |(last, _)| *last);
        for (n, is_it) in Some(image).filter(|_| self.aside).map(Links::lying_aside).unwrap_or_default() {
            there.entry(n).or_insert(is_it);
        }
        let certain = if self.cuts { self.state.lock().home } else { last };
        (1..last).try_for_each(|n| match there.get(&n) {
            None => Err(format!("I3: the home has n{last}, and not n{n}")),
            Some(false) if n <= certain => Err(format!("I3: the home has n{last}, and only a part of n{n}")),
            Some(_) => Ok(()),
        })
    }

    /// All are at the home.
    pub fn check_all(&self, image: &Fs) -> Check {
        let (made, there) = (self.state.lock().made, Links::at(image));
        let missing: Vec<u32> = (1..=made).filter(|n| there.get(n) != Some(&true)).collect();
        if missing.is_empty() {
            Ok(())
        } else {
            Err(format!("I1: of the chain {missing:?} are not at the home"))
        }
    }
}

/// The client.
pub struct Chain {
    sessions: Arc<Sessions>,
    links: Arc<Links>,
    cred: Cred,
    rng: StdRng,
    trace: Trace,
}

impl Chain {
    /// A client of a gateway.
    pub fn new(gateway: &Gateway, links: Arc<Links>, seed: u64, trace: Trace) -> Chain {
        Chain { sessions: gateway.sessions(), links, cred: cred(), rng: StdRng::seed_from_u64(seed), trace }
    }

    /// Makes so many further things.
    pub async fn work(&mut self, count: u64) -> Check {
        for _ in 0..count {
            let link = self.links.state.lock().made + 1;
            let cut = self.rng.random_range(0..whole(link).len());
            self.until_answered(link, async |c, s| c.make(s, link, cut).await).await?;
            self.links.state.lock().made = link;
            self.trace.lock().push(format!("chain: n{link} is made"));
            if self.rng.random_ratio(1, 10) {
                let unsent =
                    self.until_answered(link, async |_, s| Ok(s.vfs.sync(None, BARRIER).await.err())).await?;
                if unsent.is_none() {
                    self.links.state.lock().home = link;
                }
            }
            let pause = self.rng.random_range(0..200);
            sleep(Duration::from_millis(pause)).await;
        }
        Ok(())
    }

    async fn until_answered<T>(
        &self,
        link: u32,
        mut call: impl AsyncFnMut(&Chain, &Session) -> home::Result<T>,
    ) -> Check<T> {
        loop {
            let session = self.sessions.living().await;
            let done = tokio::select! {
                biased;
                done = call(self, &session) => Some(done),
                () = self.sessions.dead(&session) => None,
            };
            match done.filter(|_| session.is_alive()) {
                Some(Ok(done)) => return Ok(done),
                Some(Err(e)) if LATER.contains(&e.kind) => sleep(Duration::from_millis(300)).await,
                Some(Err(e)) => return Err(format!("n{link}: {:?} {e}", e.kind)),
                None => sleep(Duration::from_millis(1)).await,
            }
        }
    }

    /// A directory where it is the first one there, and a file in two writes; what an earlier call has done is done.
    async fn make(&self, s: &Session, link: u32, cut: usize) -> home::Result<()> {
        let (ctx, (dir, name)) = (Ctx::of(&self.cred), place(link));
        let top = self.dir(s, home_dir(&s.vfs, &self.cred, LAB).await?, FOLDER).await?;
        let dir = self.dir(s, top, &dir).await?;
        let made = s.vfs.create(ctx, dir, name.as_bytes(), CreateHow::Unchecked, SetAttrs::default()).await?;
        let data = whole(link);
        for (at, part) in [(0, &data[..cut]), (cut, &data[cut..])] {
            if !part.is_empty() {
                s.vfs.write(ctx, made.oid, at as u64, part.to_vec().into(), Stability::Stable).await?;
            }
        }
        Ok(())
    }

    async fn dir(&self, s: &Session, top: Oid, name: &str) -> home::Result<Oid> {
        let ctx = Ctx::of(&self.cred);
        let set = SetAttrs { mode: Some(0o755), ..SetAttrs::default() };
        match s.vfs.mkdir(ctx, top, name.as_bytes(), set).await {
            Err(e) if e.kind == ErrorKind::Exists => Ok(s.vfs.lookup(ctx, top, name.as_bytes()).await?.oid),
            made => Ok(made?.oid),
        }
    }
}
