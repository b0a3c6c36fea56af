//! Who wrote what, and who may destroy it. Every token is written once; one that is required must be found in a file of
//! the home in the end.

use crate::machine::fs::{Fs, Ino, ROOT};
use home::posix::sys::FileType;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};

/// Tokens.
pub type Tokens = BTreeSet<String>;

/// The book of all tokens.
#[derive(Default)]
pub struct Ledger {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u32,
    required: Tokens,
    /// Destroyed by somebody who had seen it, or by its author, or perhaps.
    excused: Tokens,
    /// Removals that were begun.
    removals: u64,
    /// Removals that the agent is at.
    removing: i64,
    /// What the home answered to questions of the engine about the shared folder, the oldest first: a name, which file it
    /// stood for, and what was in that. For each name the last answer before the call that runs, and all since.
    told: Vec<(String, Ino, Tokens)>,
    /// What clients wrote, and to which file by the last answer for its name.
    written: Vec<(Ino, String)>,
}

/// The tokens in some bytes, which may have gaps between them.
pub fn tokens(data: &[u8]) -> Tokens {
    let is_token =
        |p: &&[u8]| matches!(p[0], b'X' | b'O') && p[7] == b';' && p[1..7].iter().all(u8::is_ascii_digit);
    data.windows(8).filter(is_token).map(|p| String::from_utf8_lossy(p).into_owned()).collect()
}

/// The tokens in all files of an image but an agent's log; `shown`: only those that a person finds.
pub fn tokens_in(image: &Fs, shown: bool) -> Tokens {
    let mut found = Tokens::new();
    for (path, ino) in image.walk(ROOT) {
        let is_log = path.starts_with("/home/ann/.cache/trellis/volumes/");
        let hidden = is_log || shown && path.starts_with("/home/ann/.cache/");
        if let Some(node) = image.get(ino).filter(|n| n.kind == FileType::File && !hidden) {
            found.extend(tokens(&node.data));
        }
    }
    found
}

impl Ledger {
    /// A token that was never written.
    pub fn token(&self, author: char) -> String {
        let mut state = self.state.lock();
        state.next += 1;
        format!("{author}{:06};", state.next)
    }

    /// The number of the newest token.
    pub fn last(&self) -> u32 {
        self.state.lock().next
    }

    /// It is written, and must not be lost.
    pub fn require(&self, token: &str) {
        self.state.lock().required.insert(token.to_owned());
    }

    /// These may be gone.
    pub fn excuse(&self, tokens: impl IntoIterator<Item = String>) {
        self.state.lock().excused.extend(tokens);
    }

    /// Somebody begins to remove something.
    pub fn removal(&self) {
        self.state.lock().removals += 1;
    }

    /// How many removals were begun.
    pub fn removals(&self) -> u64 {
        self.state.lock().removals
    }

    /// The agent begins to remove something, or has ended.
    pub fn removing(&self, begins: bool) {
        self.state.lock().removing += if begins { 1 } else { -1 };
    }

    /// Whether the agent is removing something.
    pub fn is_removing(&self) -> bool {
        self.state.lock().removing > 0
    }

    /// The engine was told what a name stands for at the home.
    pub fn told(&self, name: &str, file: Ino, tokens: Tokens) {
        self.state.lock().told.push((name.to_owned(), file, tokens));
    }

    /// A client wrote a token to a file that it found by a name.
    pub fn wrote(&self, name: &str, token: &str) {
        let state = &mut *self.state.lock();
        let file = state.told.iter().rfind(|t| t.0 == name).map(|t| t.1);
        state.written.extend(file.map(|file| (file, token.to_owned())));
    }

    /// A call begins: what the engine knows of before is the last answer.
    pub fn begin(&self) {
        let told = &mut self.state.lock().told;
        let last: BTreeMap<String, (Ino, Tokens)> =
            std::mem::take(told).into_iter().map(|(name, file, tokens)| (name, (file, tokens))).collect();
        told.extend(last.into_iter().map(|(name, (file, tokens))| (name, file, tokens)));
    }

    /// Whoever destroys what a name stands for destroys what the engine was told of that file, by whichever name, and what
    /// clients wrote to it: somebody may have given it this name a moment ago.
    pub fn excuse_told(&self, name: &str) {
        let state = &mut *self.state.lock();
        let files: BTreeSet<Ino> = state.told.iter().filter(|t| t.0 == name).map(|t| t.1).collect();
        let known = state.told.iter().filter(|t| files.contains(&t.1));
        state.excused.extend(known.flat_map(|t| t.2.iter().cloned()));
        let written = state.written.iter().filter(|(file, _)| files.contains(file));
        state.excused.extend(written.map(|(_, token)| token.clone()));
    }

    /// What must be there and is not.
    pub fn missing(&self, image: &Fs) -> Vec<String> {
        let there = tokens_in(image, true);
        let state = self.state.lock();
        state
            .required
            .iter()
            .filter(|t| !state.excused.contains(*t) && !there.contains(*t))
            .cloned()
            .collect()
    }
}
