//! The configuration file: TOML, optional, with every option of `serve` and the names of the root directory.
//!
//! ```toml
//! listen = ["127.0.0.1:2050"]
//! staleness = "5s"
//!
//! [[home]]
//! name = "lab"                  # shown as /lab
//! scl = "ann@lab:/data"         # as commands take it: also lab:/ (the whole host), lab: (the home directory), lab:data
//!                               # (below that), each with or without scp:, or local:/srv
//! mode = "strict"               # wb (usual), cto, strict, owned, offline or ro: docs/SEMANTICS.md
//! modes = { scratch = "owned", "ref/genomes" = "ro" }   # folders with another mode: below scl, or from / of the host
//! conflicts = { logs = "append-merge", db = "stop" }    # where both sides changed something: keep-both (usual), prefer-local,
//!                               # stop, strict-last-writer or append-merge; folders as in modes, "/" is the whole host
//! share = false
//! symlinks = "rebase"           # absolute links of the home lead into the home; "raw" leaves them
//! protect = []                  # folders that no client may change; default .ssh .gnupg .cache/trellis
//! ```
//!
//! A key that is not known is an error that names its line: a misspelled guard must not be silently absent.

use crate::limits;
use crate::options::{ModeName, Options, PolicyName};
use crate::scl::{RootName, Target};
use home::io_text;
use home::{HomePath, Name};
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use vfs::Start;

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
    /// Folders with a mode of their own, as written: below the place that the name means, or from the root of the host.
    #[serde(default)]
    pub modes: BTreeMap<String, ModeName>,
    /// Folders in which conflicts are settled in another way than by keeping both, as written.
    #[serde(default)]
    pub conflicts: BTreeMap<String, PolicyName>,
    /// Whether other users have what the modes give to others.
    pub share: Option<bool>,
    /// What absolute symbolic links become.
    #[serde(default)]
    pub symlinks: Symlinks,
    /// Folders below the account's home directory that no client may change; `None`: the usual ones.
    #[serde(default, deserialize_with = "folders")]
    pub protect: Option<Vec<HomePath>>,
}

impl HomeEntry {
    /// The folder that the name means, from the root of the home; `None` where only the host knows it.
    fn place(&self) -> Option<HomePath> {
        match &self.scl {
            Target::Remote(_, Start::HomeDir | Start::Below(_)) => None,
            Target::Remote(_, Start::Path(path)) => Some(path.clone()),
            Target::Remote(_, Start::Root) | Target::Local(_) => Some(HomePath::root()),
        }
    }

    /// Folders with a mode of their own, from the root of the home.
    pub fn folders(&self) -> Result<Vec<(HomePath, vfs::Mode)>, String> {
        let folder = |(text, mode): (&String, &ModeName)| Ok((self.folder("modes", text)?, (*mode).into()));
        self.modes.iter().map(folder).collect()
    }

    /// Folders with a policy of conflicts of their own, from the root of the home.
    pub fn policies(&self) -> Result<Vec<(HomePath, vfs::Policy)>, String> {
        let folder = |(text, policy): (&String, &PolicyName)| Ok((self.folder("conflicts", text)?, policy.0));
        self.conflicts.iter().map(folder).collect()
    }

    /// A folder as it is written under a key, from the root of the home.
    fn folder(&self, key: &str, text: &str) -> Result<HomePath, String> {
        let (shown, fail) =
            (crate::show::text(text.as_bytes()), |why: &str| format!("home {}: {key}: {why}", self.name));
        let path = HomePath::parse(text.as_bytes()).map_err(|e| fail(&format!("{shown}: {e}")))?;
        let mut full = match (text.starts_with('/'), self.place()) {
            (true, _) => HomePath::root(),
            (false, Some(place)) => place,
            (false, None) => {
                let why = format!(
                    "write {shown} from the root of the host, because scl begins at the home directory"
                );
                return Err(fail(&why));
            }
        };
        path.names().for_each(|name| full.push(&name));
        Ok(full)
    }

    /// The policies of the account's home, of which this is the first entry and `others` are further ones.
    pub fn policies_with(&self, others: &[&HomeEntry]) -> Result<Vec<(HomePath, vfs::Policy)>, String> {
        let mut all = self.policies()?;
        for other in others {
            all.extend(other.policies()?);
        }
        all.sort_by(|a, b| (a.0.as_bytes(), a.1.name()).cmp(&(b.0.as_bytes(), b.1.name())));
        all.dedup();
        Ok(all)
    }

