//! What ssh's own configuration says of a host (`ssh -G`): which account it is, and what a login there depends on.

use super::{Account, short_hash};
use std::path::PathBuf;
use std::time::Duration;

/// The parts of `ssh -G` (ssh_config(5)) that matter to us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The account.
    pub account: Account,
    /// The user's own socket for connection sharing, with its tokens expanded.
    pub control_path: Option<PathBuf>,
    /// How long the user's own masters live after their last use.
    pub control_persist: Persist,
    /// Certificates that are named (`CertificateFile`), and those that ssh looks for beside its keys.
    pub certificates: Vec<PathBuf>,
    /// The socket of the agent that ssh asks, if it asks one.
    pub agent: Option<PathBuf>,
    /// Whether Kerberos may log in.
    pub gssapi: bool,
    /// The hosts on the way, as `ProxyJump` names them.
    pub jump: Option<String>,
    /// Whether the configuration goes on with a host whose key has changed, or is not known.
    pub careless: bool,
    /// Whether the configuration refuses a host that is not known, without a question.
    pub strict: bool,
    /// Where ssh notes the keys of hosts.
    pub known_hosts: Vec<PathBuf>,
    /// The ciphers that are allowed, in another order than the configuration has them, where nobody chose one.
    pub ciphers: Option<&'static str>,
}

/// What OpenSSH allows where nothing is configured (ssh_config(5) `Ciphers`), to version 9 and from 10 on, and the same
/// with those first that processors have instructions for: long transfers then take a quarter less CPU time.
const CIPHERS: [(&str, &str); 2] = [
    (
        "chacha20-poly1305@openssh.com,aes128-ctr,aes192-ctr,aes256-ctr,aes128-gcm@openssh.com,aes256-gcm@openssh.com",
        "aes128-gcm@openssh.com,aes256-gcm@openssh.com,chacha20-poly1305@openssh.com,aes128-ctr,aes192-ctr,aes256-ctr",
    ),
    (
        "chacha20-poly1305@openssh.com,aes128-gcm@openssh.com,aes256-gcm@openssh.com,aes128-ctr,aes192-ctr,aes256-ctr",
        "aes128-gcm@openssh.com,aes256-gcm@openssh.com,chacha20-poly1305@openssh.com,aes128-ctr,aes192-ctr,aes256-ctr",
    ),
];

/// The order that suits a processor with instructions for AES; `None` where somebody chose ciphers.
fn quicker(configured: &str) -> Option<&'static str> {
    CIPHERS.iter().find(|(usual, _)| *usual == configured).map(|(_, quicker)| *quicker)
}

/// Whether this processor has instructions for AES and for what GCM adds to it.
fn has_aes() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("aes") && std::arch::is_x86_feature_detected!("pclmulqdq");
    #[cfg(target_arch = "aarch64")]
    return std::arch::is_aarch64_feature_detected!("aes")
        && std::arch::is_aarch64_feature_detected!("pmull");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    false
}

/// How long a master lives when nothing uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persist {
    /// It ends with the connection that began it.
    No,
    /// This long.
    For(Duration),
    /// Until it is told to end.
    Forever,
}

impl Facts {
    /// Parses the output of `ssh -G`: a line `keyword value` for each option. `None` without user, host name or port.
    pub fn parse(text: &str) -> Option<Facts> {
        let lines = || text.lines().filter_map(|l| l.split_once(' ')).map(|(k, v)| (k, v.trim()));
        let all = |key: &'static str| lines().filter(move |(k, _)| *k == key).map(|(_, v)| v);
        let value = |key| all(key).next();
        // OpenSSH prints the host name in the case that was typed.
        let hostname = value("hostname")?.to_ascii_lowercase();
        let jump = value("proxyjump").filter(|j| *j != "none").map(str::to_owned);
        // A command is long, and nobody's to read in a table.
        let command = value("proxycommand").filter(|c| *c != "none");
        let command = command.map(|c| format!("command {}", &short_hash(c.as_bytes())[..8]));
        let (user, port) = (value("user")?.to_owned(), value("port")?.parse().ok()?);
        let account = Account { user, hostname, port, via: jump.clone().or(command) };
        let beside = all("identityfile").map(|key| format!("{key}-cert.pub"));
        let named = all("certificatefile").map(str::to_owned);
        Some(Facts {
            account,
            control_path: value("controlpath").filter(|p| *p != "none").map(PathBuf::from),
            control_persist: match value("controlpersist") {
                None | Some("no" | "false") => Persist::No,
                Some("yes" | "true" | "0") => Persist::Forever,
                Some(seconds) => {
                    seconds.parse().map_or(Persist::No, |s: u64| Persist::For(Duration::from_secs(s)))
                }
            },
            certificates: named.chain(beside).filter_map(|p| expand(&p)).collect(),
            agent: match value("identityagent") {
                Some("none") => None,
                None | Some("SSH_AUTH_SOCK" | "$SSH_AUTH_SOCK") => own_agent(),
                Some(path) => expand(path),
            },
            gssapi: value("gssapiauthentication") == Some("yes"),
            jump,
            careless: matches!(value("stricthostkeychecking"), Some("no" | "off" | "false")),
            strict: matches!(value("stricthostkeychecking"), Some("yes" | "true")),
            known_hosts: value("userknownhostsfile")
                .map_or_else(Vec::new, |files| files.split(' ').filter_map(expand).collect()),
            ciphers: value("ciphers").and_then(quicker).filter(|_| has_aes()),
        })
    }
}

