//! Call and reply headers (RFC 5531 section 9) and the credentials AUTH_NONE and AUTH_SYS.
//!
//! A call that cannot be executed is either answered with a [`Refusal`], or so broken that there is
//! nobody to answer ([`BadCall::Garbage`]) and the connection is to be closed.

use crate::limits::{AUTH_BODY_MAX, GIDS_MAX, MACHINE_NAME_MAX};
use crate::xdr::{Reader, Result, Writer, Xdr, XdrError};
use bytes::Bytes;

/// The only version of the RPC protocol.
pub const RPC_VERSION: u32 = 2;

/// Flavour number of AUTH_NONE.
pub const AUTH_NONE: u32 = 0;
/// Flavour number of AUTH_SYS.
pub const AUTH_SYS: u32 = 1;

const CALL: u32 = 0;
const REPLY: u32 = 1;
const ACCEPTED: u32 = 0;
const DENIED: u32 = 1;

/// Bytes of the header before the results of a successful call: xid, reply, accepted, an empty
/// verifier, success.
pub const REPLY_HEADER_LEN: usize = 24;

crate::xdr! {
    /// Why credentials were refused (`auth_stat`).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum AuthStat {
        /// Success; never sent in a refusal.
        Ok = 0,
        /// The credentials could not be understood.
        BadCred = 1,
        /// The client must begin a new session.
        RejectedCred = 2,
        /// The verifier could not be understood.
        BadVerf = 3,
        /// The verifier has expired or was replayed.
        RejectedVerf = 4,
        /// The flavour is not strong enough here.
        TooWeak = 5,
        /// The server's response verifier is bogus; only used inside a client.
        InvalidResp = 6,
        /// Some unknown reason.
        Failed = 7,
    }
}

/// Why a call was not executed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The program is not served here.
    #[error("the program is not available")]
    ProgUnavail,
    /// The program is served in other versions.
    #[error("the program is available in versions {low} to {high} only")]
    ProgMismatch {
        /// The lowest version.
        low: u32,
        /// The highest version.
        high: u32,
    },
    /// The program has no such procedure.
    #[error("the procedure is not available")]
    ProcUnavail,
    /// The arguments cannot be decoded.
    #[error("the arguments could not be decoded")]
    GarbageArgs,
    /// The server failed before the procedure could answer.
    #[error("the server had an internal error")]
    SystemErr,
    /// The RPC version is not 2.
    #[error("RPC is spoken in versions {low} to {high} only")]
    RpcMismatch {
        /// The lowest version.
        low: u32,
        /// The highest version.
        high: u32,
    },
    /// The credentials were refused.
    #[error("the credentials were refused: {0:?}")]
    AuthError(AuthStat),
}

impl From<XdrError> for Refusal {
    fn from(_: XdrError) -> Self {
        Refusal::GarbageArgs
    }
}

/// Supplementary groups of AUTH_SYS: at most 16, without an allocation.
#[derive(Clone, Copy, Default)]
pub struct Gids {
    len: u8,
    list: [u32; GIDS_MAX],
}

impl Gids {
    /// The groups, or `None` if there are more than 16.
    pub fn new(gids: &[u32]) -> Option<Self> {
        let mut out = Self::default();
        out.list.get_mut(..gids.len())?.copy_from_slice(gids);
        out.len = gids.len() as u8;
        Some(out)
    }
}

impl std::ops::Deref for Gids {
    type Target = [u32];
    fn deref(&self) -> &[u32] {
        &self.list[..usize::from(self.len)]
    }
}

impl PartialEq for Gids {
    fn eq(&self, other: &Self) -> bool {
        self[..] == other[..]
    }
}

impl Eq for Gids {}

impl std::fmt::Debug for Gids {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self[..].fmt(f)
    }
}

