//! Logins that ask questions: one place where a person answers, and what is left of it for the server.
//!
//! `trellis login HOST` runs the user's own ssh on the user's terminal and leaves a master connection; the server's
//! connections go through its socket. Nothing of the answers is kept.
//!
//! - [`Way`]: how an account is reached by ssh: what server and commands have to agree on.
//! - [`Logins`]: which account a HOST means.
//! - [`folder`]: where the sockets of our own masters are.
//! - [`record`]: what a login leaves in the state directory for people to see.
//! - [`watch`]: what ends when: certificates, tickets, masters.

pub mod folder;
pub mod record;
pub mod watch;

use crate::config::HomeEntry;
use crate::scl::{Account, RootName, Target};
use crate::show;
use crate::state::StateDir;
use home::ssh::SshTarget;
use home::{Error, ErrorKind, Result};
use std::path::PathBuf;

/// How accounts are reached by ssh.
#[derive(Debug, Clone, Default)]
pub struct Way {
    /// Configuration for `ssh -F`, if not the user's own.
    pub ssh_config: Option<PathBuf>,
    /// Where the sockets of our masters are, if there is such a place.
    pub masters: Option<PathBuf>,
    /// The state directory, if it is not the usual one: commands that a person is told must name it.
    pub state: Option<PathBuf>,
}

impl Way {
    /// With the masters that belong to a state directory.
    pub fn new(ssh_config: Option<PathBuf>, state: Option<&StateDir>) -> Way {
        let masters = state.and_then(|state| match folder::of(state) {
            Ok(folder) => Some(folder),
            Err(why) => {
                tracing::warn!("no logins of `trellis login` can be used: {why}");
                None
            }
        });
        let state = state.filter(|s| !s.is_usual()).map(|s| s.path().to_owned());
        Way { ssh_config, masters, state }
    }

    /// What ssh is given for an account.
    pub fn target(&self, account: &Account) -> Result<SshTarget> {
        let mut login = vec!["trellis".to_owned(), "login".to_owned()];
        if let Some(state) = &self.state {
            login.extend(["--state".to_owned(), show::path_word(state)]);
        }
        Ok(SshTarget::new(account.user.as_deref(), &account.host)?
            .with_config(self.ssh_config.clone())
            .with_masters(self.masters.clone())
            .with_login_words(login))
    }

    /// The command that a person types to log in to what a name of the root directory stands for.
    pub fn command(&self, name: &str) -> String {
        let state = self.state.as_ref().map(|s| format!("--state {} ", show::path_word(s)));
        format!("trellis login {}{}", state.unwrap_or_default(), show::word(name.as_bytes()))
    }
}

/// Which account a HOST means.
#[derive(Debug, Clone)]
pub struct Logins {
    /// Configured homes, whose names go first.
    pub homes: Vec<HomeEntry>,
    /// How accounts are reached.
    pub way: Way,
}

impl Logins {
    /// The account behind a name as in the tree: a configured home, `[user@]host`, `scp:[user@]host:`.
    pub fn account(&self, name: &str) -> Result<Account> {
        let name = name.trim_matches('/');
        let configured = self.homes.iter().find(|h| h.name.as_bytes() == name.as_bytes());
        match configured.map(|h| &h.scl) {
            Some(Target::Remote(account, _)) => return Ok(account.clone()),
            Some(Target::Local(_)) => {
                let text = format!("{name} is a directory of this machine, which needs no login");
                return Err(Error::new(ErrorKind::Invalid, text));
            }
            None => {}
        }
        RootName::parse(name.as_bytes()).map(|n| n.account).ok_or_else(|| {
            let shown = crate::show::text(name.as_bytes());
            let text =
                format!("{shown}: write [user@]host, scp:[user@]host: or the name of a configured home");
            Error::new(ErrorKind::Invalid, text)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_named_as_in_the_tree() {
        let file = "[[home]]\nname = \"lab\"\nscl = \"scp:ann@far.example:/data\"\n\
                    [[home]]\nname = \"here\"\nscl = \"local:/srv\"\n";
        let homes = crate::config::parse(file).unwrap().home;
        let logins = Logins { homes, way: Way::default() };
        let account = |name: &str| logins.account(name).map(|a| a.to_string());
        assert_eq!(account("lab").unwrap(), "ann@far.example");
        for (name, means) in [
            ("ann@lab", "ann@lab"),
            ("/ann@lab", "ann@lab"),
            ("scp:ann@lab:", "ann@lab"),
            ("bare", "bare"),
            ("ann@[2001:db8::1]", "ann@[2001:db8::1]"),
        ] {
            assert_eq!(account(name).unwrap(), means);
        }
        assert!(account("here").unwrap_err().detail.contains("needs no login"));
        for bad in ["", "-oProxyCommand=x", "a b", "ann@lab:/x", "a/b"] {
            assert_eq!(account(bad).unwrap_err().kind, ErrorKind::Invalid, "{bad}");
        }
    }

    #[test]
    fn the_command_can_be_pasted() {
        let way = Way { state: Some("/tmp/my state".into()), ..Way::default() };
        assert_eq!(way.command("ann@lab"), "trellis login --state '/tmp/my state' ann@lab");
        assert_eq!(Way::default().command("[::1]"), "trellis login '[::1]'");
        let account = Account { user: Some("ann".into()), host: "lab".into() };
        assert_eq!(way.target(&account).unwrap().login_command(), way.command("ann@lab"));
    }
}
