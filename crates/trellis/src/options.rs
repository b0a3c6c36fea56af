//! The server's options, each defined once: clap reads them from the command line, serde from the
//! configuration file, and what the command line says goes first.

use crate::allow::AllowSpec;
use crate::config::HomeEntry;
use crate::pattern::HostPattern;
use clap::ValueEnum;
use serde::{Deserialize, Deserializer};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// What an acknowledgement promises; docs/SEMANTICS.md has the whole of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum ModeName {
    /// Write back: durable here first, at the home soon after.
    Wb,
    /// Close to open: as wb, but fsync and close wait for the home, and open asks it.
    Cto,
    /// Durable at the home before it is acknowledged; every answer is asked for there.
    Strict,
    /// As wb, at a home that nobody else changes: what is known stays good.
    Owned,
    /// As wb, but the home is left alone: what is known is served, and changes are kept.
    Offline,
    /// Nothing can be changed.
    Ro,
}

impl From<ModeName> for vfs::Mode {
    fn from(mode: ModeName) -> vfs::Mode {
        match mode {
            ModeName::Wb => vfs::Mode::Wb,
            ModeName::Cto => vfs::Mode::Cto,
            ModeName::Strict => vfs::Mode::Strict,
            ModeName::Owned => vfs::Mode::Owned,
            ModeName::Offline => vfs::Mode::Offline,
            ModeName::Ro => vfs::Mode::Ro,
        }
    }
}

/// What becomes of a conflict, as a configuration names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicyName(pub vfs::Policy);

impl<'de> Deserialize<'de> for PolicyName {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<PolicyName, D::Error> {
        let text = String::deserialize(from)?;
        let named = vfs::Policy::ALL.into_iter().find(|policy| policy.name() == text);
        named.map(PolicyName).ok_or_else(|| {
            let all = vfs::Policy::ALL.map(vfs::Policy::name).join(", ");
            let shown = crate::show::text(text.as_bytes());
            serde::de::Error::custom(format!("{shown} is no policy of conflicts; there are {all}"))
        })
    }
}

/// What `serve` may be told, by arguments or by the configuration file.
#[derive(Debug, Clone, Default, clap::Args, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Options {
    /// Listen here; port 0 is chosen once and then kept [default: 127.0.0.1:0]
    #[arg(long, value_name = "ADDR:PORT", value_parser = address)]
    pub listen: Vec<SocketAddr>,

    /// Who may connect: address, address/prefix or name, with :ro for reading only [default: this machine]
    #[arg(long, value_name = "CIDR[:ro]")]
    #[serde(deserialize_with = "parsed_list")]
    pub allow: Vec<AllowSpec>,

    /// Hosts that clients may reach by name, as patterns with * and ?; needed for names that are not
    /// configured as soon as another machine can connect [default: every host, on loopback]
    #[arg(long, value_name = "PATTERN")]
    #[serde(deserialize_with = "parsed_list")]
    pub hosts: Vec<HostPattern>,

    /// Configuration for ssh instead of the user's own (ssh -F)
    #[arg(long, value_name = "FILE")]
    pub ssh_config: Option<PathBuf>,

    /// What an acknowledgement promises, at homes for which the configuration does not say it [default: wb]
    #[arg(long, value_name = "MODE")]
    pub mode: Option<ModeName>,

    /// Let other users of the clients have what the files' modes give to others
    #[arg(long)]
    pub share: bool,

    /// Treat root on a client as the user of this server
    #[arg(long)]
    pub no_root_squash: bool,

    /// Accept requests from unprivileged ports, which any user of a client can send
    #[arg(long)]
    pub insecure: bool,

    /// Serve no NFS at all, only the mounts that `trellis mount` makes
    #[arg(long, conflicts_with = "listen")]
    pub no_nfs: bool,

    /// Keep the state on a network file system, where its locks may not hold
    #[arg(long)]
    pub allow_network_state: bool,

    /// Bound of the cache, such as 20G [default: 20G, or a tenth of the file system if that is less]
    #[arg(long, value_name = "SIZE")]
    #[serde(deserialize_with = "parsed")]
    pub cache: Option<Size>,

    /// How old an answer may be while a home can be asked, such as 5s [default: 5s]
    #[arg(long, value_name = "TIME")]
    #[serde(deserialize_with = "parsed")]
    pub staleness: Option<Seconds>,

    /// Names of the root directory, by the configuration file alone
    #[arg(skip)]
    pub home: Vec<HomeEntry>,
}

