//! Secure Copy Locators: what a user types to name a place on another machine, and what the names in the
//! root directory mean.
//!
//! | in the root directory | stands for |
//! |---|---|
//! | `scp:[user@]host:`, `ssh:[user@]host:` | the root of the host's file tree |
//! | `scp:[user@]host:.`, `ssh:[user@]host:.` | the home directory of the account |
//! | `[user@]host` | the same as `scp:[user@]host:`, for programs that cannot live below a colon |
//!
//! An IPv6 address stands in brackets. A user is made of `[A-Za-z0-9._@+-]`, a host of `[A-Za-z0-9._-]` or,
//! in brackets, an IPv6 address without a zone. Neither begins with `-`, which ssh would take
//! for an option, and no host begins with `.`, so that no program's dot file becomes a host name.
//!
//! On the command line a locator may go on with a path ([`Place`]): `scp:ann@lab:/data/x` is absolute,
//! `scp:ann@lab:data/x` is below the home directory, and the scheme may be left out as in scp(1). So `scp:ann@lab:` is
//! the home directory there, and `scp:ann@lab:/` the root: what a *name* of the root directory stands for has the rest
//! of a path behind it, slash and all, and the same words mean the same place, as soon as there is one.

use home::{Error, ErrorKind, HomePath, Result};
use std::fmt;
use vfs::Start;

/// Longest locator in bytes; it has to fit a file name.
const LOCATOR_MAX: usize = home::name::NAME_MAX;

/// An account on a host, as it was spelled.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Account {
    /// The user, if one was given.
    pub user: Option<String>,
    /// The host or ssh alias, without brackets.
    pub host: String,
}

/// What a name in the root directory stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RootName {
    /// Who and where.
    pub account: Account,
    /// Where it starts there: the root or the home directory.
    pub start: Start,
}

impl Account {
    /// Parses `[user@]host`; the user ends at the last `@`.
    fn parse(text: &str) -> Option<Account> {
        let (user, host) = match text.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, text),
        };
        let host = match host.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']').filter(|h| is_ipv6(h))?,
            None => Some(host).filter(|h| is_host(h))?,
        };
        if user.is_some_and(|u| !is_user(u)) {
            return None;
        }
        Some(Account { user: user.map(str::to_owned), host: host.to_owned() })
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        match self.host.contains(':') {
            true => write!(f, "[{}]", self.host),
            false => f.write_str(&self.host),
        }
    }
}

impl RootName {
    /// Parses a name of the root directory; `None` for anything that cannot be one.
    pub fn parse(name: &[u8]) -> Option<RootName> {
        if name.len() > LOCATOR_MAX {
            return None;
        }
        let text = std::str::from_utf8(name).ok()?;
        let Some(rest) = without_scheme(text) else {
            return Some(RootName { account: Account::parse(text)?, start: Start::Root });
        };
        let (rest, start) = match rest.strip_suffix(":.") {
            Some(rest) => (rest, Start::HomeDir),
            None => (rest.strip_suffix(':')?, Start::Root),
        };
        Some(RootName { account: Account::parse(rest)?, start })
    }

    /// The spelling with a scheme: `scp:ann@lab:` or `scp:ann@lab:.`.
    pub fn locator(&self) -> String {
        let dot = if self.start == Start::HomeDir { "." } else { "" };
        format!("scp:{}:{dot}", self.account)
    }
}

/// The target of a configured home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A place on another machine.
    Remote(Account, Start),
    /// A directory of this machine.
    Local(HomePath),
}

impl Target {
    /// Parses a locator as commands take it, or `local:/path`.
    pub fn parse(text: &str) -> Result<Target> {
        if let Some(path) = text.strip_prefix("local:") {
            return match path.starts_with('/') {
                true => Ok(Target::Local(HomePath::parse(path.as_bytes())?)),
                false => Err(invalid(text, "the path after `local:` must be absolute")),
            };
        }
        let none = || Err(invalid(text, "write [user@]host:/path or local:/path"));
        let located = locator(text.as_bytes()).unwrap_or_else(none)?;
        let path = HomePath::parse(located.path)?;
        let start = match (located.start, path.is_root()) {
            (start, true) => start,
            (Start::Root, false) => Start::Path(path),
            (_, false) => Start::Below(path),
        };
        Ok(Target::Remote(located.account, start))
    }
}

/// A place in the tree, as given on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The name in the root directory; `None` for the root itself.
    pub name: Option<Vec<u8>>,
    /// The path below that name, without a leading slash.
    pub path: Vec<u8>,
}

impl Place {
    /// Parses a tree path (`/ann@lab/data`, or without the first slash) or a locator with a path
    /// (`scp:ann@lab:/data`, `ann@lab:data`).
    pub fn parse(text: &[u8]) -> Result<Place> {
        if let Some(place) = Place::parse_locator(text) {
            return place;
        }
        let text = trim_slashes(text);
        if text.is_empty() {
            return Ok(Place { name: None, path: Vec::new() });
        }
        let end = text.iter().position(|b| *b == b'/').unwrap_or(text.len());
        Ok(Place { name: Some(text[..end].to_vec()), path: trim_slashes(&text[end..]).to_vec() })
    }