/// What AUTH_SYS says of the caller (RFC 5531 appendix A, `authsys_parms`). Nothing of it is proven.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AuthSys {
    /// An arbitrary number of the caller's.
    pub stamp: u32,
    /// The caller's machine, at most 255 bytes, of any content.
    pub machine: Bytes,
    /// The caller's effective uid.
    pub uid: u32,
    /// The caller's effective gid.
    pub gid: u32,
    /// Supplementary groups.
    pub gids: Gids,
}

impl Xdr for AuthSys {
    fn encode(&self, w: &mut Writer) {
        w.u32(self.stamp);
        w.opaque(&self.machine);
        w.u32(self.uid);
        w.u32(self.gid);
        w.array_of(&self.gids, |w, gid| w.u32(*gid));
    }

    fn decode(r: &mut Reader) -> Result<Self> {
        let (stamp, machine) = (r.u32()?, r.opaque(MACHINE_NAME_MAX)?);
        let (uid, gid, count) = (r.u32()?, r.u32()?, r.u32()? as usize);
        let mut gids = Gids::default();
        for slot in gids.list.get_mut(..count).ok_or(XdrError::OutOfRange)? {
            *slot = r.u32()?;
        }
        gids.len = count as u8;
        Ok(Self { stamp, machine, uid, gid, gids })
    }
}

/// Who a call says it comes from.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Credential {
    /// AUTH_NONE.
    #[default]
    None,
    /// AUTH_SYS.
    Sys(AuthSys),
    /// A flavour that is not understood. Only procedure 0 is executed with it.
    Other(u32),
}

impl Credential {
    /// AUTH_SYS with a uid, a gid and supplementary groups, of which the first 16 count.
    pub fn sys(uid: u32, gid: u32, gids: &[u32]) -> Self {
        let gids = Gids::new(&gids[..gids.len().min(GIDS_MAX)]).unwrap_or_default();
        Credential::Sys(AuthSys { uid, gid, gids, machine: Bytes::from_static(b"trellis"), stamp: 0 })
    }

    fn encode(&self, w: &mut Writer) {
        let (flavour, body) = match self {
            Credential::None => (AUTH_NONE, Bytes::new()),
            Credential::Sys(sys) => (AUTH_SYS, sys.to_bytes()),
            Credential::Other(flavour) => (*flavour, Bytes::new()),
        };
        w.u32(flavour);
        w.opaque(&body);
    }

    fn decode(r: &mut Reader) -> Result<Self> {
        let flavour = r.u32()?;
        let body = r.opaque(AUTH_BODY_MAX)?;
        Ok(match flavour {
            AUTH_NONE => Credential::None,
            AUTH_SYS => Credential::Sys(AuthSys::from_bytes(body)?),
            other => Credential::Other(other),
        })
    }
}

/// The header of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallHeader {
    /// Chosen by the client; the reply bears it too.
    pub xid: u32,
    /// Program.
    pub prog: u32,
    /// Version of the program.
    pub vers: u32,
    /// Procedure of the program.
    pub proc: u32,
    /// Who calls.
    pub cred: Credential,
}

/// What is wrong with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadCall {
    /// Not a call at all; close the connection.
    Garbage,
    /// To be answered with a refusal.
    Refused {
        /// The call's number.
        xid: u32,
        /// What to answer.
        refusal: Refusal,
    },
}

impl CallHeader {
    /// Appends the header, with an empty verifier.
    pub fn encode(&self, w: &mut Writer) {
        for word in [self.xid, CALL, RPC_VERSION, self.prog, self.vers, self.proc] {
            w.u32(word);
        }
        self.cred.encode(w);
        w.u32(AUTH_NONE);
        w.u32(0);
    }

