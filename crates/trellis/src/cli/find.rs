//! `trellis find`: the usual part of find(1), in the order of a walk, names in the order of their bytes.

use super::files::{entry, shown};
use super::glob::fits as glob;
use super::json::{self, ENTRY};
use super::output::stdout;
use super::reach::{Each, PATHS, TreeArgs, below};
use super::{Done, Failure};
use crate::limits;
use crate::tree::{Attr, Node, Tree, follow, list_all, look};
use clap::Args;
use home::{Error, ErrorKind};
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::str::FromStr;
use std::time::{SystemTime, UNIX_EPOCH};

/// The predicates, and whether a value follows.
const PREDICATES: [(&str, bool); 13] = [
    ("name", true),
    ("iname", true),
    ("path", true),
    ("type", true),
    ("size", true),
    ("mtime", true),
    ("mmin", true),
    ("newer", true),
    ("maxdepth", true),
    ("mindepth", true),
    ("empty", false),
    ("print", false),
    ("print0", false),
];

/// Arguments of `find`.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  trellis find ann@lab/data -name '*.log' -mtime +30
  trellis find scp:lab:src -type f -size +1M -print0 | xargs -0 trellis stat
  trellis find --json ann@lab/data -maxdepth 1 | jq -r .path

A predicate is written with one dash or two. All of them must hold; there is no -o, no -exec.

{PATHS}

{ENTRY}"))]
pub struct FindArgs {
    #[command(flatten)]
    tree: TreeArgs,

    /// Print JSON
    #[arg(long)]
    json: bool,

    /// The name fits this pattern of `*`, `?` and `[...]`
    #[arg(long, value_name = "GLOB", allow_hyphen_values = true)]
    name: Vec<OsString>,

    /// The same; small and capital letters are alike
    #[arg(long, value_name = "GLOB", allow_hyphen_values = true)]
    iname: Vec<OsString>,

    /// The whole path fits this pattern, in which `*` also stands for slashes
    #[arg(long = "path", value_name = "GLOB", allow_hyphen_values = true)]
    whole: Vec<OsString>,

    /// One of these types, joined by commas: f (file), d (directory), l (symbolic link), p, s
    #[arg(long = "type", value_name = "TYPE", value_delimiter = ',')]
    kind: Vec<Kind>,

    /// So many units, rounded up; +N is more, -N is less; b (512 bytes, the default), c (bytes), w, k, M, G
    #[arg(long, value_name = "[+-]N[bcwkMG]", allow_hyphen_values = true)]
    size: Vec<Size>,

    /// Changed so many whole days ago; +N is longer, -N is shorter
    #[arg(long, value_name = "[+-]N", allow_hyphen_values = true)]
    mtime: Vec<Amount>,

    /// The same in minutes
    #[arg(long, value_name = "[+-]N", allow_hyphen_values = true)]
    mmin: Vec<Amount>,

    /// Changed after this path was
    #[arg(long, value_name = "PATH")]
    newer: Vec<OsString>,

    /// Go no deeper than this below each PATH
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = depth)]
    maxdepth: Option<usize>,

    /// Leave out what is less deep than this
    #[arg(long, value_name = "N", allow_hyphen_values = true, value_parser = depth)]
    mindepth: Option<usize>,

    /// Files of no bytes, directories of no names
    #[arg(long)]
    empty: bool,

    /// Print lines, which is what happens anyway
    #[arg(long)]
    print: bool,

    /// End each path with a NUL instead of a new line
    #[arg(long, conflicts_with = "json")]
    print0: bool,

    /// Where to begin [default: the current directory in a mount of the tree, else the root of the tree]
    paths: Vec<OsString>,
}

/// Writes the predicates of a `find` command with two dashes, as the parser of the command line wants them.
pub(super) fn with_two_dashes(args: Vec<OsString>) -> Vec<OsString> {
    if args.get(super::command_at(&args)).is_none_or(|c| c != "find") {
        return args;
    }
    let mut is_value = false;
    let each = args.into_iter().map(|arg| {
        let word = arg.as_bytes().strip_prefix(b"-").map(|w| w.strip_prefix(b"-").unwrap_or(w).to_vec());
        let predicate = word.and_then(|w| PREDICATES.iter().find(|(name, _)| name.as_bytes() == w));
        match predicate.filter(|_| !is_value) {
            Some((name, takes_value)) => {
                is_value = *takes_value;
                format!("--{name}").into()
            }
            None => {
                is_value = false;
                arg
            }
        }
    });
    each.collect()
}