fn own_agent() -> Option<PathBuf> {
    std::env::var_os("SSH_AUTH_SOCK").filter(|s| !s.is_empty()).map(PathBuf::from)
}

/// A path of the configuration; `None` where it has tokens or variables that only ssh knows.
fn expand(path: &str) -> Option<PathBuf> {
    match path.strip_prefix("~/") {
        _ if path.contains(['%', '$']) => None,
        Some(rest) => std::env::home_dir().map(|home| home.join(rest)),
        None => Some(PathBuf::from(path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_login_depends_on() {
        let text = "user ann\nhostname lab\nport 22\ncontrolpath /r/cm-1\ncontrolpersist 600\n\
                    gssapiauthentication yes\nidentityfile /k/id\ncertificatefile /k/site-cert.pub\n\
                    identityagent /run/agent\nproxyjump gate\nstricthostkeychecking false\n\
                    userknownhostsfile /k/known /k/%h\n";
        let facts = Facts::parse(text).unwrap();
        assert_eq!(facts.control_path, Some("/r/cm-1".into()));
        assert_eq!(facts.control_persist, Persist::For(Duration::from_secs(600)));
        assert_eq!(facts.certificates, [PathBuf::from("/k/site-cert.pub"), "/k/id-cert.pub".into()]);
        assert_eq!(facts.agent, Some("/run/agent".into()));
        assert_eq!(facts.jump.as_deref(), Some("gate"));
        assert_eq!(facts.account.to_string(), "ann@lab:22 via gate");
        assert!(facts.gssapi && facts.careless);
        assert_eq!(facts.known_hosts, [PathBuf::from("/k/known")]);
    }

    #[test]
    fn what_is_absent_is_off() {
        let text = "user ann\nhostname lab\nport 22\nidentityfile /k/%h\nidentityagent none\n\
                    controlpersist no\nstricthostkeychecking ask\n";
        let facts = Facts::parse(text).unwrap();
        assert_eq!((facts.control_path, facts.agent), (None, None));
        assert_eq!(facts.control_persist, Persist::No);
        assert!(facts.certificates.is_empty() && !facts.gssapi && !facts.careless && !facts.strict);
        assert!(Facts::parse(&text.replace("checking ask", "checking true")).unwrap().strict);
    }

    #[test]
    fn ciphers_are_put_in_another_order_only_where_nobody_chose_them() {
        let sorted = |list: &str| {
            let mut list: Vec<_> = list.split(',').map(str::to_owned).collect();
            list.sort();
            list
        };
        for (usual, _) in CIPHERS {
            let quicker = quicker(usual).unwrap();
            assert_eq!(sorted(quicker), sorted(usual), "none more, none less");
            assert!(quicker.starts_with("aes128-gcm@openssh.com,"));
        }
        assert_eq!(quicker("chacha20-poly1305@openssh.com"), None);
        assert_eq!(quicker("aes256-ctr,chacha20-poly1305@openssh.com"), None);
        let text = "user ann\nhostname lab\nport 22\n";
        assert_eq!(Facts::parse(text).unwrap().ciphers, None);
        let text = format!("{text}ciphers {}\n", CIPHERS[0].0);
        assert_eq!(Facts::parse(&text).unwrap().ciphers.is_some(), has_aes());
    }

    #[test]
    fn the_same_address_behind_two_gates_is_two_accounts() {
        let account = |way: &str| {
            let text = format!("user ann\nhostname localhost\nport 22\n{way}");
            Facts::parse(&text).unwrap().account.to_string()
        };
        let ways = ["", "proxyjump a\n", "proxyjump b\n", "proxycommand nc a 22\n", "proxycommand nc b 22\n"];
        let accounts: std::collections::HashSet<String> = ways.iter().map(|w| account(w)).collect();
        assert_eq!(accounts.len(), ways.len(), "{accounts:?}");
        assert_eq!(account("proxyjump none\nproxycommand none\n"), "ann@localhost:22");
    }
}