    /// Reads a record; the reader that comes back stands at the arguments.
    pub fn decode(record: Bytes) -> std::result::Result<(Self, Reader), BadCall> {
        let mut r = Reader::new(record);
        let (xid, version) = call_start(&mut r).map_err(|_| BadCall::Garbage)?;
        let refused = |refusal| BadCall::Refused { xid, refusal };
        if version != RPC_VERSION {
            return Err(refused(Refusal::RpcMismatch { low: RPC_VERSION, high: RPC_VERSION }));
        }
        let [prog, vers, proc] = words(&mut r).map_err(|_| BadCall::Garbage)?;
        let cred = Credential::decode(&mut r).map_err(|_| refused(Refusal::AuthError(AuthStat::BadCred)))?;
        verifier(&mut r).map_err(|_| refused(Refusal::AuthError(AuthStat::BadVerf)))?;
        if matches!(cred, Credential::Other(_)) && proc != 0 {
            return Err(refused(Refusal::AuthError(AuthStat::TooWeak)));
        }
        Ok((Self { xid, prog, vers, proc, cred }, r))
    }
}

fn words<const N: usize>(r: &mut Reader) -> Result<[u32; N]> {
    let mut out = [0; N];
    for word in &mut out {
        *word = r.u32()?;
    }
    Ok(out)
}

fn call_start(r: &mut Reader) -> Result<(u32, u32)> {
    match words(r)? {
        [xid, CALL, version] => Ok((xid, version)),
        _ => Err(XdrError::OutOfRange),
    }
}

fn verifier(r: &mut Reader) -> Result<()> {
    r.u32()?;
    r.opaque(AUTH_BODY_MAX).map(drop)
}

/// Appends the header of a successful reply; the results follow.
pub fn encode_success(xid: u32, w: &mut Writer) {
    encode_accepted(xid, 0, w);
}

fn encode_accepted(xid: u32, stat: u32, w: &mut Writer) {
    let mut out = [0; REPLY_HEADER_LEN];
    for (at, word) in [(0, xid), (4, REPLY), (8, ACCEPTED), (12, AUTH_NONE), (16, 0), (20, stat)] {
        out[at..at + 4].copy_from_slice(&word.to_be_bytes());
    }
    w.raw(&out);
}

/// Appends the whole reply to a call that was not executed.
pub fn encode_refusal(xid: u32, refusal: &Refusal, w: &mut Writer) {
    let denied: &[u32] = match *refusal {
        Refusal::ProgUnavail => return encode_accepted(xid, 1, w),
        Refusal::ProgMismatch { low, high } => {
            encode_accepted(xid, 2, w);
            w.u32(low);
            return w.u32(high);
        }
        Refusal::ProcUnavail => return encode_accepted(xid, 3, w),
        Refusal::GarbageArgs => return encode_accepted(xid, 4, w),
        Refusal::SystemErr => return encode_accepted(xid, 5, w),
        Refusal::RpcMismatch { low, high } => &[0, low, high],
        Refusal::AuthError(stat) => &[1, stat as u32],
    };
    [xid, REPLY, DENIED].iter().chain(denied).for_each(|word| w.u32(*word));
}

/// Reads a reply: its xid, and either the results or why there are none.
pub fn decode_reply(record: Bytes) -> Result<(u32, std::result::Result<Reader, Refusal>)> {
    let mut r = Reader::new(record);
    let [xid, kind, status] = words(&mut r)?;
    let refusal = match (kind, status) {
        (REPLY, ACCEPTED) => {
            verifier(&mut r)?;
            match r.u32()? {
                0 => return Ok((xid, Ok(r))),
                1 => Refusal::ProgUnavail,
                2 => Refusal::ProgMismatch { low: r.u32()?, high: r.u32()? },
                3 => Refusal::ProcUnavail,
                4 => Refusal::GarbageArgs,
                5 => Refusal::SystemErr,
                _ => return Err(XdrError::OutOfRange),
            }
        }
        (REPLY, DENIED) => match r.u32()? {
            0 => Refusal::RpcMismatch { low: r.u32()?, high: r.u32()? },
            1 => Refusal::AuthError(AuthStat::decode(&mut r)?),
            _ => return Err(XdrError::OutOfRange),
        },
        _ => return Err(XdrError::OutOfRange),
    };
    Ok((xid, Err(refusal)))
}

#[cfg(test)]
mod tests;