impl Options {
    /// These options, and those of `file` where these say nothing.
    pub fn over(self, file: Options) -> Options {
        fn first<T>(one: Vec<T>, other: Vec<T>) -> Vec<T> {
            if one.is_empty() { other } else { one }
        }
        // Whoever says on the command line where to listen means it.
        let no_nfs = self.no_nfs || self.listen.is_empty() && file.no_nfs;
        Options {
            listen: first(self.listen, file.listen),
            allow: first(self.allow, file.allow),
            hosts: first(self.hosts, file.hosts),
            ssh_config: self.ssh_config.or(file.ssh_config),
            mode: self.mode.or(file.mode),
            share: self.share || file.share,
            no_root_squash: self.no_root_squash || file.no_root_squash,
            insecure: self.insecure || file.insecure,
            no_nfs,
            allow_network_state: self.allow_network_state || file.allow_network_state,
            cache: self.cache.or(file.cache),
            staleness: self.staleness.or(file.staleness),
            home: first(self.home, file.home),
        }
    }
}

/// A number of bytes: digits and one of `K M G T`, each a power of 1024.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
        let shift = match text[digits.len()..].trim_end_matches("iB").trim_end_matches('B') {
            "" => 0,
            "k" | "K" => 10,
            "m" | "M" => 20,
            "g" | "G" => 30,
            "t" | "T" => 40,
            _ => return Err("write a number of bytes, such as 500M or 20G".into()),
        };
        let number: u64 = digits.parse().map_err(|_| "write a number of bytes, such as 500M or 20G")?;
        number.checked_mul(1 << shift).map(Size).ok_or_else(|| "that many bytes do not exist".into())
    }
}

/// A span of time: seconds, with a fraction if need be, or a number with `ms`, `s`, `m` or `h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seconds(pub Duration);

impl FromStr for Seconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Seconds, String> {
        let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let unit = match &text[number.len()..] {
            "ms" => 0.001,
            "" | "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return Err("write a time, such as 500ms, 5s, 2m or 8h".into()),
        };
        let value: f64 = number.parse().map_err(|_| "write a time, such as 500ms, 5s, 2m or 8h")?;
        Duration::try_from_secs_f64(value * unit)
            .ok()
            .filter(|d| *d <= Duration::from_secs(366 * 86_400))
            .map(Seconds)
            .ok_or_else(|| "a time lies between 0 and a year".into())
    }
}

/// An address to listen on, as a person types it.
fn address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        "write ADDR:PORT, such as 127.0.0.1:2049 or [::1]:0; ADDR is a number, not a name".to_owned()
    })
}

/// A value that the file may write as a number or as text, parsed as on the command line.
fn parsed<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err = String>,
{
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Written {
        Text(String),
        Whole(u64),
        Number(f64),
    }
    let text = match Written::deserialize(from)? {
        Written::Text(text) => text,
        Written::Whole(number) => number.to_string(),
        Written::Number(number) => number.to_string(),
    };
    text.parse().map(Some).map_err(serde::de::Error::custom)
}

/// A list of texts, each parsed as on the command line.
fn parsed_list<'de, D, T>(from: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err = String>,
{
    let texts = Vec::<String>::deserialize(from)?;
    texts.iter().map(|t| t.parse().map_err(|e| serde::de::Error::custom(format!("{t:?}: {e}")))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times() {
        for (text, bytes) in [("0", 0), ("7", 7), ("2K", 2048), ("1GiB", 1 << 30), ("3MB", 3 << 20)] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for bad in ["", "G", "1X", "1.5G", "-1", "99999999999T"] {
            assert!(bad.parse::<Size>().is_err(), "{bad}");
        }
        for (text, ms) in [("5", 5000), ("0.25", 250), ("500ms", 500), ("2m", 120_000), ("1h", 3_600_000)] {
            assert_eq!(text.parse(), Ok(Seconds(Duration::from_millis(ms))), "{text}");
        }
        for bad in ["", "s", "-1", "5x", "nan", "inf", "9e99", "900000h"] {
            assert!(bad.parse::<Seconds>().is_err(), "{bad}");
        }
    }

    #[test]
    fn arguments_go_before_the_file() {
        let file: Options = toml::from_str(
            "listen = [\"127.0.0.1:7\"]\nmode = \"strict\"\nshare = true\nstaleness = 2\ncache = \"1G\"\n",
        )
        .unwrap();
        let args = Options {
            listen: vec!["127.0.0.1:9".parse().unwrap()],
            cache: Some(Size(5)),
            ..Options::default()
        };
        let both = args.over(file);
        assert_eq!(both.listen, vec!["127.0.0.1:9".parse::<SocketAddr>().unwrap()]);
        assert_eq!((both.mode, both.share), (Some(ModeName::Strict), true));
        assert_eq!(both.cache, Some(Size(5)));
        assert_eq!(both.staleness, Some(Seconds(Duration::from_secs(2))));
    }
}
