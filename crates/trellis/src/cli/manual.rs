//! Help, shell completion and man pages, all from the one definition of each command; and what exit codes mean.

use super::output::stdout;
use super::{Cli, Done, Failure};
use clap::{Args, Command, CommandFactory, ValueEnum};
use std::io::Write;

/// Arguments of `completions`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trellis completions bash > ~/.local/share/bash-completion/completions/trellis
  trellis completions zsh > ~/.zfunc/_trellis         # with ~/.zfunc in $fpath
  trellis completions fish > ~/.config/fish/completions/trellis.fish")]
pub struct CompletionsArgs {
    /// Which shell
    shell: Shell,
}

/// A shell that can complete.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// Arguments of `man`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  trellis man cp | man -l -
  trellis man > ~/.local/share/man/man1/trellis.1")]
pub struct ManArgs {
    /// A command, with its subcommand if it has some [default: the program]
    command: Vec<String>,
}

/// Commands, and what their exit codes mean besides 0.
type Exits = (&'static [&'static str], &'static [(u8, &'static str)]);

/// Exit codes that are not 0 for done, 1 for failed, 2 for wrong usage. File commands have those of their twins.
const EXITS: &[Exits] = &[
    (
        &["ls"],
        &[
            (1, "something below a directory that is listed cannot be shown"),
            (2, "an argument cannot be listed, or wrong usage"),
        ],
    ),
    (
        &["stat", "cat", "mv", "rm", "mkdir", "ln", "find", "du", "df", "touch", "chmod"],
        &[(1, "something failed, or wrong usage")],
    ),
    (&["cp"], &[(1, "something was not copied, or wrong usage"), (130, "interrupted from the keyboard")]),
];

/// What exit codes of a command mean, besides 0.
fn exits(name: &str) -> Vec<(u8, &'static str)> {
    let own = EXITS.iter().find(|(names, _)| names.contains(&name));
    let mut exits =
        own.map_or_else(|| vec![(1, "something failed"), (2, "wrong usage")], |(_, exits)| exits.to_vec());
    if matches!(name, "mv" | "prefetch") {
        exits.push((130, "interrupted from the keyboard"));
    }
    exits
}

/// Whether a command has a Unix twin.
fn is_twin(name: &str) -> bool {
    EXITS.iter().any(|(names, _)| names.contains(&name))
}

/// The exit code of a command that was not used as it can be.
pub(super) fn usage_code(name: &str) -> u8 {
    if is_twin(name) && name != "ls" { 1 } else { 2 }
}

/// What to say of an option that a command with a twin does not have, unless the parser knows a similar one.
pub(super) fn unknown_option(name: &str, e: &clap::Error) -> Option<String> {
    use clap::error::{ContextKind, ContextValue};
    if !is_twin(name) || e.get(ContextKind::SuggestedArg).is_some() {
        return None;
    }
    match e.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(option)) => Some(format!(
            "unknown option `{}': {name} has a part of its twin's options here, which `trellis {name} --help` lists",
            crate::show::text(option.as_bytes())
        )),
        _ => None,
    }
}

/// The exit code of a command that could not do its work at all, or say what it found.
pub(super) fn trouble_code(name: &str) -> u8 {
    if name == "ls" { 2 } else { 1 }
}

/// All commands, each with its exit codes at the end of its help.
pub(super) fn command() -> Command {
    Cli::command().mut_subcommands(|sub| {
        let mut text = sub.get_after_help().map(|t| t.to_string() + "\n\n").unwrap_or_default();
        text.push_str("Exit status:\n  0    done\n");
        for (code, meaning) in exits(sub.get_name()) {
            text.push_str(&format!("  {code:<4} {meaning}\n"));
        }
        sub.after_help(text.trim_end().to_owned())
    })
}

pub(super) fn completions(args: &CompletionsArgs) -> Done {
    let shell = match args.shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command(), "trellis", &mut text);
    Ok(stdout().write_all(&text)?)
}

pub(super) fn man(args: &ManArgs) -> Done {
    Ok(stdout().write_all(&page(&args.command)?)?)
}

