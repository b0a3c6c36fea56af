//! The configuration file: TOML, optional, with every option of `serve` and the names of the root directory.
//!
//! ```toml
//! listen = ["127.0.0.1:2050"]
//! staleness = "5s"
//!
//! [[home]]
//! name = "lab"                  # shown as /lab
//! scl = "scp:ann@lab:/data"     # or scp:ann@lab: (the whole host), scp:lab:. (the home directory), local:/srv
//! mode = "strict"               # or "wb"
//! share = false
//! symlinks = "rebase"           # absolute links of the home lead into the home; "raw" leaves them
//! protect = []                  # folders that no client may change; default .ssh .gnupg .cache/trellis
//! ```
//!
//! A key that is not known is an error that names its line: a misspelled guard must not be silently absent.

use crate::limits;
use crate::options::{ModeName, Options};
use crate::scl::{RootName, Target};
use home::{HomePath, Name};
use serde::{Deserialize, Deserializer};
use std::io::Read;
use std::path::{Path, PathBuf};

/// What absolute symbolic links of a home become.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Symlinks {
    /// Left as they are: they resolve at the client.
    #[default]
    Raw,
    /// Made to lead into the home.
    Rebase,
}

/// One `[[home]]`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct HomeEntry {
    /// The name in the root directory.
    #[serde(deserialize_with = "root_name")]
    pub name: Name,
    /// What it stands for.
    #[serde(deserialize_with = "target")]
    pub scl: Target,
    /// Mode of this home.
    pub mode: Option<ModeName>,
    /// Whether other users have what the modes give to others.
    pub share: Option<bool>,
    /// What absolute symbolic links become.
    #[serde(default)]
    pub symlinks: Symlinks,
    /// Folders below the account's home directory that no client may change; `None`: the usual ones.
    #[serde(default, deserialize_with = "folders")]
    pub protect: Option<Vec<HomePath>>,
}

/// Reads the file that `--config` names, or the usual one if it exists.
pub fn load(given: Option<&Path>) -> Result<Options, String> {
    match given {
        Some(path) => read(path),
        None => match usual_file().filter(|p| p.exists()) {
            Some(path) => read(&path),
            None => Ok(Options::default()),
        },
    }
}

/// `$XDG_CONFIG_HOME/trellis/config.toml`, or the same below `~/.config`.
pub fn usual_file() -> Option<PathBuf> {
    crate::state::xdg("XDG_CONFIG_HOME", ".config").map(|dir| dir.join("trellis/config.toml"))
}

fn read(path: &Path) -> Result<Options, String> {
    let shown = crate::show::text(path.as_os_str().as_encoded_bytes());
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|e| format!("configuration {shown}: {e}"))?;
    let read = file.take(limits::CONFIG_FILE + 1).read_to_string(&mut text);
    let read = read.map_err(|e| format!("configuration {shown}: {e}"))?;
    if read as u64 > limits::CONFIG_FILE {
        return Err(format!("configuration {shown}: larger than 1 MiB; is it the right file?"));
    }
    parse(&text).map_err(|e| format!("configuration {shown}: {}", e.trim_end()))
}

/// Parses and checks the text of a configuration file. Errors name the line.
pub fn parse(text: &str) -> Result<Options, String> {
    let options: Options = toml::from_str(text).map_err(|e| e.to_string())?;
    for (at, entry) in options.home.iter().enumerate() {
        if options.home[..at].iter().any(|other| other.name == entry.name) {
            return Err(format!("two homes are named {}; rename one", entry.name));
        }
        let local = matches!(entry.scl, Target::Local(_));
        if local && entry.mode == Some(ModeName::Wb) {
            return Err(format!("home {}: a local: home is always strict; remove its mode", entry.name));
        }
    }
    Ok(options)
}