/// The first word of a `find` command, whose predicates have two dashes, that looks like a predicate and is none.
pub(super) fn unknown(args: &[OsString]) -> Option<Vec<u8>> {
    let (command, words) = args.get(super::command_at(args)..)?.split_first()?;
    if command != "find" {
        return None;
    }
    let mut is_value = false;
    for word in words.iter().map(|w| w.as_bytes()) {
        let known = PREDICATES.iter().find(|(name, _)| word.strip_prefix(b"--") == Some(name.as_bytes()));
        let one_dash = word.len() > 2 && word[0] == b'-' && word[1] != b'-';
        if (one_dash || is_operator(word)) && !is_value {
            return Some(word.to_vec());
        }
        is_value = known.is_some_and(|(_, takes_value)| *takes_value);
    }
    None
}

/// What find(1) never takes for a path. Without it a search would answer with what it was to leave out.
fn is_operator(word: &[u8]) -> bool {
    matches!(word, b"!" | b"(" | b")" | b",")
}

/// For whoever used it.
pub(super) fn unsupported(predicate: &[u8]) -> String {
    let names: Vec<String> = PREDICATES.iter().map(|(name, _)| format!("-{name}")).collect();
    let what = match predicate {
        b"-exec" | b"-execdir" | b"-ok" | b"-okdir" | b"-delete" => {
            "; what is found is passed on by `-print0 | xargs -0 COMMAND`"
        }
        _ => "",
    };
    format!(
        "unknown predicate `{}'{what}; the predicates are {}",
        crate::show::text(predicate),
        names.join(" ")
    )
}

/// A number of levels.
pub(super) fn depth(text: &str) -> Result<usize, String> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| digits).ok_or_else(|| "write a number of levels, such as 0 or 2".into())
}

/// A type, by the letter that ls(1) shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kind(char);

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Kind, String> {
        Ok(Kind(match text {
            "f" => '-',
            "d" => 'd',
            "l" => 'l',
            "p" => 'p',
            "s" => 's',
            _ => return Err("the types are f, d, l, p, s".into()),
        }))
    }
}

/// A number, or all that are more or less.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Amount {
    sign: Option<char>,
    number: u64,
}

impl FromStr for Amount {
    type Err = String;

    fn from_str(text: &str) -> Result<Amount, String> {
        let sign = text.chars().next().filter(|c| matches!(c, '+' | '-'));
        let digits = &text[sign.map_or(0, char::len_utf8)..];
        let number = digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok()).flatten();
        number.map(|number| Amount { sign, number }).ok_or_else(|| "write N, +N or -N".into())
    }
}

impl Amount {
    fn fits(&self, value: i128) -> bool {
        let number = i128::from(self.number);
        match self.sign {
            Some('+') => value > number,
            Some(_) => value < number,
            None => value == number,
        }
    }
}

/// A number of units of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Size {
    amount: Amount,
    unit: u64,
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let (number, unit) = match text.char_indices().next_back() {
            Some((at, letter)) if letter.is_alphabetic() => {
                let unit = match letter {
                    'b' => 512,
                    'c' => 1,
                    'w' => 2,
                    'k' => 1 << 10,
                    'M' => 1 << 20,
                    'G' => 1 << 30,
                    _ => return Err("the units are b, c, w, k, M, G".into()),
                };
                (&text[..at], unit)
            }
            _ => (text, 512),
        };
        Ok(Size { amount: number.parse()?, unit })
    }
}

/// What has to hold of an object.
struct Tests<'a> {
    args: &'a FindArgs,
    /// Seconds since 1970.
    now: i64,
    /// Changed after this.
    newer: Option<(i64, u32)>,
}

