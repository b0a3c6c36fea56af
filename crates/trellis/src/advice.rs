//! Commands that a message tells a person to run. Whoever was given a state directory has to be given it again.

use std::path::Path;
use std::sync::OnceLock;

/// What to add to a command; set once, from the command line.
static ADDED: OnceLock<String> = OnceLock::new();

/// Remembers the state directory that was named on the command line of this process.
pub fn remember(state: &Path) {
    // There is one command line.
    let _ = ADDED.set(format!(" --state {}", crate::show::path_word(state)));
}

/// The message, in which each command of this program in backquotes names the state directory, too.
pub fn complete(message: &str) -> String {
    ADDED.get().map_or_else(|| message.to_owned(), |added| with(message, added))
}

/// What has to be added to a command that stands in no backquotes.
pub fn addition() -> &'static str {
    ADDED.get().map_or("", String::as_str)
}

fn with(message: &str, added: &str) -> String {
    let parts = message.split('`').enumerate().map(|(at, part)| {
        let quoted = at % 2 == 1 && part.starts_with("trellis ") && !part.contains(" --state ");
        let is_for_a_server = !part.ends_with("--help") && !part.starts_with("trellis man");
        if quoted && is_for_a_server { format!("{part}{added}") } else { part.to_owned() }
    });
    parts.collect::<Vec<_>>().join("`")
}

#[cfg(test)]
mod tests {
    use super::with;

    #[test]
    fn a_command_in_a_message_names_the_state_directory() {
        for (message, want) in [
            ("start it with `trellis mount`", "start it with `trellis mount --state /s`"),
            ("`trellis ls HOST:` or `ssh HOST`", "`trellis ls HOST: --state /s` or `ssh HOST`"),
            ("`trellis login --state /t lab`", "`trellis login --state /t lab`"),
            ("`trellis ls --help` lists them", "`trellis ls --help` lists them"),
            ("trellis mount", "trellis mount"),
            ("a ` alone", "a ` alone"),
        ] {
            assert_eq!(with(message, " --state /s"), want);
        }
    }
}
