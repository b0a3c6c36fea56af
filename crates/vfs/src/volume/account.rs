//! Whether the account at the other end is the one whose changes are kept here. Its token tells; where somebody has removed
//! that, its place does, and else a person.

use super::{Volume, hello_key, save_record};
use crate::store::MetaStore;
use home::{Class, Error, ErrorKind, Hello, Result};
use oncrpc::xdr::Xdr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// An account that is not known to be the one whose changes are kept here.
#[derive(Debug, Clone, PartialEq)]
pub struct Stranger {
    /// Its token, by which a person's confirmation means it and nobody else.
    pub token: [u8; 16],
    /// What is the same and what differs, a line each, for a person.
    pub compared: Vec<String>,
}

impl Volume {
    /// Checks that the account is the one whose changes are kept here.
    pub fn recognise(&self, hello: &Hello) -> Result<()> {
        let unsent = self.tree.lock().queue.len() > 0;
        let in_place = self.hello.lock().as_ref().is_some_and(|known| known.is_in_the_same_place(hello));
        let mut record = self.record.lock();
        if record.token.is_some() && hello.class == Class::Sftp {
            self.home.expect(Class::Posix);
            let text = format!("{}: the agent ran there before, but cannot now", self.account);
            return Err(Error::new(ErrorKind::Unreachable, text));
        }
        let why = match (record.token, hello.token) {
            _ if in_place => None,
            (Some(known), Some(found)) if known != found && hello.token_is_new && unsent => Some(
                "its ~/.cache/trellis/token is missing while changes are unsent, so that it may be another account",
            ),
            (Some(known), Some(found)) if known != found && !hello.token_is_new => {
                Some("another account answers (its ~/.cache/trellis/token differs)")
            }
            _ => None,
        };
        if let Some(why) = why {
            let called = record.names.iter().map(|name| String::from_utf8_lossy(name.as_bytes()));
            let called = called.min_by_key(|name| name.len()).unwrap_or_else(|| self.account.as_str().into());
            let text = format!(
                "{}: {why}; nothing is sent there. If it is the account that it was: `trellis login --same-account {called}`",
                self.account
            );
            drop(record);
            *self.suspended.lock() = Some(text.clone());
            *self.stranger.lock() = Some(hello.clone());
            return Err(Error::new(ErrorKind::Setup, text));
        }
        if record.token != hello.token && hello.token.is_some() {
            record.token = hello.token;
            save_record(&self.shared, self.id, &record)?;
        }
        drop(record);
        *self.suspended.lock() = None;
        *self.stranger.lock() = None;
        Ok(())
    }

    /// The account may have got another token, and its machine may have been started again, since the home was greeted.
    pub async fn recognise_again(&self) -> Result<()> {
        let hello = self.home.attach().await?;
        if let Err(e) = self.recognise(&hello) {
            self.health.estranged.store(true, Ordering::Relaxed);
            return Err(e);
        }
        let is_news = self.hello.lock().as_ref().is_none_or(|known| known.place != hello.place);
        if is_news {
            self.is_greeted(&hello);
        }
        Ok(())
    }

    /// Who answers at a suspended home.
    pub fn stranger(&self) -> Option<Stranger> {
        let stranger = self.stranger.lock().clone()?;
        let token = stranger.token?;
        let known = self.hello.lock().clone();
        let known_token = self.record.lock().token;
        Some(Stranger { token, compared: compared(known.as_ref(), known_token, &stranger) })
    }

    /// Somebody says that the account with this token is the one whose changes are kept here. Fails if another one answers.
    pub async fn same_account(self: &Arc<Self>, token: [u8; 16]) -> Result<()> {
        if self.stranger().is_none_or(|stranger| stranger.token != token) {
            return Err(Error::new(ErrorKind::Stale, "another account answers by now: look again"));
        }
        {
            let mut record = self.record.lock();
            record.token = Some(token);
            save_record(&self.shared, self.id, &record)?;
        }
        self.home.retry_now();
        let done = self.greeted().await.map(drop);
        self.wake.notify_one();
        self.health.news.notify_one();
        done
    }
}

/// What a person needs to know to tell whether it is the same account.
fn compared(known: Option<&Hello>, known_token: Option<[u8; 16]>, found: &Hello) -> Vec<String> {
    let token = |token: Option<[u8; 16]>| {
        token.map_or("none".to_owned(), |t| t[..4].iter().map(|b| format!("{b:02x}")).collect())
    };
    let new = if found.token_is_new { ", made just now because there was none" } else { "" };
    let mut lines = vec![format!("token: {} before, {} now{new}", token(known_token), token(found.token))];
    let mut line = |what: &str, before: Option<String>, now: String| {
        lines.push(match before {
            Some(before) if before == now => format!("{what}: {now}, as before"),
            Some(before) => format!("{what}: {before} before, {now} now"),
            None => format!("{what}: {now} now, not known before"),
        });
    };
    line("user id", known.map(|h| h.uid.to_string()), found.uid.to_string());
    line("home directory", known.map(|h| h.home_dir.to_string()), found.home_dir.to_string());
    let boot = |hello: &Hello| String::from_utf8_lossy(&hello.boot_id).into_owned();
    line("machine since its start", known.map(boot), boot(found));
    lines
}

/// What an earlier process kept of the last greeting.
pub(super) fn kept_hello(store: &dyn MetaStore, id: u32) -> Result<Option<Hello>> {
    let Some(bytes) = store.get(&hello_key(id)).map_err(crate::inode::local)? else { return Ok(None) };
    // Earlier versions knew no place, which is the last field.
    let older = || Hello::from_bytes([&bytes[..], &None::<[u8; 16]>.to_bytes()[..]].concat().into());
    Ok(Hello::from_bytes(bytes.clone()).or_else(|_| older()).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemStore;
    use home::{HomePath, Time};

    fn hello() -> Hello {
        Hello {
            class: Class::Posix,
            stages: true,
            uid: 1000,
            gid: 1000,
            groups: vec![1000],
            home_dir: HomePath::root(),
            token: Some([1; 16]),
            token_is_new: false,
            boot_id: "one".into(),
            clock: Time::default(),
            place: Some([2; 16]),
        }
    }

    #[test]
    fn a_greeting_that_an_earlier_version_kept_is_read() {
        let store = MemStore::new();
        let bytes = hello().to_bytes();
        store.commit(vec![(hello_key(7), Some(bytes.to_vec()))]).unwrap();
        assert_eq!(kept_hello(&store, 7).unwrap(), Some(hello()));
        let older = bytes[..bytes.len() - 20].to_vec();
        store.commit(vec![(hello_key(7), Some(older))]).unwrap();
        assert_eq!(kept_hello(&store, 7).unwrap(), Some(Hello { place: None, ..hello() }));
    }

    #[test]
    fn what_differs_is_told() {
        let found = Hello { token: Some([9; 16]), token_is_new: true, uid: 1001, ..hello() };
        let lines = compared(Some(&hello()), hello().token, &found);
        assert_eq!(lines[0], "token: 01010101 before, 09090909 now, made just now because there was none");
        assert_eq!(lines[1], "user id: 1000 before, 1001 now");
        assert_eq!(lines[3], "machine since its start: one, as before");
        assert!(compared(None, None, &found)[1].contains("not known before"));
    }
}