/// A name that hides no other way to reach a host: `scp:x:` and `ann@x` always mean what they say.
fn root_name<'de, D: Deserializer<'de>>(from: D) -> Result<Name, D::Error> {
    let text = String::deserialize(from)?;
    let name = Name::new(text.as_bytes()).map_err(serde::de::Error::custom)?;
    let means_host = RootName::parse(text.as_bytes()).is_some_and(|_| text.contains(['@', ':']));
    if text.starts_with('.') || text.contains(':') || means_host || text.chars().any(char::is_control) {
        let shown = crate::show::text(text.as_bytes());
        return Err(serde::de::Error::custom(format!(
            "{shown}: a configured name has no colon, no control character and no leading dot, and is no user@host"
        )));
    }
    Ok(name)
}

fn target<'de, D: Deserializer<'de>>(from: D) -> Result<Target, D::Error> {
    Target::parse(&String::deserialize(from)?).map_err(serde::de::Error::custom)
}

fn folders<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<HomePath>>, D::Error> {
    let texts = Vec::<String>::deserialize(from)?;
    let paths = texts.iter().map(|t| HomePath::parse(t.as_bytes()).map_err(serde::de::Error::custom));
    paths.collect::<Result<_, _>>().map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scl::Account;

    #[test]
    fn a_whole_file() {
        let options = parse(
            r#"
            listen = ["127.0.0.1:2050", "[::1]:2050"]
            allow = ["10.0.0.0/8:ro"]
            hosts = ["*.example.org"]
            staleness = "500ms"
            no-root-squash = true

            [[home]]
            name = "lab"
            scl = "scp:ann@lab:/data"
            mode = "strict"
            share = true
            symlinks = "rebase"
            protect = [".ssh", "work/keys"]

            [[home]]
            name = "here"
            scl = "local:/srv"
            "#,
        )
        .unwrap();
        assert_eq!((options.listen.len(), options.allow.len(), options.hosts.len()), (2, 1, 1));
        assert!(options.no_root_squash && !options.insecure);
        let lab = &options.home[0];
        let account = Account { user: Some("ann".into()), host: "lab".into() };
        let data = vfs::Start::Path(HomePath::parse(b"data").unwrap());
        assert_eq!(lab.scl, Target::Remote(account, data));
        assert_eq!(
            (lab.mode, lab.share, lab.symlinks),
            (Some(ModeName::Strict), Some(true), Symlinks::Rebase)
        );
        assert_eq!(lab.protect.as_ref().unwrap()[1].as_bytes(), b"work/keys");
        assert_eq!(options.home[1].protect, None);
    }

    #[test]
    fn unknown_keys_name_their_line() {
        let error = parse("share = true\nlisen = []\n").unwrap_err();
        assert!(error.contains("line 2") && error.contains("lisen"), "{error}");
        let error = parse("[[home]]\nname = \"a\"\nscl = \"scp:a:\"\nprotcet = []\n").unwrap_err();
        assert!(error.contains("line 4") && error.contains("protcet"), "{error}");
    }

    #[test]
    fn values_that_make_no_sense_are_refused() {
        let home = |name: &str, rest: &str| format!("[[home]]\nname = \"{name}\"\n{rest}\n");
        for (text, hint) in [
            (home("a", ""), "scl"),
            (home("a", "scl = \"lab\""), "scp:"),
            (home("a", "scl = \"scp:-x:\""), "line 3"),
            (home("a/b", "scl = \"scp:a:\""), "not a name"),
            (home("..", "scl = \"scp:a:\""), "not a name"),
            (home("ann@lab", "scl = \"scp:a:\""), "user@host"),
            (home("scp:lab:", "scl = \"scp:a:\""), "colon"),
            (home(".hidden", "scl = \"scp:a:\""), "dot"),
            (home("a", "scl = \"local:/x\"\nmode = \"wb\""), "strict"),
            (home("a", "scl = \"scp:a:\"\nmode = \"fast\""), "fast"),
            (home("a", "scl = \"scp:a:\"\nprotect = [\"../x\"]"), "not a name"),
            (home("a", "scl = \"scp:a:\"") + &home("a", "scl = \"scp:b:\""), "two homes"),
            ("allow = [\"10.0.0.1/8\"]".into(), "10.0.0.0/8"),
            ("staleness = \"soon\"".into(), "5s"),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.contains(hint), "{text}: {error}");
        }
    }
}