    /// Parses a locator; `None` where the text is not one: no colon outside brackets before the first slash.
    pub fn parse_locator(text: &[u8]) -> Option<Result<Place>> {
        let place = |located: Located<'_>| {
            let Located { account, start, path } = located;
            let name = RootName { account, start }.locator().into_bytes();
            Place { name: Some(name), path: trim_slashes(path).to_vec() }
        };
        Some(locator(text)?.map(place))
    }

    /// The path from the root of the tree, with a leading slash.
    pub fn tree_path(&self) -> Vec<u8> {
        let mut out = b"/".to_vec();
        out.extend_from_slice(self.name.as_deref().unwrap_or_default());
        if !self.path.is_empty() {
            out.push(b'/');
            out.extend_from_slice(&self.path);
        }
        out
    }
}

/// A locator in its parts.
struct Located<'a> {
    account: Account,
    /// From where the path is meant: the root or the home directory.
    start: Start,
    /// As it was written, without what says nothing.
    path: &'a [u8],
}

/// Takes a locator apart; `None` where the text is not one: no colon outside brackets before the first slash.
fn locator(text: &[u8]) -> Option<Result<Located<'_>>> {
    let head = text.split(|b| *b == b'/').next().unwrap_or_default();
    let shown = || String::from_utf8_lossy(text).into_owned();
    let head = match std::str::from_utf8(head) {
        Ok(head) => head,
        Err(_) if head.contains(&b':') => return Some(Err(invalid(&shown(), "not a host name"))),
        Err(_) => return None,
    };
    let rest = without_scheme(head).unwrap_or(head);
    if rest.len() == head.len() && colon_outside_brackets(head).is_none() {
        return None;
    }
    let Some((account, first)) = split_account(rest) else {
        return Some(Err(invalid(&shown(), "write scp:[user@]host:/path")));
    };
    let path = &text[head.len() - first.len()..];
    let start = if path.starts_with(b"/") { Start::Root } else { Start::HomeDir };
    let path = match path {
        b"." => &b""[..],
        _ => path.strip_prefix(b"./").unwrap_or(path),
    };
    Some(Ok(Located { account, start, path }))
}

fn without_scheme(text: &str) -> Option<&str> {
    text.strip_prefix("scp:").or_else(|| text.strip_prefix("ssh:"))
}

/// Splits `[user@]host:path` at the first colon outside brackets.
fn split_account(text: &str) -> Option<(Account, &str)> {
    let at = colon_outside_brackets(text)?;
    Some((Account::parse(&text[..at])?, &text[at + 1..]))
}

fn colon_outside_brackets(text: &str) -> Option<usize> {
    let mut inside = false;
    for (at, c) in text.char_indices() {
        match c {
            '[' => inside = true,
            ']' => inside = false,
            ':' if !inside => return Some(at),
            _ => {}
        }
    }
    None
}

fn trim_slashes(path: &[u8]) -> &[u8] {
    let start = path.iter().position(|b| *b != b'/').unwrap_or(path.len());
    let end = path.iter().rposition(|b| *b != b'/').map_or(start, |at| at + 1);
    &path[start..end]
}

fn is_user(user: &str) -> bool {
    !user.is_empty()
        && !user.starts_with('-')
        && user.bytes().all(|b| b.is_ascii_alphanumeric() || b"._@+-".contains(&b))
}

fn is_host(host: &str) -> bool {
    !host.is_empty()
        && !host.starts_with(['-', '.'])
        && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
}

fn is_ipv6(host: &str) -> bool {
    host.parse::<std::net::Ipv6Addr>().is_ok()
}

