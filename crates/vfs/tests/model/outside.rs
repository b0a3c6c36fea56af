//! The engine and another program change the same files: neither side's bytes vanish.
//!
//! Whatever is written is a token that is written once. A token is at the home in the end, in whatever file, unless
//! the other program destroyed it there, or the engine was told to destroy it by somebody who had seen it.

use crate::common::clock::FastClock;
use crate::common::{Engine, World};
use crate::run::{Check, ensure, start};
use home::testing::conformance::Outside;
use home::testing::fault::Fault;
use home::{ErrorKind, HomePath};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeSet;
use std::time::Duration;
use vfs::{CreateHow, Mode, Oid, SetAttrs};

const NAMES: [&str; 6] = ["a", "b", "c", "d/a", "d/b", "d/c"];
/// Every token has this length.
const TOKEN: usize = 8;

type Tokens = BTreeSet<String>;

pub struct Two {
    world: World,
    rng: StdRng,
    e: Engine,
    next: u32,
    /// Must be at the home in the end.
    alive: Tokens,
    pub trace: Vec<String>,
}

fn path(name: &str) -> HomePath {
    HomePath::parse(name.as_bytes()).unwrap()
}

fn tokens(data: &[u8]) -> Tokens {
    data.chunks(TOKEN).map(|c| String::from_utf8_lossy(c).into_owned()).collect()
}

impl Two {
    pub async fn new(seed: u64) -> Two {
        let clock = FastClock::new(1_750_000_000);
        tokio::spawn(clock.clone().run());
        let mut rng = StdRng::seed_from_u64(seed);
        let mut world = World::new(Mode::Wb);
        world.memory.set_keeps_log(rng.random_bool(0.5));
        world.staleness = Duration::from_millis([0, 300, 100_000][rng.random_range(0..3)]);
        world.mkdir("d");
        let e = start(&world, &clock, seed).await;
        Two { world, rng, e, next: 0, alive: Tokens::new(), trace: Vec::new() }
    }

    pub async fn go(&mut self, steps: u32) -> Check {
        for step in 0..steps {
            let name = NAMES[self.rng.random_range(0..NAMES.len())];
            match self.rng.random_range(0..100) {
                0..50 => self.ours(step, name).await?,
                50..80 => self.theirs(step, name),
                80..90 => {
                    let pause = Duration::from_millis(self.rng.random_range(1..1500));
                    self.trace.push(format!("{step}: pause {pause:?}"));
                    tokio::time::sleep(pause).await;
                }
                90..95 => {
                    let faults = [Fault::Unreachable, Fault::AnswersLost, Fault::Hang];
                    let fault = faults[self.rng.random_range(0..3)];
                    self.trace.push(format!("{step}: {fault:?}"));
                    self.world.fault(fault);
                }
                95..96 => {
                    self.trace.push(format!("{step}: agent restarts"));
                    self.world.memory.restart();
                }
                96..99 => {
                    self.trace.push(format!("{step}: no fault"));
                    self.world.fault(Fault::None);
                }
                _ => {
                    self.trace.push(format!("{step}: sync"));
                    self.settle().await?;
                }
            }
        }
        self.settle().await
    }

    fn token(&mut self, by: char) -> String {
        self.next += 1;
        let token = format!("{by}{:07}", self.next);
        self.alive.insert(token.clone());
        token
    }

    /// What the home has under a name; nothing if it is no file.
    fn there(&self, name: &str) -> Option<Vec<u8>> {
        Outside::read(&self.world.memory, &path(name))
    }

    fn theirs(&mut self, step: u32, name: &str) {
        let other = NAMES[self.rng.random_range(0..NAMES.len())];
        let lost = |this: &mut Self, name: &str| {
            for token in this.there(name).map(|d| tokens(&d)).unwrap_or_default() {
                if this.at_home().iter().filter(|t| **t == token).count() < 2 {
                    this.alive.remove(&token);
                }
            }
        };
        match self.rng.random_range(0..4) {
            0 | 1 => {
                lost(self, name);
                let token = self.token('T');
                self.trace.push(format!("{step}: they write {token} to {name}"));
                Outside::write(&self.world.memory, &path(name), token.as_bytes());
            }
            2 if self.there(name).is_some() => {
                self.trace.push(format!("{step}: they remove {name}"));
                lost(self, name);
                Outside::remove(&self.world.memory, &path(name));
            }
            3 if self.there(name).is_some() && name != other => {
                self.trace.push(format!("{step}: they rename {name} to {other}"));
                lost(self, other);
                Outside::rename(&self.world.memory, &path(name), &path(other));
            }
            _ => {}
        }
    }

    async fn ours(&mut self, step: u32, name: &str) -> Check {
        let roll = self.rng.random_range(0..10);
        let new_name = NAMES[self.rng.random_range(0..NAMES.len())];
        let mut text = format!("{step}: we do {roll} with {name} and {new_name}");
        let done = self.do_ours(roll, name, new_name, &mut text).await;
        match done {
            Ok(()) => {}
            Err(e) => {
                text.push_str(&format!(" => {e}"));
                let normal = [
                    ErrorKind::Busy,
                    ErrorKind::NotFound,
                    ErrorKind::Stale,
                    ErrorKind::Exists,
                    ErrorKind::Unreachable,
                ];
                if !normal.contains(&e.kind) && e.kind != ErrorKind::Io {
                    self.trace.push(text.clone());
                    return Err(text);
                }
            }
        }
        self.trace.push(text);
        Ok(())
    }

