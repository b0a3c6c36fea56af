//! Who may connect, and whom a call speaks for.
//!
//! The one export is `/`. A client is an address: it is allowed by the most specific network of
//! [`ExportPolicy::allow`] that contains it. NFS's AUTH_SYS credentials are what the client says they are,
//! so a call must come from a source port below 1024, which only root can use there (RFC 1813 §8), unless
//! the policy waives that. Credentials are squashed here, once, before the engine sees them; attribute values of a
//! SETATTR never are.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;
use vfs::Cred;

/// User and group of whoever is nobody in particular.
pub const NOBODY: u32 = 65_534;
/// The first source port that needs no privilege.
const PRIVILEGED: u16 = 1024;

/// A network whose hosts may use the export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allow {
    addr: IpAddr,
    prefix: u8,
    read_only: bool,
}

/// What a client may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Nothing but NULL.
    None,
    /// No changes.
    ReadOnly,
    /// Everything that its users may.
    ReadWrite,
}

/// The rules for all clients. An empty `allow` allows nobody.
#[derive(Debug, Clone)]
pub struct ExportPolicy {
    /// The networks that may use the export; the most specific one that contains a client decides.
    pub allow: Vec<Allow>,
    /// Also serve calls from source ports that any user of a client may have.
    pub any_port: bool,
    /// Treat a client's root as the user that the server runs as, instead of nobody.
    pub no_root_squash: bool,
    /// The user that the server runs as.
    pub server_uid: u32,
    /// That user's primary group.
    pub server_gid: u32,
}

impl Allow {
    /// One host.
    pub fn host(addr: IpAddr, read_only: bool) -> Allow {
        let addr = addr.to_canonical();
        Allow { addr, prefix: width(addr), read_only }
    }

    /// This machine, by every address it has for itself.
    pub fn loopback() -> Vec<Allow> {
        vec![
            Allow { addr: Ipv4Addr::new(127, 0, 0, 0).into(), prefix: 8, read_only: false },
            Allow::host(Ipv6Addr::LOCALHOST.into(), false),
        ]
    }

    /// Whether the network has hosts beyond this machine.
    pub fn is_loopback(&self) -> bool {
        self.addr.is_loopback() && (self.addr.is_ipv6() || self.prefix >= 8)
    }

    fn contains(&self, client: IpAddr) -> bool {
        self.addr.is_ipv4() == client.is_ipv4() && masked(client, self.prefix) == self.addr
    }
}

impl FromStr for Allow {
    type Err = String;

    /// `ADDRESS[/PREFIX][:ro]`; an IPv6 address may stand in brackets.
    fn from_str(text: &str) -> Result<Allow, String> {
        let (net, read_only) = match text.strip_suffix(":ro") {
            Some(net) => (net, true),
            None => (text, false),
        };
        let (addr, prefix) = match net.split_once('/') {
            Some((addr, prefix)) => (addr, Some(prefix)),
            None => (net, None),
        };
        let bare = addr.strip_prefix('[').and_then(|a| a.strip_suffix(']')).unwrap_or(addr);
        let addr: IpAddr =
            bare.parse().map_err(|_| format!("{text}: {bare:?} is no IPv4 or IPv6 address"))?;
        let prefix = match prefix {
            None => width(addr),
            Some(p) => p.parse().ok().filter(|p| *p <= width(addr)).ok_or_else(|| {
                format!("{text}: the prefix length must be a number from 0 to {}", width(addr))
            })?,
        };
        let network = masked(addr, prefix);
        if network != addr {
            return Err(format!("{text}: bits are set beyond the prefix; write {network}/{prefix}"));
        }
        Ok(Allow { addr, prefix, read_only })
    }
}

impl fmt::Display for Allow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr, self.prefix)?;
        if self.read_only { f.write_str(":ro") } else { Ok(()) }
    }
}

impl ExportPolicy {
    /// For this machine alone, with root squashed and privileged ports required.
    pub fn local(server_uid: u32, server_gid: u32) -> ExportPolicy {
        ExportPolicy {
            allow: Allow::loopback(),
            any_port: false,
            no_root_squash: false,
            server_uid,
            server_gid,
        }
    }

    /// What the host at an address may do. Where two rules are equally specific, `ro` wins.
    pub fn access(&self, client: IpAddr) -> Access {
        let client = client.to_canonical();
        let rules = self.allow.iter().filter(|a| a.contains(client));
        match rules.max_by_key(|a| (a.prefix, a.read_only)) {
            None => Access::None,
            Some(Allow { read_only: true, .. }) => Access::ReadOnly,
            Some(_) => Access::ReadWrite,
        }
    }

    /// Whether credentials from this source port may be believed.
    pub fn trusts_port(&self, client: SocketAddr) -> bool {
        self.any_port || client.port() < PRIVILEGED
    }

    /// The server's own user.
    pub fn server(&self) -> Cred {
        Cred { uid: self.server_uid, gid: self.server_gid, groups: Vec::new() }
    }

    /// Whom AUTH_SYS credentials stand for after squashing. Root is nobody, or the server's user under
    /// `no_root_squash`; group 0 goes the same way.
    pub fn squash(&self, uid: u32, gid: u32, groups: &[u32]) -> Cred {
        let (root_uid, root_gid) =
            if self.no_root_squash { (self.server_uid, self.server_gid) } else { (NOBODY, NOBODY) };
        Cred {
            uid: if uid == 0 { root_uid } else { uid },
            gid: if gid == 0 { root_gid } else { gid },
            groups: groups.iter().copied().filter(|g| *g != 0).collect(),
        }
    }

