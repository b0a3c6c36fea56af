//! A request from its caller to its line, and the answer back.

use super::super::frame::Class;
use super::super::verbs::{CLAIMS, CheckedStage, ClaimArgs, ClaimtArgs, Reply, Request, TERMS};
use super::table::Waiter;
use super::{Session, Shared, closed, unexpected};
use crate::limits::agent::{BODY_MAX, LISTING};
use crate::{Entered, Error, ErrorKind, Result, Term, Turn};
use bytes::Bytes;
use oncrpc::xdr::{Writer, Xdr};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

impl Shared {
    pub async fn call_as(&self, class: Class, turn: Turn, request: Request) -> Result<Reply> {
        let (body, weight, room) = self.prepared(class, &request).await?;
        let (sender, receiver) = oneshot::channel();
        let id = self.push((class, turn), body, weight, Waiter::One(sender))?;
        let guard = CallGuard { shared: self, id, change: is_change(&request) };
        let reply = receiver.await.unwrap_or_else(|_| Err(closed()));
        std::mem::forget(guard);
        // Held until the answer is there: the bound covers requests on their way, too.
        drop(room);
        match reply? {
            Reply::Failed(failure) => Err(failure.0),
            reply => Ok(reply),
        }
    }

    /// A request as it goes, the bytes that it makes the pipe carry, and the room that it takes up.
    pub async fn prepared(
        &self,
        class: Class,
        request: &Request,
    ) -> Result<(Vec<Bytes>, usize, OwnedSemaphorePermit)> {
        let mut w = Writer::new();
        request.encode(&mut w);
        let size = w.len();
        // Bytes that the pipe carries one way or the other. Changes are short, and their time is that of a disk.
        let weight = match request {
            Request::Read(args) | Request::Readc(args) => args.len as usize,
            Request::Stage(args) | Request::Stagec(CheckedStage { stage: args, .. }) => args.data.len(),
            // Most of them need not go.
            Request::Readk(args) => args.read.len as usize / 8,
            // Names and attributes are packed, where the window counts.
            Request::Walk(args) => args.bytes as usize / 8,
            // A listing is short, but many together are not.
            Request::Watch(_) | Request::Listx(_) | Request::List(_) if class == Class::Bulk => LISTING,
            _ => 0,
        };
        if size > BODY_MAX {
            return Err(Error::new(ErrorKind::Invalid, "the request is longer than a frame; stage its data"));
        }
        let room = self.room[usize::from(is_change(request))].clone();
        let room = room.acquire_many_owned(size as u32).await.map_err(|_| closed())?;
        Ok((w.into_segments(), weight, room))
    }
}

impl Session {
    /// Claims a volume, and in a term where the agent knows what that is.
    pub(super) async fn claim_with(&self, claim: ClaimArgs, term: Option<Term>) -> Result<Entered> {
        if self.accept.features & CLAIMS == 0 {
            return Ok(Entered { kept: false, known: None });
        }
        let request = match term.filter(|_| self.accept.features & TERMS != 0) {
            Some(term) => Request::Claimt(ClaimtArgs { claim, term }),
            None => Request::Claim(claim),
        };
        match self.call(Class::Data, request).await? {
            Reply::Claim(known) => Ok(Entered { kept: false, known }),
            Reply::Claimt(entered) => Ok(entered),
            other => Err(unexpected(&other)),
        }
    }
}

pub(super) fn is_change(request: &Request) -> bool {
    let staging = matches!(request, Request::Stage(_) | Request::Stagec(_) | Request::Copy(_));
    let claiming = matches!(request, Request::Claim(_) | Request::Claimt(_));
    staging || claiming || matches!(request, Request::Apply(_) | Request::Applyc(_))
}

/// Takes the request back when its caller goes away.
pub(super) struct CallGuard<'a> {
    pub shared: &'a Shared,
    pub id: u64,
    pub change: bool,
}

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        if self.shared.table.lock().abandon(self.id, !self.change) {
            self.shared.work.notify_one();
        }
    }
}
