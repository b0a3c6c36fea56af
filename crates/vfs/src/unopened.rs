//! Volumes that this process could not open: their local state is damaged, of a later program or without room, or no name
//! leads to their account any more. What is unsent of them stays where it is; whoever asks whether everything is at its home hears of it, and
//! they are tried again.

use crate::config::{Mount, Unsent};
use crate::volume::{VolumeRecord, known_volumes};
use crate::{Vfs, journal, limits};
use home::{Error, ErrorKind, Name, Result};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Volumes with unsent changes by number, each with why it could not be opened.
pub(crate) type Unopened = Mutex<BTreeMap<u32, Reason>>;

/// Why a volume could not be opened.
#[derive(Debug, Clone)]
pub(crate) struct Reason {
    account: String,
    names: Vec<Name>,
    why: Error,
    /// Operations that its home does not have yet, at least one; `None` where the journal cannot tell.
    ops: Option<u64>,
}

impl Reason {
    /// The reason with what it means, for a person.
    fn text(&self) -> String {
        let many = self.ops.map_or_else(String::new, |ops| format!(" ({ops})"));
        format!("{}; its unsent changes{many} stay in the state directory", self.why.detail)
    }
}

impl Vfs {
    /// Opens all volumes that earlier processes knew and this one has not opened yet.
    pub(crate) async fn reopen_known(&self) -> Result<()> {
        // Before the accounts: a lane is made after its account is known.
        let lanes = journal::volumes(&self.shared.env);
        let known = known_volumes(&*self.shared.store)?;
        for (id, record) in &known {
            let is_open = self.volumes.read().contains_key(id);
            if !is_open && let Err(why) = self.reopen(record).await {
                self.could_not_open(*id, record, why).await;
            }
        }
        for id in lanes.into_iter().filter(|lane| known.iter().all(|(id, _)| id != lane)) {
            self.is_stray(id).await;
        }
        Ok(())
    }

    /// Tries again those that could not be opened, until all are or the engine is gone.
    pub(crate) fn go_on_opening(&self) {
        let this = self.this.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(limits::REOPEN).await;
                let Some(vfs) = this.upgrade() else { return };
                if vfs.unopened.lock().is_empty() || vfs.is_closed() {
                    return;
                }
                vfs.reopen_known().await.unwrap_or_else(|e| tracing::error!("volumes cannot be opened: {e}"));
            }
        });
    }

    /// Opens a volume by the first of its names that still leads to its account, else by the first that leads anywhere: ssh
    /// may spell the account otherwise now, and its token tells whether it is the same. Without a token nothing could tell.
    async fn reopen(&self, record: &VolumeRecord) -> Result<()> {
        let (mut other, mut why) = (None, None);
        for name in &record.names {
            let mount = match self.namespace.resolve(name).await {
                Ok(mount) => mount,
                Err(e) => {
                    why.get_or_insert(e);
                    continue;
                }
            };
            if mount.account.as_bytes() == &record.account[..] {
                return self.open_volume(mount).await.map(drop);
            }
            other = other.or(Some(mount));
        }
        if let Some(mount) = other.filter(|_| record.token.is_some()) {
            let account = account_of(record);
            return self.open_volume(Mount { account, ..mount }).await.map(drop);
        }
        let text = format!("no name leads to {} any more", account_of(record));
        let text = why.map_or_else(|| text.clone(), |why| format!("{text}: {}", why.detail));
        let help = "put back what `ssh` and the server's --hosts or configuration knew of it";
        Err(Error::new(ErrorKind::UnknownHost, format!("{text}; {help}")))
    }

    async fn could_not_open(&self, id: u32, record: &VolumeRecord, why: Error) {
        let (account, names) = (account_of(record), record.names.clone());
        self.not_reached(&record.account, &names, &why);
        self.keep_back(id, Reason { account, names, why, ops: self.unsent_of(id).await });
    }

    /// The journal of a volume that the store does not know: it was lost.
    async fn is_stray(&self, id: u32) {
        let account = format!("journal/{id:08x}");
        let detail = format!("whose changes {account} holds is lost; put back meta/ of the state directory");
        let why = Error::new(ErrorKind::Io, detail);
        let names = Name::new(format!("{id:08x}").as_bytes()).into_iter().collect();
        self.keep_back(id, Reason { account, names, why, ops: self.unsent_of(id).await });
    }

    /// How many changes of a volume are unsent. Nobody adds any while it is not open.
    async fn unsent_of(&self, id: u32) -> Option<u64> {
        let known = self.unopened.lock().get(&id).and_then(|reason| reason.ops);
        if known.is_some() {
            return known;
        }
        let env = self.shared.env.clone();
        self.shared.env.lend(move || journal::unsent(&env, id).ok()).await.ok().flatten()
    }

    fn keep_back(&self, id: u32, reason: Reason) {
        let mut unopened = self.unopened.lock();
        // Somebody may have opened it by another name meanwhile, and takes it out of here after that.
        let is_open = self.volumes.read().contains_key(&id);
        if is_open || reason.ops == Some(0) {
            return;
        }
        let text = reason.text();
        if unopened.get(&id).is_none_or(|before| before.text() != text) {
            tracing::error!(volume = id, account = reason.account, "not served: {text}");
        }
        unopened.insert(id, reason);
    }

    /// What is unsent in volumes that could not be opened, or in one of them: nobody is waited for.
    pub fn kept_back(&self, volume: Option<u32>) -> Vec<Unsent> {
        let unopened = self.unopened.lock();
        let wanted = unopened.iter().filter(|(id, _)| volume.is_none_or(|v| v == **id));
        let unsent = |(id, r): (&u32, &Reason)| Unsent {
            volume: *id,
            account: r.account.clone(),
            ops: r.ops.unwrap_or_default(),
            bytes: 0,
            why: r.text(),
            may_pass: false,
        };
        wanted.map(unsent).collect()
    }

    /// The same for a status: names, with the reason.
    pub(crate) fn kept_back_names(&self) -> Vec<(Vec<Name>, Error)> {
        let unopened = self.unopened.lock();
        unopened.values().map(|r| (r.names.clone(), Error::new(r.why.kind, r.text()))).collect()
    }
}

fn account_of(record: &VolumeRecord) -> String {
    String::from_utf8_lossy(&record.account).into_owned()
}
