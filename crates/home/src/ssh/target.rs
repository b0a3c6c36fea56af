//! Where to connect: what `ssh` is given, and which account that turns out to be.

use super::{Facts, ask_locally};
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
    /// The folder of the masters that `trellis login` leaves for hosts without a ControlPath of the user's own.
    pub(super) masters: Option<PathBuf>,
    /// What `trellis login` needs besides the host: its own words and options.
    pub(super) login: Vec<String>,
    /// Which master a connection goes over.
    pub(super) control: Control,
    /// See [`Facts::ciphers`].
    pub(super) ciphers: Option<&'static str>,
}

/// Which master connection an `ssh` uses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub enum Control {
    /// What ssh's configuration says.
    #[default]
    AsConfigured,
    /// The one at this socket.
    Over(PathBuf),
    /// None, whatever the configuration says.
    Alone,
    /// It is one itself, at this socket, as long as it lives.
    Leads(PathBuf),
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
    /// The way there, where it is not straight: behind two gates the same name and address can be two machines.
    pub via: Option<String>,
}

/// What stands between place and way where an account is written.
pub const VIA: &str = " via ";

impl fmt::Display for Account {
    /// `user@hostname:port`, and ` via WAY` where there is one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}:{}", self.user, self.hostname, self.port)?;
        self.via.iter().try_for_each(|via| write!(f, "{VIA}{via}"))
    }
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
        Ok(SshTarget {
            user,
            host: host.into(),
            port: None,
            config: None,
            program: "ssh".into(),
            masters: None,
            login: vec!["trellis".into(), "login".into()],
            control: Control::AsConfigured,
            ciphers: None,
        })
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

    /// Uses the masters in this folder where the configuration names no ControlPath.
    pub fn with_masters(self, folder: Option<PathBuf>) -> SshTarget {
        SshTarget { masters: folder, ..self }
    }

    /// Uses this master.
    pub fn with_control(self, control: Control) -> SshTarget {
        SshTarget { control, ..self }
    }

    /// Prefers ciphers as [`Facts::ciphers`] says.
    pub(super) fn with_ciphers(self, ciphers: Option<&'static str>) -> SshTarget {
        SshTarget { ciphers, ..self }
    }

    /// The words of the command that answers questions, as a person types them, without the host.
    pub fn with_login_words(self, login: Vec<String>) -> SshTarget {
        SshTarget { login, ..self }
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
        Ok(self.facts().await?.account)
    }

    /// Asks `ssh -G` what its configuration says of this host. Connects nowhere.
    pub async fn facts(&self) -> Result<Facts> {
        let text = ask_locally(self, "-G").await?;
        Facts::parse(&text).ok_or_else(|| {
            Error::new(
                ErrorKind::Setup,
                format!("ssh -G {} does not tell user, host name and port", self.host),
            )
        })
    }

    pub(super) fn add_control(&self, command: &mut Command) {
        let (path, leads) = match &self.control {
            Control::AsConfigured => return,
            Control::Over(path) => (path.as_os_str().to_owned(), "no"),
            Control::Alone => ("none".into(), "no"),
            Control::Leads(path) => (path.as_os_str().to_owned(), "yes"),
        };
        let mut option = std::ffi::OsString::from("ControlPath=");
        option.push(path);
        command.arg("-o").arg(option).args(["-o", &format!("ControlMaster={leads}")]);
        command.args(["-o", "ControlPersist=no"]);
    }

    pub(super) fn add_ciphers(&self, command: &mut Command) {
        if let Some(ciphers) = self.ciphers {
            command.args(["-o", &format!("Ciphers={ciphers}")]);
        }
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
            words.push(format!("-F {}", super::shell_word(config.as_os_str().as_encoded_bytes())));
        }
        if let Some(port) = self.port {
            words.push(format!("-p {port}"));
        }
        words.push(super::shell_word(self.to_string().as_bytes()));
        words.join(" ")
    }
}

impl SshTarget {
    /// The command that answers the questions of a login there.
    pub fn login_command(&self) -> String {
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        let user = self.user.as_ref().map(|u| format!("{u}@")).unwrap_or_default();
        format!("{} {}", self.login.join(" "), super::shell_word(format!("{user}{host}").as_bytes()))
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
