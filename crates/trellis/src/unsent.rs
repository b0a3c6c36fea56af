//! Whether a home lacks changes that only the journal of a state directory holds.
//!
//! A command that goes straight to a home would not see such changes, and might be overwritten by them. The
//! server notes the accounts concerned when it ends in order ([`note`]) and takes the note away when it starts
//! ([`forget`]). A journal without a note belongs to a server that was killed: then nobody knows, and every
//! account is refused until a server has run again.

use crate::show;
use crate::state::{StateDir, write_atomically};
use crate::tree::direct::Unsent;
use home::io_text;
use home::{Error, ErrorKind};
use std::path::Path;
use vfs::VolumeStatus;

/// The accounts with unsent changes, as JSON.
const NOTE: &str = "unsent.json";
/// Where the engine keeps its lanes, one directory for each volume.
const JOURNAL: &str = "journal";

/// Notes which accounts lack changes when the engine was closed.
pub fn note(state: &StateDir, volumes: &[VolumeStatus], kept_back: &[vfs::Unsent]) -> Result<(), String> {
    let lacking = volumes.iter().filter(|v| v.unsent_ops > 0 || !v.parked.is_empty());
    let accounts = lacking.map(|v| v.account.as_str()).chain(kept_back.iter().map(|u| u.account.as_str()));
    let accounts: Vec<&str> = accounts.collect();
    let text = serde_json::to_vec(&accounts).map_err(|e| e.to_string())?;
    write_atomically(&state.path().join(NOTE), &text)
}

/// Takes the note away: from now on it would be out of date.
pub fn forget(state: &StateDir) -> Result<(), String> {
    match std::fs::remove_file(state.path().join(NOTE)) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("state directory {}: {e}", state.path().display(), e = io_text(&e)))
        }
        _ => Ok(()),
    }
}

/// What is known of a state directory that no server uses.
enum Known {
    /// No home lacks anything.
    Nothing,
    /// These accounts do.
    Accounts(Vec<String>),
    /// Any may.
    Unclear,
}

/// A check for one account after the other; without a state directory there is no journal.
pub fn check(state: Option<&StateDir>) -> Unsent {
    let known = state.map_or(Known::Nothing, look);
    let dir = state.map(|s| s.path().to_owned()).unwrap_or_default();
    Box::new(move |account| match &known {
        Known::Nothing => Ok(()),
        Known::Accounts(accounts) if !accounts.iter().any(|a| a == account) => Ok(()),
        Known::Accounts(_) => Err(refusal(account, "holds changes that this home does not have yet", &dir)),
        Known::Unclear => Err(refusal(account, "was left by a server that did not end in order", &dir)),
    })
}

fn refusal(account: &str, why: &str, dir: &Path) -> Error {
    let text = format!(
        "{}: the journal in {} {why}: start the server with `trellis mount --state {2}` or `trellis serve --state {2}`, and \
         try again",
        show::text(account.as_bytes()),
        show::text(dir.as_os_str().as_encoded_bytes()),
        show::path_word(dir)
    );
    Error::new(ErrorKind::Busy, text)
}

fn look(state: &StateDir) -> Known {
    if let Ok(text) = std::fs::read(state.path().join(NOTE)) {
        return match serde_json::from_slice(&text) {
            Ok(accounts) => Known::Accounts(accounts),
            Err(_) => Known::Unclear,
        };
    }
    match std::fs::read_dir(state.path().join(JOURNAL)) {
        Ok(mut lanes) => lanes.next().map_or(Known::Nothing, |_| Known::Unclear),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Known::Nothing,
        Err(_) => Known::Unclear,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vfs::{Mode, Modes};

    fn volume(account: &str, unsent_ops: u64) -> VolumeStatus {
        VolumeStatus {
            volume: 1,
            account: account.into(),
            names: vec![],
            modes: Modes::new(Mode::Wb, vec![]).unwrap(),
            conflict_policies: vfs::Policies::default(),
            home: home::Status::new(home::Link::Idle, None),
            staleness: Default::default(),
            kept: false,
            silent: false,
            unsent_ops,
            unsent_bytes: 0,
            oldest: None,
            conflicts: 0,
            alarm: None,
            copies: 0,
            parked: vec![],
            suspended: None,
            journal: None,
            walks: Default::default(),
        }
    }

    #[test]
    fn only_accounts_with_unsent_changes_are_refused() {
        let temp = tempfile::tempdir().unwrap();
        let state = StateDir::create(Some(&temp.path().join("s")), true).unwrap();
        assert!(check(None)("a").is_ok() && check(Some(&state))("a").is_ok());
        std::fs::create_dir_all(state.path().join("journal/00000001")).unwrap();
        let killed = check(Some(&state))("a").unwrap_err();
        assert!(killed.detail.contains("did not end in order"), "{killed}");
        note(&state, &[volume("a", 1), volume("b", 0)], &[]).unwrap();
        assert!(check(Some(&state))("a").unwrap_err().detail.contains("trellis serve"));
        assert!(check(Some(&state))("b").is_ok());
        forget(&state).unwrap();
        forget(&state).unwrap();
        assert!(check(Some(&state))("b").is_err());
    }
}