    /// Whom AUTH_NONE stands for.
    pub fn nobody(&self) -> Cred {
        Cred { uid: NOBODY, gid: NOBODY, groups: Vec::new() }
    }
}

fn width(addr: IpAddr) -> u8 {
    if addr.is_ipv4() { 32 } else { 128 }
}

fn masked(addr: IpAddr, prefix: u8) -> IpAddr {
    match addr {
        IpAddr::V4(a) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix.min(32))).unwrap_or(0);
            Ipv4Addr::from_bits(a.to_bits() & mask).into()
        }
        IpAddr::V6(a) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix.min(128))).unwrap_or(0);
            Ipv6Addr::from_bits(a.to_bits() & mask).into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(allow: &[&str]) -> ExportPolicy {
        let allow = allow.iter().map(|a| a.parse().unwrap()).collect();
        ExportPolicy { allow, ..ExportPolicy::local(1000, 100) }
    }

    fn access(policy: &ExportPolicy, client: &str) -> Access {
        policy.access(client.parse().unwrap())
    }

    #[test]
    fn the_most_specific_network_decides() {
        let p = policy(&["10.0.0.0/8:ro", "10.1.0.0/16", "10.1.2.3:ro", "fd00::/8", "[fd00::7]:ro"]);
        assert_eq!(access(&p, "10.9.9.9"), Access::ReadOnly);
        assert_eq!(access(&p, "10.1.9.9"), Access::ReadWrite);
        assert_eq!(access(&p, "10.1.2.3"), Access::ReadOnly);
        assert_eq!(access(&p, "11.0.0.1"), Access::None);
        assert_eq!(access(&p, "::ffff:10.1.9.9"), Access::ReadWrite);
        assert_eq!(access(&p, "fd12::1"), Access::ReadWrite);
        assert_eq!(access(&p, "fd00::7"), Access::ReadOnly);
        assert_eq!(access(&p, "fe80::1"), Access::None);
        assert_eq!(access(&policy(&["10.0.0.0/8", "10.0.0.0/8:ro"]), "10.0.0.1"), Access::ReadOnly);
    }

    #[test]
    fn everything_and_nothing() {
        let all = policy(&["0.0.0.0/0", "::/0"]);
        assert_eq!(access(&all, "192.0.2.1"), Access::ReadWrite);
        assert_eq!(access(&all, "2001:db8::1"), Access::ReadWrite);
        assert_eq!(access(&policy(&["0.0.0.0/0"]), "2001:db8::1"), Access::None);
        assert_eq!(access(&policy(&[]), "127.0.0.1"), Access::None);
        let local = ExportPolicy::local(1000, 100);
        assert_eq!(access(&local, "127.9.9.9"), Access::ReadWrite);
        assert_eq!(access(&local, "::1"), Access::ReadWrite);
        assert_eq!(access(&local, "192.0.2.1"), Access::None);
    }

    #[test]
    fn rules_have_one_spelling_each_way() {
        for (text, shown) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("10.0.0.1:ro", "10.0.0.1/32:ro"),
            ("fd00::1:ro", "fd00::1/128:ro"),
            ("[fd00::]/8:ro", "fd00::/8:ro"),
        ] {
            assert_eq!(text.parse::<Allow>().unwrap().to_string(), shown);
        }
        for bad in ["", ":ro", "host", "10.0.0.0/33", "fd00::/129", "10.0.0.0/-1", "10.0.0.0/", "10.0.0.1/8"]
        {
            assert!(bad.parse::<Allow>().is_err(), "{bad:?}");
        }
        let hint = "10.0.0.1/8".parse::<Allow>().unwrap_err();
        assert!(hint.contains("write 10.0.0.0/8"), "{hint}");
    }

    #[test]
    fn loopback_rules_are_recognised() {
        assert!(Allow::loopback().iter().all(Allow::is_loopback));
        for wider in ["0.0.0.0/0", "::/0", "10.0.0.1", "fd00::1"] {
            assert!(!wider.parse::<Allow>().unwrap().is_loopback(), "{wider}");
        }
    }

    #[test]
    fn root_is_nobody_or_the_server() {
        let mut p = policy(&[]);
        let nobody = Cred { uid: NOBODY, gid: NOBODY, groups: vec![5] };
        assert_eq!(p.squash(0, 0, &[0, 5]), nobody);
        assert_eq!(p.squash(7, 8, &[9, 0]), Cred { uid: 7, gid: 8, groups: vec![9] });
        assert_eq!(p.nobody(), Cred { groups: vec![], ..nobody });
        p.no_root_squash = true;
        assert_eq!(p.squash(0, 0, &[0, 5]), Cred { uid: 1000, gid: 100, groups: vec![5] });
        assert_eq!(p.squash(7, 0, &[]), Cred { uid: 7, gid: 100, groups: vec![] });
    }

    #[test]
    fn only_privileged_ports_are_trusted() {
        let mut p = policy(&[]);
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        assert!(p.trusts_port(at(1023)));
        assert!(!p.trusts_port(at(1024)));
        p.any_port = true;
        assert!(p.trusts_port(at(1024)));
    }
}
