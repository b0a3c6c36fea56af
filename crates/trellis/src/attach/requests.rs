//! What the kernel of a relayed mount still waits for. Only headers are read here (linux/fuse.h): a request is its
//! length, its operation (4 bytes each) and its number (8); an answer its length, error (4 each) and number (8).

use bytes::{BufMut, Bytes, BytesMut};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// FUSE_INIT: the first request of a kernel.
const INIT: u32 = 26;
/// FUSE_FORGET, FUSE_INTERRUPT, FUSE_BATCH_FORGET: nobody waits for an answer.
const UNANSWERED: [u32; 3] = [2, 36, 42];
/// FUSE_LOOKUP, GETATTR, READLINK, OPEN, STATFS, GETXATTR, LISTXATTR, OPENDIR, ACCESS: asking twice changes nothing.
const HARMLESS: [u32; 9] = [1, 3, 5, 14, 17, 22, 23, 27, 34];
/// EIO (errno(3)).
const EIO: i32 = 5;

/// The requests without an answer.
#[derive(Debug, Default)]
pub struct Requests {
    init: Option<Bytes>,
    init_answered: bool,
    waiting: BTreeMap<u64, Waiting>,
}

#[derive(Debug)]
struct Waiting {
    since: Instant,
    message: Bytes,
}

/// What becomes of requests when the server has forgotten the session.
#[derive(Debug, Default)]
pub struct Restart {
    /// To be sent again, in this order.
    pub again: Vec<Bytes>,
    /// Answers for the kernel: it is not known whether these requests were executed.
    pub failed: Vec<Bytes>,
}

/// The number of an answer; 0: a notice that nobody asked for.
pub fn number_of_answer(message: &[u8]) -> Option<u64> {
    number(message)
}

fn operation(message: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(message.get(4..8)?.try_into().ok()?))
}

fn number(message: &[u8]) -> Option<u64> {
    Some(u64::from_ne_bytes(message.get(8..16)?.try_into().ok()?))
}

/// The answer that something went wrong.
fn failure(number: u64) -> Bytes {
    let mut answer = BytesMut::with_capacity(16);
    answer.put_u32_ne(16);
    answer.put_i32_ne(-EIO);
    answer.put_u64_ne(number);
    answer.freeze()
}

impl Requests {
    /// The kernel asks.
    pub fn asked(&mut self, message: &Bytes, now: Instant) {
        let (Some(operation), Some(number)) = (operation(message), number(message)) else { return };
        if operation == INIT {
            self.init = Some(message.clone());
            self.init_answered = false;
        }
        if !UNANSWERED.contains(&operation) {
            self.waiting.insert(number, Waiting { since: now, message: message.clone() });
        }
    }

    /// An answer has come; whether the kernel wants it. It has no use for a second answer to its first request.
    pub fn answered(&mut self, message: &[u8]) -> bool {
        let Some(number) = number(message) else { return true };
        let is_init = self.init.as_deref().and_then(self::number) == Some(number);
        let wanted = !is_init || !self.init_answered;
        self.init_answered |= is_init;
        self.waiting.remove(&number);
        wanted
    }

    /// The requests that have waited for longer than `patience`: their numbers, and what the kernel is told.
    pub fn give_up(&mut self, now: Instant, patience: Duration) -> Vec<(u64, Bytes)> {
        let old = self.waiting.extract_if(.., |_, w| now.duration_since(w.since) > patience);
        old.map(|(number, _)| (number, failure(number))).collect()
    }

    /// The server begins anew: its session starts with the kernel's first request.
    pub fn restart(&mut self) -> Restart {
        let mut restart = Restart { again: self.init.iter().cloned().collect(), failed: Vec::new() };
        let first = self.init.as_deref().and_then(number);
        for (number, waiting) in std::mem::take(&mut self.waiting) {
            if Some(number) == first {
                self.waiting.insert(number, waiting);
            } else if operation(&waiting.message).is_some_and(|op| HARMLESS.contains(&op)) {
                restart.again.push(waiting.message.clone());
                self.waiting.insert(number, waiting);
            } else {
                restart.failed.push(failure(number));
            }
        }
        restart
    }
}

/// Whether a request is the one of this number.
pub fn is(message: &[u8], wanted: u64) -> bool {
    number(message) == Some(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(operation: u32, number: u64) -> Bytes {
        let mut message = BytesMut::new();
        message.put_u32_ne(40);
        message.put_u32_ne(operation);
        message.put_u64_ne(number);
        message.freeze()
    }

    #[test]
    fn a_restart_asks_again_what_changes_nothing_and_fails_the_rest() {
        let (mkdir, lookup, forget) = (request(9, 6), request(1, 4), request(2, 8));
        let (mut requests, now) = (Requests::default(), Instant::now());
        let init = request(INIT, 2);
        for message in [&init, &mkdir, &lookup, &forget] {
            requests.asked(message, now);
        }
        assert!(requests.answered(&failure(2)), "the first answer to the first request");
        let restart = requests.restart();
        assert_eq!(restart.again, [init, lookup]);
        assert_eq!(restart.failed, [failure(6)]);
        assert!(!requests.answered(&failure(2)), "the kernel had this answer");
        assert!(requests.answered(&failure(4)));
        assert!(requests.give_up(now + Duration::from_secs(9), Duration::ZERO).is_empty());
    }

    #[test]
    fn nobody_waits_longer_than_patience() {
        let (mut requests, now) = (Requests::default(), Instant::now());
        requests.asked(&request(16, 10), now);
        requests.asked(&request(16, 12), now + Duration::from_secs(50));
        let given_up = requests.give_up(now + Duration::from_secs(61), Duration::from_secs(60));
        assert_eq!(given_up, [(10, failure(10))]);
        assert!(is(&request(16, 10), 10) && !is(b"short", 10));
    }
}
