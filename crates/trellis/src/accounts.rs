//! The accounts of production: ssh tells who they are, and their homes are made here.

use crate::agents;
use crate::root::Accounts;
use crate::scl::Account;
use home::posix::{Posix, PosixHome};
use home::remote::{Connector, by_ssh};
use home::ssh::SshTarget;
use home::{AgentBinaries, Home, HomePath, Result};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// Reaches accounts by the user's own ssh.
pub struct Ssh {
    /// Configuration for `ssh -F`, if not the user's own.
    config: Option<PathBuf>,
    /// The agents that we carry, made ready when the first home needs them.
    agents: OnceLock<AgentBinaries>,
}

impl Ssh {
    /// With a configuration for `ssh -F`, if not the user's own.
    pub fn new(config: Option<PathBuf>) -> Ssh {
        Ssh { config, agents: OnceLock::new() }
    }

    /// What ssh is given for an account.
    pub fn target(&self, account: &Account) -> Result<SshTarget> {
        Ok(SshTarget::new(account.user.as_deref(), &account.host)?.with_config(self.config.clone()))
    }
}

#[async_trait::async_trait]
impl Accounts for Ssh {
    async fn identity(&self, account: &Account) -> Result<String> {
        let found = self.target(account)?.resolve().await?;
        Ok(format!("{}@{}:{}", found.user, found.hostname, found.port))
    }

    fn remote(&self, account: &Account) -> Result<Arc<dyn Connector>> {
        Ok(by_ssh(self.target(account)?, self.agents.get_or_init(agents::binaries).clone()))
    }

    fn local(&self, path: &HomePath) -> Result<Arc<dyn Home>> {
        let path = [b"/", path.as_bytes()].concat();
        Ok(Arc::new(PosixHome::new(Posix::open(&path)?)))
    }
}
