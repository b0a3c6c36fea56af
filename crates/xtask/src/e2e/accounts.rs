//! Who takes part: accounts with uids of their own, which exist only inside a scenario.

use anyhow::Result;
use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

/// An account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Account {
    /// Login name.
    pub name: &'static str,
    /// User and group id.
    pub uid: u32,
}

/// Runs the server. On clients, the same uid is the one that is served.
pub const GATEWAY: Account = Account { name: "gateway", uid: 39_100 };
/// Owns a home; another uid than the server's, as on two machines.
pub const ANN: Account = Account { name: "ann", uid: 39_201 };
/// Owns another home.
pub const BOB: Account = Account { name: "bob", uid: 39_202 };
/// Has a uid on the client that the server does not know.
pub const STRANGER: Account = Account { name: "stranger", uid: 39_300 };

const ALL: [Account; 4] = [GATEWAY, ANN, BOB, STRANGER];

impl Account {
    /// Its home directory in a scenario's folder.
    pub fn home(&self, world: &Path) -> PathBuf {
        world.join("home").join(self.name)
    }

    /// Makes a file or folder theirs.
    pub fn own(&self, path: &Path) -> Result<()> {
        Ok(chown(path, Some(self.uid), Some(self.uid))?)
    }
}

/// Makes the home directories below `world`, and adds these accounts to a copy of `/etc`.
pub fn create(world: &Path, etc: &Path) -> Result<()> {
    let files = [etc.join("passwd"), etc.join("group")];
    let keep = |file: &Path| -> Result<String> {
        let text = fs::read_to_string(file)?;
        let ours = |line: &&str| ALL.iter().any(|a| line.starts_with(&format!("{}:", a.name)));
        Ok(text.lines().filter(|l| !ours(l)).map(|l| format!("{l}\n")).collect())
    };
    let (mut passwd, mut group) = (keep(&files[0])?, keep(&files[1])?);
    for account in ALL {
        let (home, Account { name, uid }) = (account.home(world), account);
        fs::create_dir_all(&home)?;
        account.own(&home)?;
        passwd += &format!("{name}:*:{uid}:{uid}::{}:/bin/bash\n", home.display());
        group += &format!("{name}:*:{uid}:\n");
    }
    fs::write(&files[0], passwd)?;
    Ok(fs::write(&files[1], group)?)
}