    /// The modes of the account's home, of which this is the first entry and `others` are further ones: their modes are
    /// those of their folders.
    pub fn modes_with(&self, others: &[&HomeEntry]) -> Result<Vec<(HomePath, vfs::Mode)>, String> {
        let mut all = self.folders()?;
        for other in others {
            all.extend(other.folders()?);
            match (other.mode, other.place().filter(|place| !place.is_root())) {
                (Some(mode), Some(place)) => all.push((place, mode.into())),
                (Some(mode), None) if self.mode != Some(mode) => {
                    let (name, first) = (&other.name, &self.name);
                    return Err(format!(
                        "home {name}: its account has the mode of home {first}: remove its mode, or let scl name a folder from the root of \
                         the host"
                    ));
                }
                _ => {}
            }
        }
        all.sort_by(|a, b| (a.0.as_bytes(), a.1).cmp(&(b.0.as_bytes(), b.1)));
        all.dedup();
        Ok(all)
    }
}

/// Reads the file that `--config` names, or the usual one if it exists.
pub fn load(given: Option<&Path>) -> Result<Options, String> {
    match given {
        Some(path) => read(path),
        None => match usual_file().filter(|path| !is_missing(path)) {
            Some(path) => read(&path),
            None => Ok(Options::default()),
        },
    }
}

/// `$XDG_CONFIG_HOME/trellis/config.toml`, or the same below `~/.config`.
pub fn usual_file() -> Option<PathBuf> {
    crate::state::xdg("XDG_CONFIG_HOME", ".config").map(|dir| dir.join("trellis/config.toml"))
}

/// Whether there is no such file. One that cannot be looked at is not taken for that: what it says would be left out.
fn is_missing(path: &Path) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotFound};
    path.metadata().is_err_and(|e| matches!(e.kind(), NotFound | NotADirectory))
}