/// A man page in roff.
fn page(path: &[String]) -> Result<Vec<u8>, Failure> {
    let mut program = command();
    // Gives each command its full name, and the options that all have.
    program.build();
    let mut found = &program;
    for name in path {
        let next = found.find_subcommand(name);
        found = next.ok_or_else(|| {
            Failure::Usage(format!(
                "no command `{}`: `trellis --help` lists them",
                crate::show::text(name.as_bytes())
            ))
        })?;
    }
    let after = found.get_after_help().map(ToString::to_string).unwrap_or_default();
    let man = clap_mangen::Man::new(found.clone());
    let mut out = Vec::new();
    man.render_title(&mut out)?;
    man.render_name_section(&mut out)?;
    man.render_synopsis_section(&mut out)?;
    man.render_description_section(&mut out)?;
    man.render_options_section(&mut out)?;
    if found.has_subcommands() {
        man.render_subcommands_section(&mut out)?;
    }
    sections(&after, &mut out);
    Ok(out)
}

/// The end of a help as sections: paragraphs that begin with a heading of their own, the others as notes.
fn sections(text: &str, out: &mut Vec<u8>) {
    let mut last = "";
    for paragraph in text.split("\n\n").filter(|p| !p.trim().is_empty()) {
        let (heading, body) = match paragraph.split_once('\n') {
            Some(("Examples:", body)) => ("EXAMPLES", body),
            Some(("Exit status:", body)) => ("EXIT STATUS", body),
            _ => ("NOTES", paragraph),
        };
        if heading == last {
            out.extend_from_slice(b".PP\n");
        } else {
            out.extend_from_slice(format!(".SH {heading:?}\n").as_bytes());
        }
        last = heading;
        let table = body.lines().any(|l| l.starts_with(' '));
        if table {
            out.extend_from_slice(b".nf\n");
        }
        for line in body.lines() {
            // A dot or a quote at the start would be a request.
            let guard = if line.starts_with(['.', '\'']) { "\\&" } else { "" };
            let line = line.replace('\\', "\\e").replace('-', "\\-");
            out.extend_from_slice(format!("{guard}{line}\n").as_bytes());
        }
        if table {
            out.extend_from_slice(b".fi\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The commands that a person gives; hidden ones are started by others.
    fn all() -> Vec<(Vec<String>, Command)> {
        let command = command();
        let shown = command.get_subcommands().filter(|c| !c.is_hide_set());
        shown.map(|c| (vec![c.get_name().to_owned()], c.clone())).collect()
    }

    #[test]
    fn every_command_has_help_an_example_and_exit_codes_in_its_man_page() {
        for (path, command) in all() {
            let name = &path[0];
            assert!(command.get_about().is_some(), "{name} has no help");
            for arg in command.get_arguments() {
                assert!(arg.get_help().is_some(), "{name}: {} has no help", arg.get_id());
            }
            let page = String::from_utf8(page(&path).unwrap()).unwrap();
            for part in [format!("trellis\\-{name}"), "EXIT STATUS".into(), "wrong usage".into()] {
                assert!(page.contains(&part), "{name}: no {part} in\n{page}");
            }
            let example = page.split("EXAMPLES").nth(1).unwrap_or_default();
            assert!(
                example.contains(&format!("trellis {name}").replace('-', "\\-")),
                "{name} has no example\n{page}"
            );
        }
        let program = String::from_utf8(page(&[]).unwrap()).unwrap();
        assert!(program.contains("trellis") && program.contains("SUBCOMMANDS"), "{program}");
        assert!(matches!(page(&["fly".into()]), Err(Failure::Usage(_))));
    }

    #[test]
    fn each_shell_completes_each_command() {
        for shell in [clap_complete::Shell::Bash, clap_complete::Shell::Zsh, clap_complete::Shell::Fish] {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut command(), "trellis", &mut text);
            let text = String::from_utf8(text).unwrap();
            for (path, _) in all() {
                assert!(text.contains(&path[0]), "{shell}: {path:?}");
            }
        }
    }

    #[test]
    fn wrong_usage_ends_as_with_the_twin() {
        for (name, code) in [("ls", 2), ("cp", 1), ("find", 1), ("rm", 1), ("status", 2), ("serve", 2)] {
            assert_eq!(usage_code(name), code, "{name}");
        }
    }

    #[test]
    fn roff_is_not_taken_for_requests() {
        let mut out = Vec::new();
        sections("Examples:\n  a -b\n\n.dot \\x\nmore", &mut out);
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, ".SH \"EXAMPLES\"\n.nf\n  a \\-b\n.fi\n.SH \"NOTES\"\n\\&.dot \\ex\nmore\n");
    }
}
