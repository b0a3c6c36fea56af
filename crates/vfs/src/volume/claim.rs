//! Takes over the changes of the volume at its home, as the newest state of this directory. A home that has heard of
//! a later one refuses: then nothing is sent by this process any more.

use super::Volume;
use crate::env::Env;
use crate::inode::local;
use crate::journal::Terms;
use home::{Claimed, Entered, Error, ErrorKind, Result, Term};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a volume brings to its claims.
pub(super) struct Claims {
    /// The words of the earlier ones.
    terms: Arc<Terms>,
    /// The last number under which something may have been sent.
    sent_last: AtomicU64,
    /// Why nothing is sent any more, if so.
    superseded: Mutex<Option<String>>,
}

impl Claims {
    /// Those of an earlier process. What that accepted it may have sent.
    pub fn open(env: &Env, id: u32) -> Result<Claims> {
        let terms = Arc::new(Terms::open(env, id).map_err(local)?);
        Ok(Claims { terms, sent_last: AtomicU64::default(), superseded: Mutex::default() })
    }

    /// Operations with numbers up to this one are about to be sent, or may have been.
    pub fn sends_up_to(&self, last: u64) {
        self.sent_last.fetch_max(last, Ordering::Relaxed);
    }
}

impl Volume {
    /// Claims the volume; see [`home::Home::claim_in`].
    pub async fn claim(&self, lost: Vec<u64>) -> Result<Option<Claimed>> {
        if let Some(why) = self.superseded() {
            return Err(Error::new(ErrorKind::Superseded, why));
        }
        let (terms, env) = (self.claims.terms.clone(), self.env.clone());
        let term = self.env.lend(move || terms.next(&env)).await;
        let term = term.map_err(|e| Error::new(ErrorKind::Io, e.to_string()))?.map_err(local)?;
        if !self.connects() {
            // It was made so meanwhile.
            return Err(self.offline());
        }
        let (gateway, next) = (self.shared.gateway, self.claims.sent_last.load(Ordering::Relaxed) + 1);
        let Some((known, new)) = term else {
            return self.home.claim(gateway, self.id, lost).await;
        };
        match self.home.claim_in(gateway, self.id, lost, Term { known, new, next }).await {
            Ok(Entered { kept, known }) => {
                if kept {
                    self.claims.terms.is_kept();
                }
                Ok(known)
            }
            Err(e) if e.kind == ErrorKind::Superseded => Err(Error::new(e.kind, self.supersede())),
            Err(e) => Err(e),
        }
    }

    /// Operations with numbers up to this one are about to be sent.
    pub fn sends_up_to(&self, last: u64) {
        self.claims.sends_up_to(last);
    }

    /// Why nothing is sent by this process any more, if the home has heard of a later state of the directory.
    pub fn superseded(&self) -> Option<String> {
        self.claims.superseded.lock().clone()
    }

    /// Whether the home has heard of a later state of the directory.
    pub fn is_superseded(&self) -> bool {
        self.claims.superseded.lock().is_some()
    }

    /// Why nothing is sent to the home, if so.
    pub fn suspension(&self) -> Option<String> {
        self.superseded().or_else(|| self.suspended.lock().clone())
    }

    /// Nothing is sent from now on, and nothing accepted that could not be: its number may be another operation's at the home.
    fn supersede(&self) -> String {
        let text = format!(
            "{}: its home has later changes of this state directory than the directory itself: it is a copy, was put back to an \
             earlier state, or lost its `journal/`. Nothing of it is sent, and nothing can be changed here; what is unsent can still \
             be read. Copy elsewhere what is wanted of that, stop the server, and start it with the newest copy of the \
             directory, or with an empty one",
            self.account
        );
        tracing::error!("{text}");
        *self.claims.superseded.lock() = Some(text.clone());
        {
            // What became of it will not be heard, and nobody waits for that.
            let queue = &mut self.tree.lock().queue;
            queue.begin([]);
            queue.looked_for();
        }
        self.outcomes.send_modify(|n| *n += 1);
        text
    }
}