fn invalid(text: &str, why: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("{}: {why}", crate::show::text(text.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn account(user: Option<&str>, host: &str) -> Account {
        Account { user: user.map(str::to_owned), host: host.to_owned() }
    }

    #[test]
    fn names_of_the_root_directory() {
        use Start::{HomeDir, Root};
        for (name, user, host, start) in [
            ("scp:lab:", None, "lab", Root),
            ("scp:lab:.", None, "lab", HomeDir),
            ("scp:ann@lab:", Some("ann"), "lab", Root),
            ("ssh:ann@lab.example.org:.", Some("ann"), "lab.example.org", HomeDir),
            ("ann@lab", Some("ann"), "lab", Root),
            ("lab", None, "lab", Root),
            ("scp:[::1]:", None, "::1", Root),
            ("ann@[fe80::1]", Some("ann"), "fe80::1", Root),
            ("scp:ann@corp@lab:", Some("ann@corp"), "lab", Root),
            ("a.b_c+d-e@h_1", Some("a.b_c+d-e"), "h_1", Root),
        ] {
            let want = RootName { account: account(user, host), start };
            assert_eq!(RootName::parse(name.as_bytes()), Some(want), "{name}");
        }
    }

    #[test]
    fn anything_else_is_no_host() {
        let long = format!("scp:{}:", "h".repeat(251));
        for name in [
            "",
            ":",
            "scp:",
            "scp::",
            "scp::.",
            "scp:lab",
            "scp:lab:..",
            "scp:lab:/",
            "scp:lab:x",
            "scp:-oProxyCommand=x:",
            "-oProxyCommand=x",
            "ann@-lab",
            "-ann@lab",
            "scp:-l@lab:",
            "@lab",
            "ann@",
            ".git",
            ".",
            "..",
            "a b",
            "a;b",
            "a$(x)",
            "a`x`",
            "a\nb",
            "a\u{7f}",
            "höst",
            "lab:",
            "lab:.",
            "::1",
            "[::1",
            "[lab]",
            "[::1%eth0]",
            "scp:::1:",
            "http:lab:",
            "SCP:lab:",
            "scp:a/b:",
            "scp:a=b:",
            long.as_str(),
        ] {
            assert_eq!(RootName::parse(name.as_bytes()), None, "{name:?}");
        }
        assert_eq!(RootName::parse(b"a\xff"), None);
        assert!(RootName::parse(format!("scp:{}:", "h".repeat(250)).as_bytes()).is_some());
    }

    #[test]
    fn a_locator_is_a_name_again() {
        for name in ["scp:ann@lab:", "scp:lab:.", "scp:[::1]:", "scp:a@[::1]:."] {
            assert_eq!(RootName::parse(name.as_bytes()).map(|n| n.locator()), Some(name.to_owned()));
        }
    }

    #[test]
    fn places_on_the_command_line() {
        for (text, tree) in [
            ("/", "/"),
            ("", "/"),
            ("/ann@lab", "/ann@lab"),
            ("/ann@lab/data//x/", "/ann@lab/data//x"),
            ("ann@lab/data", "/ann@lab/data"),
            ("lab", "/lab"),
            ("scp:lab:", "/scp:lab:."),
            ("ann@lab:", "/scp:ann@lab:."),
            ("[::1]:", "/scp:[::1]:."),
            ("scp:lab:/", "/scp:lab:"),
            ("/scp:lab:", "/scp:lab:"),
            ("scp:lab:/data/x:y", "/scp:lab:/data/x:y"),
            ("scp:lab:data/x", "/scp:lab:./data/x"),
            ("scp:lab:.", "/scp:lab:."),
            ("scp:lab:./x", "/scp:lab:./x"),
            ("ann@lab:/data/x", "/scp:ann@lab:/data/x"),
            ("ann@lab:x", "/scp:ann@lab:./x"),
            ("ssh:[::1]:/x", "/scp:[::1]:/x"),
            ("[::1]/x", "/[::1]/x"),
            ("/scp:lab:/x", "/scp:lab:/x"),
            ("/scp:lab:./x", "/scp:lab:./x"),
        ] {
            let place = Place::parse(text.as_bytes()).unwrap();
            assert_eq!(String::from_utf8(place.tree_path()).unwrap(), tree, "{text}");
        }
        for bad in ["scp:-x:/y", "scp:lab", "a b:/x", ":/x", "scp::/x"] {
            assert_eq!(Place::parse(bad.as_bytes()).unwrap_err().kind, ErrorKind::Invalid, "{bad}");
        }
    }

    #[test]
    fn targets_of_configured_homes() {
        assert_eq!(
            Target::parse("scp:ann@lab:/data").unwrap(),
            Target::Remote(account(Some("ann"), "lab"), Start::Path(HomePath::parse(b"data").unwrap()))
        );
        assert_eq!(Target::parse("ssh:lab:").unwrap(), Target::Remote(account(None, "lab"), Start::HomeDir));
        assert_eq!(Target::parse("scp:lab:.").unwrap(), Target::Remote(account(None, "lab"), Start::HomeDir));
        assert_eq!(Target::parse("local:/srv").unwrap(), Target::Local(HomePath::parse(b"srv").unwrap()));
        assert_eq!(Target::parse("lab:/").unwrap(), Target::Remote(account(None, "lab"), Start::Root));
        assert_eq!(Target::parse("lab:./").unwrap(), Target::Remote(account(None, "lab"), Start::HomeDir));
        for bad in ["lab", "/lab/x", "local:srv", "local:/a/../b", "scp:lab", "scp:-x:/"] {
            assert!(Target::parse(bad).is_err(), "{bad}");
        }
    }

    /// What a configured home means is the place that a command means by the same words.
    #[test]
    fn the_configuration_takes_what_commands_take() {
        for text in [
            "lab:/data/x",
            "ann@lab:/data",
            "lab:",
            "lab:/",
            "lab:.",
            "lab:./x",
            "ann@lab:work/y",
            "scp:lab:x",
            "ssh:[::1]:/x:y",
        ] {
            let Target::Remote(account, start) = Target::parse(text).unwrap() else { panic!("{text}") };
            let place = Place::parse_locator(text.as_bytes()).unwrap().unwrap();
            let name = RootName::parse(place.name.as_deref().unwrap()).unwrap();
            assert_eq!(account, name.account, "{text}");
            let home_dir = || HomePath::parse(b"home/ann").unwrap();
            let mut meant = name.start.path(home_dir());
            HomePath::parse(&place.path).unwrap().names().for_each(|part| meant.push(&part));
            assert_eq!(start.path(home_dir()), meant, "{text}");
        }
    }
}
