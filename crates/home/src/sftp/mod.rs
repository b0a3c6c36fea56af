//! A home reached by SFTP, where no program of ours can run. The weaker class, and it says so.
//!
//! SFTP names objects by path alone and tells neither inode, nor links, nor fractions of a second. Thus:
//! - An object is its path: [`HomeId`] is all zero, the link count is 1.
//! - A version is size and second, and while that second is hardly over ("racily clean") the second in which we look, so
//!   that what was read then is read again. Where the home's clock is not ours, a change of equal length within the same
//!   second goes unseen.
//! - A change checks the base version and then acts; what another program does between the two is lost. There
//!   is no exchange, and a write happens in place.
//! - What the account may do is derived from mode bits; access lists go unseen, and the server decides.
//!
//! # Layout
//! - [`wire`]: packets; [`link`]: requests and answers over one connection.
//! - [`wide`]: further channels for the bytes of files.
//! - [`look`]: attributes, listings, bytes; [`apply`]: changes; [`write`](mod@write): bytes; [`flight`]: new files, made together.
//! - [`recent`]: what is remembered, up to a bound.

mod apply;
mod flight;
mod link;
mod look;
mod pace;
mod wide;
mod wire;
mod write;

use crate::limits::remote::SFTP_FILES;
use crate::recent::Recent;
use crate::remote::{Connection, Meter};
use crate::ssh::SshTarget;
use crate::{Changed, Result, Seen, StatFs, Status, Time, Watched};
use crate::{
    Chunk, Claimed, Class, Error, ErrorKind, Hello, Home, HomePath, Loc, Name, OpId, Outcome, Page, Placed,
    Version,
};
use bytes::Bytes;
use link::Link;
use look::Listings;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use wide::Wide;
use wire::Ask;

/// The uid of an account that could not be learned.
const NOBODY: u32 = 65534;

/// One SFTP connection.
pub struct Session {
    /// The first channel: everything that has an order goes over it.
    link: Arc<Link>,
    wide: Wide,
    account: Account,
    weaker: Vec<String>,
    listings: Mutex<Listings>,
    /// Paths that have led to files, so that they may be opened.
    files: Mutex<Recent<HomePath, ()>>,
    /// That of the memory.
    left: Arc<Mutex<Recent<HomePath, Version>>>,
    /// Held while operations run, and what is remembered of them.
    memo: tokio::sync::Mutex<apply::Memo>,
}

/// Who we are there, as far as SFTP lets us know.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Account {
    /// `None` where only the server knows.
    ids: Option<(u32, u32)>,
    home_dir: HomePath,
}

impl Session {
    /// Logs in and greets. `why` says why it is not an agent. [`ErrorKind::Unsupported`] where the account has no
    /// SFTP either. `over`: further channels go over this connection that there is then. Another login might lead to
    /// another machine, which SFTP would not tell.
    pub(crate) async fn start(
        target: &SshTarget,
        why: &str,
        meter: Arc<Meter>,
        over: Option<SshTarget>,
    ) -> Result<Session> {
        let link = Arc::new(Link::open(target, meter).await?);
        let account = learn_account(&link).await?;
        let weaker = weaknesses(&link.can, why);
        let memo = apply::Memo::default();
        Ok(Session {
            wide: Wide::new(link.clone(), over),
            link,
            account,
            weaker,
            listings: Mutex::default(),
            files: Mutex::new(Recent::new(SFTP_FILES)),
            left: memo.left.clone(),
            memo: memo.into(),
        })
    }
}

/// The owner of the directory that a login begins in. A directory `/` of root's is a locked-up tree, and
/// tells nothing of the account.
async fn learn_account(link: &Link) -> Result<Account> {
    let home = link.name(Ask::Realpath, b".").await?;
    let home_dir = HomePath::parse(&home)?;
    let attrs = link.attrs(Ask::Lstat, &home).await.unwrap_or_default();
    let ids = attrs.ids.filter(|(uid, _)| *uid != 0 || !home_dir.is_root());
    Ok(Account { ids, home_dir })
}

