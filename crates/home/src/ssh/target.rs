//! Where to connect: what `ssh` is given, and which account that turns out to be.

use super::ask_locally;
use crate::limits::remote::HOST_BYTES;
use crate::{Error, ErrorKind, Result};
use std::fmt;
use std::path::PathBuf;
use tokio::process::Command;

/// The arguments of `ssh`. Checked when made: no part can be taken for an option or reach a shell.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SshTarget {
    /// `None`: whatever ssh's configuration says.
    pub(super) user: Option<String>,
    /// A host name, an address, or an alias of ssh's configuration.
    pub(super) host: String,
    /// `None`: whatever ssh's configuration says.
    pub(super) port: Option<u16>,
    /// A configuration file instead of the user's own.
    pub(super) config: Option<PathBuf>,
    /// The OpenSSH client.
    pub(super) program: PathBuf,
}

/// The account that a target leads to, by ssh's own configuration. Two spellings with equal accounts are one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Account {
    /// The user's name there.
    pub user: String,
    /// The host name or address that ssh connects to.
    pub hostname: String,
    /// The port.
    pub port: u16,
}

impl SshTarget {
    /// Checks user (`[A-Za-z0-9._@+-]`) and host (`[A-Za-z0-9._:-]`); neither may begin with `-`.
    pub fn new(user: Option<&str>, host: &str) -> Result<SshTarget> {
        let clean = |text: &str, extra: &[u8]| {
            let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b) || extra.contains(&b);
            !text.is_empty()
                && text.len() <= HOST_BYTES
                && !text.starts_with('-')
                && text.bytes().all(allowed)
        };
        if !clean(host, b":") {
            let text = format!("not a host name: {:?} (letters, digits and . _ : - are allowed)", host);
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        if let Some(user) = user.filter(|u| !clean(u, b"@+")) {
            let text = format!("not a user name: {user:?} (letters, digits and . _ @ + - are allowed)");
            return Err(Error::new(ErrorKind::Invalid, text));
        }
        let user = user.map(str::to_owned);
        Ok(SshTarget { user, host: host.into(), port: None, config: None, program: "ssh".into() })
    }

    /// Connects to this port.
    pub fn with_port(self, port: Option<u16>) -> SshTarget {
        SshTarget { port, ..self }
    }

    /// Uses this file instead of the user's configuration (`ssh -F`).
    pub fn with_config(self, config: Option<PathBuf>) -> SshTarget {
        SshTarget { config, ..self }
    }

    /// Uses this OpenSSH client.
    pub fn with_program(self, program: impl Into<PathBuf>) -> SshTarget {
        SshTarget { program: program.into(), ..self }
    }

    /// The user as given.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// The host as given.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Asks `ssh -G` which account this is. Connects nowhere.
    pub async fn resolve(&self) -> Result<Account> {
        let text = ask_locally(self, "-G").await?;
        parse_account(&text).ok_or_else(|| {
            Error::new(
                ErrorKind::Login,
                format!("ssh -G {} does not tell user, host name and port", self.host),
            )
        })
    }

    pub(super) fn add_login(&self, command: &mut Command) {
        if let Some(user) = &self.user {
            command.args(["-l", user]);
        }
        if let Some(port) = self.port {
            command.args(["-p", &port.to_string()]);
        }
    }

    /// The command that a person types to log in there.
    pub fn command_line(&self) -> String {
        let mut words = vec!["ssh".to_owned()];
        if let Some(config) = &self.config {
            words.push(format!("-F {}", config.display()));
        }
        if let Some(port) = self.port {
            words.push(format!("-p {port}"));
        }
        words.push(self.to_string());
        words.join(" ")
    }
}

impl fmt::Display for SshTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.user {
            Some(user) => write!(f, "{user}@{}", self.host),
            None => f.write_str(&self.host),
        }
    }
}

pub(super) fn parse_account(text: &str) -> Option<Account> {
    let value = |key: &str| {
        let mut lines = text.lines().filter_map(|l| l.split_once(' '));
        lines.find(|(k, _)| *k == key).map(|(_, v)| v.trim().to_owned())
    };
    // OpenSSH prints the host name in the case that was typed.
    let hostname = value("hostname")?.to_ascii_lowercase();
    Some(Account { user: value("user")?, hostname, port: value("port")?.parse().ok()? })
}
