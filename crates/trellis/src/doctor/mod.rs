//! What Trellis needs, checked one by one: each finding is fine, worth a look, or a failure, and says what to do.
//!
//! - [`here`]: this machine: FUSE, mounts, ssh, ports, disk, limits.
//! - [`homes`]: the running server and the homes: reachable, logged in, how strong, whose clock is wrong.

pub mod here;
pub mod homes;

use serde::Serialize;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Nothing to do.
    Ok,
    /// It works, but not all of it, or not for long.
    Warn,
    /// It does not work.
    Fail,
}

/// One thing that was checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub level: Level,
    /// What was checked: `fuse`, `mount`, `ssh`, `ports`, `disk`, `limits`, `config`, `server`, `clock` or `home`.
    pub about: &'static str,
    /// What was found.
    pub found: String,
    /// What to do; null where nothing is.
    pub advice: Option<String>,
}

impl Finding {
    /// Nothing to do.
    pub fn ok(about: &'static str, found: impl Into<String>) -> Finding {
        Finding { level: Level::Ok, about, found: found.into(), advice: None }
    }

    /// Worth a look.
    pub fn warn(about: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding { level: Level::Warn, about, found: found.into(), advice: Some(advice.into()) }
    }

    /// Does not work.
    pub fn fail(about: &'static str, found: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding { level: Level::Fail, about, found: found.into(), advice: Some(advice.into()) }
    }
}
