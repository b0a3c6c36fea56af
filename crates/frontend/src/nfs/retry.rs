//! The duplicate request cache: a call that comes again gets its first answer (RFC 1813 §4.5).
//!
//! A client that hears nothing sends the same call with the same xid once more, perhaps on a new connection, while
//! the first may be running, done, or done by a process that has died since. [`Retries::once`] knows
//! the first two; the third is the engine's memory (`Vfs::first_reply`), which is why the key
//! must come out the same after a restart.
//!
//! The key leaves the client's port out (NAT, user-space clients); the checksum over the arguments
//! tells apart different calls that happen to bear the same xid, as connections of one client do now and then.
//!
//! Each client has a table of its own, so that a busy one cannot push out another one's replies.

use crate::limits::{RETRY_AGE, RETRY_ARGS, RETRY_BYTES, RETRY_CLIENTS, RETRY_ENTRIES};
use bytes::Bytes;
use parking_lot::Mutex;
use siphasher::sip128::SipHasher24;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::hash::Hasher;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::watch;
use vfs::RetryKey;

/// Bytes that an entry takes beside its reply: two copies of the key, the table's slot, the queue's slot.
const ENTRY_OVERHEAD: usize = 128;

/// What tells one call from another, beside the client.
#[derive(Debug, Clone, Copy)]
pub struct CallId<'a> {
    /// Transaction.
    pub xid: u32,
    /// Program.
    pub prog: u32,
    /// Version.
    pub vers: u32,
    /// Procedure.
    pub proc: u32,
    /// The caller as the client names it, before squashing; `None` for AUTH_NONE.
    pub uid: Option<u32>,
    /// The encoded arguments.
    pub args: &'a [u8],
}

/// Makes keys of calls. The secret keeps clients from choosing arguments that collide.
#[derive(Clone)]
pub struct Keys {
    hash: SipHasher24,
}

impl Keys {
    /// With the secret of the state directory, so that keys survive a restart.
    pub fn new(secret: [u8; 16]) -> Keys {
        let own = SipHasher24::new_with_key(&secret).hash(b"repeated calls").as_bytes();
        Keys { hash: SipHasher24::new_with_key(&own) }
    }

    /// The key of a call.
    pub fn key(&self, client: IpAddr, call: &CallId<'_>) -> RetryKey {
        let mut hash = self.hash;
        match client.to_canonical() {
            IpAddr::V4(a) => hash.write(&a.octets()),
            IpAddr::V6(a) => hash.write(&a.octets()),
        }
        let args = &call.args[..call.args.len().min(RETRY_ARGS)];
        let known = u32::from(call.uid.is_some());
        for word in [call.xid, call.prog, call.vers, call.proc, known, call.uid.unwrap_or(0)] {
            hash.write(&word.to_be_bytes());
        }
        hash.write(&(call.args.len() as u64).to_be_bytes());
        hash.write(args);
        RetryKey(siphasher::sip128::Hasher128::finish128(&hash).as_bytes())
    }
}

/// All clients' tables.
#[derive(Default)]
pub struct Clients {
    tables: Mutex<HashMap<IpAddr, Arc<Retries>>>,
}

impl Clients {
    /// The table of a client. Where there are too many, one without running calls goes: all that are older
    /// than [`RETRY_AGE`], else the one that was used longest ago.
    pub fn table(&self, client: IpAddr) -> Arc<Retries> {
        let client = client.to_canonical();
        let mut tables = self.tables.lock();
        if !tables.contains_key(&client) && tables.len() >= RETRY_CLIENTS {
            tables.retain(|_, t| Arc::strong_count(t) > 1 || !t.is_old());
            if tables.len() >= RETRY_CLIENTS {
                let idle = tables.iter().filter(|(_, t)| Arc::strong_count(t) == 1);
                let oldest = idle.min_by_key(|(_, t)| t.last()).map(|(addr, _)| *addr);
                oldest.map(|addr| tables.remove(&addr));
            }
        }
        tables.entry(client).or_default().clone()
    }
}

/// The calls of one client that may come again.
pub struct Retries {
    inner: Mutex<Inner>,
}

struct Inner {
    calls: HashMap<RetryKey, State>,
    /// Finished calls, oldest first.
    done: VecDeque<(Instant, RetryKey)>,
    bytes: usize,
    last: Instant,
}