fn weaknesses(can: &link::Can, why: &str) -> Vec<String> {
    let mut weaker = vec![
        format!("SFTP instead of the agent: {why}"),
        "a change at the home that keeps length and second of a file may be missed where its clock is not ours, or a \
         program sets times"
            .to_owned(),
        "a change made at the home in the moment of our own to the same file is overwritten".to_owned(),
        "hard links are not recognised, and times are kept to the second".to_owned(),
        "extended attributes are not passed on".to_owned(),
    ];
    let mut lacks = |has: bool, text: &str| {
        if !has {
            weaker.push(text.to_owned());
        }
    };
    lacks(can.fsync, "the server cannot be told to make files durable (no fsync@openssh.com)");
    lacks(can.posix_rename, "replacing a file by renaming is not atomic (no posix-rename@openssh.com)");
    lacks(can.hardlink, "hard links cannot be made (no hardlink@openssh.com)");
    lacks(can.limits, "new files are made one after the other (not OpenSSH's server, or one before 8.5)");
    lacks(can.statvfs, "free space is not known (no statvfs@openssh.com)");
    weaker
}

/// The path as the server takes it.
fn absolute(path: &HomePath) -> Vec<u8> {
    [b"/", path.as_bytes()].concat()
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Time { sec: since.as_secs() as i64, nsec: since.subsec_nanos() }
}

#[async_trait::async_trait]
impl Connection for Session {
    async fn ended(&self) -> Error {
        self.link.life().ended().await
    }
}

#[async_trait::async_trait]
impl Home for Session {
    fn status(&self) -> Status {
        let life = self.link.life();
        life.meter.status(life.link(), Some(Class::Sftp), self.weaker.clone())
    }

    /// The clock is our own: SFTP does not tell the home's.
    async fn attach(&self) -> Result<Hello> {
        if let Some(why) = self.link.life().over() {
            return Err(why);
        }
        let (uid, gid) = self.account.ids.unwrap_or((NOBODY, NOBODY));
        Ok(Hello {
            class: Class::Sftp,
            stages: false,
            uid,
            gid,
            groups: vec![gid],
            home_dir: self.account.home_dir.clone(),
            token: None,
            token_is_new: false,
            boot_id: Bytes::new(),
            clock: now(),
            place: None,
        })
    }

    async fn stat(&self, at: &Loc) -> Result<Seen> {
        Ok(Seen { applied: 0, attr: self.attr(at).await? })
    }

    async fn look(&self, dir: &Loc, name: &Name) -> Result<(Seen, Result<Seen>)> {
        let (above, there) = self.look_below(dir, name).await?;
        let seen = |attr| Seen { applied: 0, attr };
        Ok((seen(above), there.map(seen)))
    }

    async fn list(&self, dir: &Loc, after: Option<&Name>, max: u32) -> Result<Page> {
        self.page(dir, after, max).await
    }

    async fn watch(&self, dir: &Loc, max: u32, _: u64) -> Result<Watched> {
        Ok(Watched::not(self.list(dir, None, max).await?))
    }

    async fn changes(&self) -> Vec<Changed> {
        std::future::pending().await
    }

    fn epoch(&self) -> Option<u64> {
        None
    }

    async fn read(&self, file: &Loc, at: u64, len: u32) -> Result<Chunk> {
        self.bytes(file, at, len).await
    }

    async fn readlink(&self, at: &Loc) -> Result<Bytes> {
        self.target(at).await
    }

    async fn statfs(&self, at: &Loc) -> Result<StatFs> {
        self.space(at).await
    }

    async fn stage(&self, _: OpId, _: u64, _: Bytes) -> Result<()> {
        Err(Error::new(ErrorKind::Unsupported, "an SFTP home holds no staged data"))
    }

    async fn claim(&self, _: u64, _: u32, _: Vec<u64>) -> Result<Option<Claimed>> {
        Ok(None)
    }

    async fn apply(&self, ops: Vec<Placed>) -> Result<Vec<Outcome>> {
        let mut memo = self.memo.lock().await;
        let mut outcomes = Vec::new();
        let mut broken = false;
        while let Some(placed) = ops.get(outcomes.len()) {
            if !broken {
                let flown = self.make_together(&mut memo, &ops[outcomes.len()..]).await?;
                broken = flown.broken;
                if !flown.outcomes.is_empty() {
                    outcomes.extend(flown.outcomes);
                    continue;
                }
            }
            let outcome = self.execute(&mut memo, placed).await?;
            let stop = !matches!(outcome, Outcome::Done(_));
            outcomes.push(outcome);
            if stop {
                break;
            }
        }
        Ok(outcomes)
    }
}
