//! `--hosts` patterns: which names a client may turn into a connection.

use crate::scl::Account;

/// A pattern over `host` or, if it holds an `@`, over `user@host`. `*` is any text, `?` any one character.
/// Case is ignored, as in host names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPattern(String);

impl std::str::FromStr for HostPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<HostPattern, String> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || b"._@+-:*?".contains(&b);
        match !text.is_empty() && text.bytes().all(allowed) {
            true => Ok(HostPattern(text.to_ascii_lowercase())),
            false => Err("a pattern is made of the characters of [user@]host and of * and ?".into()),
        }
    }
}

impl HostPattern {
    /// Whether the account, as it was spelled, is meant. A pattern with `@` never fits a name without a user.
    pub fn fits(&self, account: &Account) -> bool {
        let host = account.host.to_ascii_lowercase();
        match (self.0.contains('@'), &account.user) {
            (false, _) => glob(self.0.as_bytes(), host.as_bytes()),
            (true, Some(user)) => {
                glob(self.0.as_bytes(), format!("{}@{host}", user.to_ascii_lowercase()).as_bytes())
            }
            (true, None) => false,
        }
    }
}

/// Matches with one remembered `*`, so that no pattern takes more than pattern × text steps.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == b'?' || *c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    p = at + 1;
                    t = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        for (pattern, user, host, fits) in [
            ("*", None, "lab", true),
            ("lab", Some("ann"), "lab", true),
            ("LAB", None, "lab", true),
            ("lab", None, "lab2", false),
            ("lab?", None, "lab2", true),
            ("*.example.org", None, "a.example.org", true),
            ("*.example.org", None, "example.org", false),
            ("*.example.org", None, "a.example.org.evil.net", false),
            ("ann@*", Some("ann"), "lab", true),
            ("ann@*", Some("bob"), "lab", false),
            ("ann@*", None, "lab", false),
            ("a*b*c", None, "aXbXbXc", true),
            ("a*b*c", None, "aXbXbX", false),
            ("10.0.0.*", None, "10.0.0.7", true),
        ] {
            let account = Account { user: user.map(str::to_owned), host: host.to_owned() };
            let parsed: HostPattern = pattern.parse().unwrap();
            assert_eq!(parsed.fits(&account), fits, "{pattern} {account}");
        }
        assert!("".parse::<HostPattern>().is_err());
        assert!("a b".parse::<HostPattern>().is_err());
    }
}