fn read(path: &Path) -> Result<Options, String> {
    let shown = crate::show::text(path.as_os_str().as_encoded_bytes());
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|e| format!("configuration {shown}: {}", io_text(&e)))?;
    let meta = file.metadata().map_err(|e| format!("configuration {shown}: {}", io_text(&e)))?;
    if meta.is_file() && meta.mode() & 0o002 != 0 {
        let word = crate::show::path_word(path);
        return Err(format!(
            "configuration {shown}: every user can write it, and could let you run what he likes by an ssh configuration \
             of his: look whether it says what you wrote, then `chmod o-w {word}`"
        ));
    }
    let read = file.take(limits::CONFIG_FILE + 1).read_to_string(&mut text);
    let read = read.map_err(|e| format!("configuration {shown}: {}", io_text(&e)))?;
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
        if local && entry.mode.is_some_and(|mode| !matches!(mode, ModeName::Strict | ModeName::Ro)) {
            return Err(format!("home {}: a local: home is strict, or ro; remove its mode", entry.name));
        }
        let whole =
            if local { ModeName::Strict } else { entry.mode.or(options.mode).unwrap_or(ModeName::Wb) };
        let modes = vfs::Modes::new(whole.into(), entry.folders()?);
        modes.map_err(|e| format!("home {}: modes: {}", entry.name, e.detail))?;
        if whole == ModeName::Strict && !entry.conflicts.is_empty() {
            return Err(format!(
                "home {}: conflicts: it is strict, so that each change is made at once and meets none; remove the key",
                entry.name
            ));
        }
        let policies = vfs::Policies::new(entry.policies()?);
        policies.map_err(|e| format!("home {}: conflicts: {}", entry.name, e.detail))?;
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
    fn a_file_that_others_write_or_nobody_can_read_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("config.toml");
        std::fs::write(&file, "share = true\n").unwrap();
        assert!(load(Some(&file)).unwrap().share);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
        assert!(load(Some(&file)).unwrap_err().contains("chmod o-w"));
        assert!(
            is_missing(&temp.path().join("none")) && is_missing(&file.join("none")) && !is_missing(&file)
        );
        let turning = temp.path().join("turning");
        std::os::unix::fs::symlink("turning", &turning).unwrap();
        assert!(!is_missing(&turning));
    }

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
            modes = { "ref/genomes" = "ro", "/elsewhere" = "ro" }
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
        let folders: Vec<String> = lab.folders().unwrap().iter().map(|(f, m)| format!("{f} {m}")).collect();
        assert_eq!(folders, ["/elsewhere ro", "/data/ref/genomes ro"]);
        assert_eq!(lab.protect.as_ref().unwrap()[1].as_bytes(), b"work/keys");
        assert_eq!(options.home[1].protect, None);
    }

    #[test]
    fn further_homes_of_an_account_are_folders_with_their_modes() {
        let modes = |more: &str| {
            let text = format!("[[home]]\nname = \"a\"\nscl = \"scp:h:/\"\nmodes = {{ x = \"ro\" }}\n{more}");
            let homes = parse(&text).unwrap().home;
            let others: Vec<&HomeEntry> = homes[1..].iter().collect();
            homes[0]
                .modes_with(&others)
                .map(|all| all.iter().map(|(f, m)| format!("{f} {m}")).collect::<Vec<_>>())
        };
        let home = |name: &str, rest: &str| format!("[[home]]\nname = \"{name}\"\nscl = \"scp:h:{rest}\n");
        assert_eq!(modes("").unwrap(), ["/x ro"]);
        let scratch =
            home("b", "/s\"\nmode = \"owned\"\nmodes = { k = \"cto\" }") + &home("c", "/x\"\nmode = \"ro\"");
        assert_eq!(modes(&scratch).unwrap(), ["/s owned", "/s/k cto", "/x ro"]);
        assert_eq!(modes(&home("b", ".\"")).unwrap(), ["/x ro"]);
        assert!(modes(&home("b", ".\"\nmode = \"ro\"")).unwrap_err().contains("has the mode of home a"));
    }

    #[test]
    fn policies_of_conflicts_are_of_folders() {
        let text = "[[home]]\nname = \"a\"\nscl = \"scp:h:/x\"\nconflicts = { logs = \"append-merge\", \"/\" = \"stop\" }\n";
        let more =
            "[[home]]\nname = \"b\"\nscl = \"scp:h:/x/b\"\nconflicts = { db = \"strict-last-writer\" }\n";
        let homes = parse(&format!("{text}{more}")).unwrap().home;
        let all = homes[0].policies_with(&[&homes[1]]).unwrap();
        let all: Vec<String> = all.iter().map(|(folder, policy)| format!("{folder} {policy}")).collect();
        assert_eq!(all, ["/ stop", "/x/b/db strict-last-writer", "/x/logs append-merge"]);
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
            (home("a", "scl = \"lab\""), "[user@]host:/path"),
            (home("a", "scl = \"scp:-x:\""), "line 3"),
            (home("a/b", "scl = \"scp:a:\""), "not a name"),
            (home("..", "scl = \"scp:a:\""), "not a name"),
            (home("ann@lab", "scl = \"scp:a:\""), "user@host"),
            (home("scp:lab:", "scl = \"scp:a:\""), "colon"),
            (home(".hidden", "scl = \"scp:a:\""), "dot"),
            (home("a", "scl = \"local:/x\"\nmode = \"wb\""), "strict"),
            (home("a", "scl = \"local:/x\"\nmodes = { y = \"wb\" }"), "ro at most"),
            (home("a", "scl = \"scp:a:\"\nmode = \"fast\""), "fast"),
            (home("a", "scl = \"scp:a:/\"\nmodes = { x = \"strict\" }"), "only a home as a whole"),
            (home("a", "scl = \"scp:a:/\"\nmode = \"strict\"\nmodes = { x = \"wb\" }"), "ro at most"),
            (home("a", "scl = \"scp:a:.\"\nmodes = { x = \"ro\" }"), "from the root of the host"),
            (
                home("a", "scl = \"scp:a:/x\"\nmodes = { y = \"ro\", \"/x/y\" = \"wb\" }"),
                "/x/y has two modes",
            ),
            (home("a", "scl = \"scp:a:/\"\nmodes = { \"../x\" = \"ro\" }"), "not a name"),
            (home("a", "scl = \"scp:a:/\"\nconflicts = { x = \"newest\" }"), "keep-both, prefer-local, stop"),
            (
                home("a", "scl = \"scp:a:.\"\nconflicts = { x = \"stop\" }"),
                "conflicts: write x from the root",
            ),
            (
                home("a", "scl = \"scp:a:/\"\nmode = \"strict\"\nconflicts = { x = \"stop\" }"),
                "remove the key",
            ),
            (
                home("a", "scl = \"scp:a:/x\"\nconflicts = { y = \"stop\", \"/x/y\" = \"keep-both\" }"),
                "/x/y has two policies",
            ),
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