enum State {
    Running(watch::Receiver<Option<Bytes>>),
    Done(Bytes),
}

impl Default for Retries {
    fn default() -> Retries {
        let inner = Inner { calls: HashMap::new(), done: VecDeque::new(), bytes: 0, last: Instant::now() };
        Retries { inner: Mutex::new(inner) }
    }
}

/// What to do with a call.
enum Begin {
    /// It is the first of its kind: run it.
    Run(Running),
    /// It is running: wait for its answer.
    Attach(Attached),
    /// It is done: this was the answer.
    Done(Bytes),
}

/// The right and the duty to run a call. Dropped without [`Running::finish`], the call counts as never begun,
/// and one that is attached to it may begin.
struct Running {
    table: Arc<Retries>,
    key: RetryKey,
    answer: watch::Sender<Option<Bytes>>,
    finished: bool,
}

/// Waits for another one's answer.
struct Attached(watch::Receiver<Option<Bytes>>);

impl Attached {
    /// The answer; `None` if the call was given up, and should begin anew.
    async fn answer(mut self) -> Option<Bytes> {
        self.0.wait_for(Option::is_some).await.ok().and_then(|answer| answer.clone())
    }
}

impl Retries {
    /// The answer of a call, which `run` executes unless the call is running or done already. `keep` says of an
    /// answer whether it stands for those who still come. An error answers nobody but this caller.
    pub async fn once<E>(
        self: &Arc<Self>,
        key: RetryKey,
        run: impl Future<Output = Result<Bytes, E>>,
        keep: impl FnOnce(&[u8]) -> bool,
    ) -> Result<Bytes, E> {
        loop {
            match self.begin(key) {
                Begin::Done(reply) => return Ok(reply),
                Begin::Attach(running) => {
                    if let Some(reply) = running.answer().await {
                        return Ok(reply);
                    }
                }
                Begin::Run(running) => {
                    let reply = run.await?;
                    running.finish(reply.clone(), keep(&reply));
                    return Ok(reply);
                }
            }
        }
    }

    /// Asks whether a call was seen before.
    fn begin(self: &Arc<Self>, key: RetryKey) -> Begin {
        match self.inner.lock().calls.entry(key) {
            Entry::Occupied(entry) => match entry.get() {
                State::Running(answer) => Begin::Attach(Attached(answer.clone())),
                State::Done(reply) => Begin::Done(reply.clone()),
            },
            Entry::Vacant(entry) => {
                let (answer, waiting) = watch::channel(None);
                entry.insert(State::Running(waiting));
                Begin::Run(Running { table: self.clone(), key, answer, finished: false })
            }
        }
    }

    fn last(&self) -> Instant {
        self.inner.lock().last
    }

    fn is_old(&self) -> bool {
        self.last().elapsed() >= RETRY_AGE
    }
}

impl Running {
    /// Hands the answer to whoever is attached, and keeps it for those who still come if `keep` is set: calls
    /// that may be executed twice, and those that changed nothing, need not be kept.
    fn finish(mut self, reply: Bytes, keep: bool) {
        self.finished = true;
        let mut inner = self.table.inner.lock();
        if keep {
            inner.keep(self.key, reply.clone(), Instant::now());
        } else {
            inner.calls.remove(&self.key);
        }
        drop(inner);
        self.answer.send_replace(Some(reply));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.finished {
            self.table.inner.lock().calls.remove(&self.key);
        }
    }
}

impl Inner {
    fn keep(&mut self, key: RetryKey, reply: Bytes, now: Instant) {
        self.bytes += reply.len() + ENTRY_OVERHEAD;
        self.calls.insert(key, State::Done(reply));
        self.done.push_back((now, key));
        self.last = now;
        while self.is_over(now) {
            let Some((_, oldest)) = self.done.pop_front() else { break };
            if let Some(State::Done(reply)) = self.calls.remove(&oldest) {
                self.bytes -= reply.len() + ENTRY_OVERHEAD;
            }
        }
    }

    fn is_over(&self, now: Instant) -> bool {
        let old = self.done.front().is_some_and(|(at, _)| now.duration_since(*at) >= RETRY_AGE);
        (self.done.len() > RETRY_ENTRIES && old) || self.bytes > RETRY_BYTES
    }
}

#[cfg(test)]
mod tests;