    async fn do_ours(&mut self, roll: u32, name: &str, new_name: &str, text: &mut String) -> vfs::Result<()> {
        let (dir, last) = self.dir(name).await?;
        match roll {
            0..2 => {
                let made =
                    self.e.vfs.create(self.e.ctx(), dir, last, CreateHow::Guarded, SetAttrs::default());
                let file = made.await?.oid;
                self.put(file, 0, text).await
            }
            2..5 => {
                let file = self.e.vfs.lookup(self.e.ctx(), dir, last).await?.oid;
                let data = self.e.read(file).await?;
                self.put(file, data.len() as u64, text).await
            }
            5..7 => {
                let file = self.e.vfs.lookup(self.e.ctx(), dir, last).await?.oid;
                let seen = self.seen(file, name).await?;
                let set = SetAttrs { size: Some(0), ..SetAttrs::default() };
                self.e.vfs.setattr(self.e.ctx(), file, set, None).await?;
                self.forget(&seen, text);
                self.put(file, 0, text).await
            }
            7..9 => {
                let file = self.e.vfs.lookup(self.e.ctx(), dir, last).await?.oid;
                let seen = self.seen(file, name).await?;
                self.e.vfs.remove(self.e.ctx(), dir, last).await?;
                self.forget(&seen, text);
                Ok(())
            }
            _ => {
                let (to, new_last) = self.dir(new_name).await?;
                let file = self.e.vfs.lookup(self.e.ctx(), dir, last).await?.oid;
                let over = match self.e.vfs.lookup(self.e.ctx(), to, new_last).await {
                    Ok(found) if found.oid != file => self.seen(found.oid, new_name).await?,
                    Ok(_) => Tokens::new(),
                    Err(e) if e.kind == ErrorKind::NotFound => Tokens::new(),
                    Err(e) => return Err(e),
                };
                self.e.vfs.rename(self.e.ctx(), dir, last, to, new_last, vfs::RenameHow::Replace).await?;
                self.forget(&over, text);
                Ok(())
            }
        }
    }

    async fn dir<'a>(&self, name: &'a str) -> vfs::Result<(Oid, &'a [u8])> {
        Ok(match name.split_once('/') {
            Some((dir, last)) => (self.e.find(&format!("/lab/{dir}")).await?, last.as_bytes()),
            None => (self.e.find("/lab").await?, name.as_bytes()),
        })
    }

    async fn put(&mut self, file: Oid, at: u64, text: &mut String) -> vfs::Result<()> {
        let token = self.token('O');
        let written = self.e.write(file, at, token.as_bytes()).await;
        text.push_str(&format!(", wrote {token} at {at}"));
        if written.is_err() {
            self.alive.remove(&token);
        }
        written
    }

    /// What somebody knows who destroys a file: its content as the engine shows it, and as the home has it where the
    /// engine may look again.
    async fn seen(&self, file: Oid, name: &str) -> vfs::Result<Tokens> {
        let mut seen = tokens(&self.e.read(file).await?);
        if self.world.staleness < Duration::from_secs(1000) {
            seen.extend(self.there(name).map(|d| tokens(&d)).unwrap_or_default());
        }
        Ok(seen)
    }

    fn forget(&mut self, seen: &Tokens, text: &mut String) {
        text.push_str(&format!(", knowing {seen:?}"));
        self.alive.retain(|t| !seen.contains(t));
    }

    /// All tokens in all files, as often as they are there.
    fn at_home(&self) -> Vec<String> {
        let mut found = Vec::new();
        for dir in ["", "d"] {
            for name in Outside::names(&self.world.memory, &path(dir)) {
                let at = path(dir).join(&home::Name::new(&name).unwrap());
                if let Some(data) = Outside::read(&self.world.memory, &at) {
                    found.extend(data.chunks(TOKEN).map(|c| String::from_utf8_lossy(c).into_owned()));
                }
            }
        }
        found
    }

    async fn settle(&mut self) -> Check {
        self.world.fault(Fault::None);
        let synced = self.e.vfs.sync(None, Duration::from_secs(120)).await;
        let status = self.e.vfs.status();
        ensure!(synced.is_ok(), "not all was sent: {synced:?} {:?}", status.volumes);
        ensure!(status.dirty_bytes == 0, "{} bytes are still pinned", status.dirty_bytes);
        let found: Tokens = self.at_home().into_iter().collect();
        let missing: Vec<&String> = self.alive.difference(&found).collect();
        ensure!(missing.is_empty(), "{missing:?} are lost; the home has {:?}", self.files());
        Ok(())
    }

    fn files(&self) -> Vec<String> {
        let mut all = Vec::new();
        for dir in ["", "d"] {
            for name in Outside::names(&self.world.memory, &path(dir)) {
                let at = path(dir).join(&home::Name::new(&name).unwrap());
                let data = Outside::read(&self.world.memory, &at).unwrap_or_default();
                all.push(format!("{at}: {}", data.escape_ascii()));
            }
        }
        all
    }
}
