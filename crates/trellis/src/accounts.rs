//! The accounts of production: ssh tells who they are, and their homes are made here.

use crate::agents;
use crate::login::Way;
use crate::root::Accounts;
use crate::scl::Account;
use home::posix::{Posix, PosixHome};
use home::remote::{Connector, by_ssh};
use home::ssh::SshTarget;
use home::{AgentBinaries, Home, HomePath, Result};
use std::sync::{Arc, OnceLock};

/// Reaches accounts by the user's own ssh.
pub struct Ssh {
    way: Way,
    /// The agents that we carry, made ready when the first home needs them.
    agents: OnceLock<AgentBinaries>,
}

impl Ssh {
    /// The way to all of them.
    pub fn new(way: Way) -> Ssh {
        Ssh { way, agents: OnceLock::new() }
    }

    /// What ssh is given for an account.
    pub fn target(&self, account: &Account) -> Result<SshTarget> {
        self.way.target(account)
    }
}

#[async_trait::async_trait]
impl Accounts for Ssh {
    async fn identity(&self, account: &Account) -> Result<String> {
        Ok(self.way.target(account)?.resolve().await?.to_string())
    }

    fn remote(&self, account: &Account) -> Result<Arc<dyn Connector>> {
        Ok(by_ssh(self.way.target(account)?, self.agents.get_or_init(agents::binaries).clone()))
    }

    fn local(&self, path: &HomePath) -> Result<Arc<dyn Home>> {
        let path = [b"/", path.as_bytes()].concat();
        Ok(Arc::new(PosixHome::new(Posix::open(&path)?)))
    }
}