impl Tests<'_> {
    /// Whether the object passes; an empty directory is told elsewhere.
    fn pass(&self, path: &[u8], name: &[u8], a: &Attr) -> bool {
        let args = self.args;
        let age = i128::from(self.now) - i128::from(a.mtime.0);
        let lower = |text: &[u8]| text.to_ascii_lowercase();
        args.name.iter().all(|p| glob(p.as_bytes(), name))
            && args.iname.iter().all(|p| glob(&lower(p.as_bytes()), &lower(name)))
            && args.whole.iter().all(|p| glob(p.as_bytes(), path))
            && (args.kind.is_empty() || args.kind.contains(&Kind(a.kind)))
            && args.size.iter().all(|s| s.amount.fits(a.size.div_ceil(s.unit).into()))
            && args.mtime.iter().all(|t| t.fits(age.div_euclid(86_400)))
            && args.mmin.iter().all(|t| t.fits(age.div_euclid(60)))
            && self.newer.is_none_or(|n| a.mtime > n)
            && (!args.empty || a.is_dir() || a.is_file() && a.size == 0)
    }
}

pub(super) async fn find(args: FindArgs) -> Done {
    let mut reach = args.tree.reach().await?;
    if let Some(operator) = args.paths.iter().find(|path| is_operator(path.as_bytes())) {
        return Err(Failure::Usage(unsupported(operator.as_bytes())));
    }
    let starts = reach.starts(&args.paths)?;
    let mut newer = None;
    for (arg, path) in args.newer.iter().zip(reach.tree_paths(&args.newer)?) {
        let node = follow(&mut *reach.tree, &path).await;
        let node = node.map_err(|e| super::named(arg.as_bytes(), &e))?;
        newer = newer.max(Some(node.attr.mtime));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs() as i64;
    let mut each = Each::new();
    let tests = Tests { args: &args, now, newer };
    for (arg, path) in starts {
        let done = match look(&mut *reach.tree, &path).await {
            Ok(node) => {
                let mut walk = Walk { tree: &mut *reach.tree, tests: &tests, each: &mut each };
                let name = arg.split(|b| *b == b'/').rfind(|p| !p.is_empty()).unwrap_or(b"/").to_vec();
                walk.object(&node, &mut arg.clone(), &name, 0).await
            }
            Err(e) => Err(e.into()),
        };
        each.note(&arg, done)?;
    }
    each.end()
}

/// A walk in progress.
struct Walk<'a> {
    tree: &'a mut dyn Tree,
    tests: &'a Tests<'a>,
    each: &'a mut Each,
}

