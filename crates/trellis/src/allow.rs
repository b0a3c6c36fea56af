//! `--allow`: which machines may speak to the server. Networks are the front-end's notion; here names are
//! added, which are looked up once, at the start.

use frontend::nfs::Allow;
use home::io_text;
use std::net::IpAddr;

/// One `--allow`, as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AllowSpec {
    /// `ADDRESS[/PREFIX][:ro]`.
    Network(Allow),
    /// `NAME[:ro]`.
    Name {
        /// The host name.
        name: String,
        /// Whether the host may only read.
        read_only: bool,
    },
}

impl std::str::FromStr for AllowSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<AllowSpec, String> {
        let (name, read_only) = match text.strip_suffix(":ro") {
            Some(name) => (name, true),
            None => (text, false),
        };
        match is_name(name) {
            true => Ok(AllowSpec::Name { name: name.to_owned(), read_only }),
            false => text.parse().map(AllowSpec::Network),
        }
    }
}

impl AllowSpec {
    /// The networks that are meant now. A name without an address is an error, because a rule that silently
    /// allows nobody would be looked for elsewhere.
    pub async fn resolve(&self) -> Result<Vec<Allow>, String> {
        match self {
            AllowSpec::Network(network) => Ok(vec![*network]),
            AllowSpec::Name { name, read_only } => {
                let found = tokio::net::lookup_host((name.as_str(), 0)).await;
                let found = found
                    .map_err(|e| format!("--allow {name}: {}; write its address instead", io_text(&e)))?;
                let mut hosts: Vec<IpAddr> = found.map(|a| a.ip()).collect();
                hosts.sort();
                hosts.dedup();
                Ok(hosts.into_iter().map(|a| Allow::host(a, *read_only)).collect())
            }
        }
    }
}

/// Whether the text is meant as a host name: it has a letter and no colon, so that it is no address.
fn is_name(text: &str) -> bool {
    !text.starts_with(['-', '.'])
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_".contains(&b))
        && text.bytes().any(|b| b.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_networks_and_names() {
        for text in ["10.0.0.7", "10.0.0.0/8:ro", "::1", "[fe80::1]:ro", "0.0.0.0/0"] {
            assert!(matches!(text.parse(), Ok(AllowSpec::Network(_))), "{text}");
        }
        let name = AllowSpec::Name { name: "desk.example.org".into(), read_only: true };
        assert_eq!("desk.example.org:ro".parse(), Ok(name));
        for text in ["", ":ro", "10.0.0.1/8", "desk/24", "1.2.3", "-x", "a b", "::1/129"] {
            assert!(text.parse::<AllowSpec>().is_err(), "{text}");
        }
    }

    #[tokio::test]
    async fn a_name_becomes_its_addresses() {
        let spec: AllowSpec = "localhost:ro".parse().unwrap();
        let hosts = spec.resolve().await.unwrap();
        assert!(!hosts.is_empty() && hosts.iter().all(|h| h.is_loopback()));
        assert!(hosts.iter().all(|h| h.to_string().ends_with(":ro")));
        let unknown: AllowSpec = "no-such-host.invalid".parse().unwrap();
        assert!(unknown.resolve().await.unwrap_err().contains("no-such-host.invalid"));
    }
}