impl Walk<'_> {
    async fn object(&mut self, node: &Node, path: &mut Vec<u8>, name: &[u8], depth: usize) -> Done {
        let args = self.tests.args;
        let wanted = depth >= args.mindepth.unwrap_or(0) && self.tests.pass(path, name, &node.attr);
        let goes_down = node.attr.is_dir() && args.maxdepth.is_none_or(|max| depth < max);
        let looks = goes_down || wanted && args.empty && node.attr.is_dir();
        let listed = if looks { list_all(self.tree, node).await } else { Ok(Vec::new()) };
        let is_empty = !node.attr.is_dir() || listed.as_ref().is_ok_and(Vec::is_empty);
        if wanted && (!args.empty || is_empty) {
            self.print(path, node).await?;
        }
        let entries = match listed {
            Ok(entries) if goes_down => entries,
            Ok(_) => return Ok(()),
            Err(e) => {
                self.each.complain(path, &e);
                return Ok(());
            }
        };
        if depth >= limits::DEPTH {
            self.each.complain(path, &Error::new(ErrorKind::Loop, "directories are nested too deeply"));
            return Ok(());
        }
        for (name, child) in entries {
            let len = path.len();
            *path = below(path, &name);
            let child = match child {
                Some(child) => Ok(child),
                None => self.tree.lookup(node, &name).await,
            };
            match child {
                Ok(child) => Box::pin(self.object(&child, path, &name, depth + 1)).await?,
                // Gone since it was listed.
                Err(e) if e.kind == ErrorKind::NotFound => {}
                Err(e) => self.each.complain(path, &e),
            }
            path.truncate(len);
        }
        Ok(())
    }

    async fn print(&mut self, path: &[u8], node: &Node) -> Done {
        let args = self.tests.args;
        if args.json {
            return json::line(&entry(self.tree, path, Some(node)).await);
        }
        let mut text = if args.print0 { path.to_vec() } else { shown(path) };
        text.push(if args.print0 { 0 } else { b'\n' });
        Ok(stdout().write_all(&text)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        find: FindArgs,
    }

    fn parse(line: &str) -> FindArgs {
        let words = std::iter::once("trellis").chain(line.split_whitespace()).map(OsString::from);
        let words = with_two_dashes(words.collect());
        Line::try_parse_from(&words[1..]).unwrap_or_else(|e| panic!("{line}: {e}")).find
    }

    fn passes(line: &str, path: &str, attr: &Attr) -> bool {
        let args = parse(line);
        let name = path.rsplit('/').next().unwrap();
        Tests { args: &args, now: 1_000_000, newer: None }.pass(path.as_bytes(), name.as_bytes(), attr)
    }

    #[test]
    fn one_dash_is_enough() {
        let args = parse("find lab:/x -name -name -type f -size -10k -maxdepth 2 -print0");
        assert_eq!((args.name, args.maxdepth, args.print0), (vec!["-name".into()], Some(2), true));
        assert_eq!(args.size[0], Size { amount: Amount { sign: Some('-'), number: 10 }, unit: 1024 });
        assert_eq!(args.paths, ["lab:/x"]);
        let other: Vec<OsString> = ["trellis", "ls", "-name"].map(OsString::from).to_vec();
        assert_eq!(with_two_dashes(other.clone()), other);
    }

    #[test]
    fn predicates_hold_as_in_find() {
        let file = Attr { kind: '-', size: 1025, mtime: (1_000_000 - 86_400 - 5, 0), ..Attr::default() };
        for (line, want) in [
            ("", true),
            ("-name *.c", true),
            ("-name *.h", false),
            ("-name a?c*", true),
            ("-iname A.C", false),
            ("-iname *.C", true),
            ("-path */abc.c", true),
            ("-path abc.c", false),
            ("-type f", true),
            ("-type d,l", false),
            ("-type d,f", true),
            ("-size 3", true),
            ("-size 2k", true),
            ("-size +1k", true),
            ("-size -2k", false),
            ("-size 1025c", true),
            ("-size -1M", false),
            ("-mtime 1", true),
            ("-mtime +0", true),
            ("-mtime -1", false),
            ("-mmin +1439", true),
            ("-mmin -1440", false),
            ("-empty", false),
            ("-name *.c -type d", false),
        ] {
            assert_eq!(passes(&format!("find {line}"), "x/abc.c", &file), want, "{line}");
        }
    }

    #[test]
    fn a_predicate_that_is_none_is_named() {
        let unknown = |line: &str| {
            let words = ["trellis"].into_iter().chain(line.split_whitespace()).map(OsString::from).collect();
            unknown(&with_two_dashes(words)).map(|w| String::from_utf8(w).unwrap())
        };
        assert_eq!(unknown("find /x -name -exec -exec ls {} ;").as_deref(), Some("-exec"));
        assert_eq!(unknown("find /x -type f -delete").as_deref(), Some("-delete"));
        assert_eq!(unknown("find /x -maxdepth -1 --json"), None);
        assert_eq!(unknown("find . ! -type d").as_deref(), Some("!"));
        assert_eq!(unknown("find /x -name !"), None);
        assert_eq!(unknown("ls -exec"), None);
        assert!(unsupported(b"-exec").contains("xargs -0"));
        assert!(unsupported(b"-perm").starts_with("unknown predicate `-perm'; the predicates are -name"));
    }

    #[test]
    fn nonsense_is_refused() {
        for line in
            ["-type x", "-size 1q", "-size k", "-mtime soon", "-mtime +-1", "-maxdepth -1", "-exec ls"]
        {
            let words =
                std::iter::once("trellis").chain(std::iter::once("find")).chain(line.split_whitespace());
            let words = with_two_dashes(words.map(OsString::from).collect());
            assert!(Line::try_parse_from(&words[1..]).is_err(), "{line}");
        }
    }
}
