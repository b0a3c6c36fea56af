//! What the command line takes, and what it refuses with exit code 2.

use super::*;
use clap::CommandFactory;
use clap::error::ErrorKind;

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::try_parse_from(std::iter::once("trellis").chain(line.split_whitespace()))
}

#[test]
fn clap_finds_no_fault() {
    Cli::command().debug_assert();
}

#[test]
fn serve_takes_what_the_manual_says() {
    let line = "serve --listen 127.0.0.1:0 --listen [::1]:2050 --allow 10.0.0.0/8:ro --allow desk --hosts *.org \
                --state /s --config /c --ssh-config /f --mode strict --share --no-root-squash --insecure --ready /r \
                --cache 2G --staleness 1s --allow-network-state";
    let Command::Serve(args) = parse(line).unwrap().command else { panic!("not serve") };
    let o = &args.options;
    assert_eq!((o.listen.len(), o.allow.len(), o.hosts.len()), (2, 2, 1));
    assert!(o.share && o.no_root_squash && o.insecure && o.allow_network_state);
    assert_eq!(o.mode, Some(crate::options::ModeName::Strict));
    assert_eq!(o.cache, Some(crate::options::Size(2 << 30)));
}

#[test]
fn wrong_usage_is_told_apart_from_failure() {
    for line in [
        "",
        "fly",
        "serve --listen nowhere",
        "serve --listen 127.0.0.1",
        "serve --allow 10.0.0.1/8",
        "serve --mode fast",
        "serve --hosts a;b",
        "serve --cache much",
        "serve extra",
        "status --jsn",
        "sync --timeout soon",
        "sync a b",
        "stop --drain -1",
        "stat",
        "cp",
        "cp one",
    ] {
        let error = parse(line).expect_err(line);
        assert_eq!(error.exit_code(), 2, "{line}");
    }
    assert_eq!(parse("--help").unwrap_err().kind(), ErrorKind::DisplayHelp);
    assert_eq!(parse("--version").unwrap_err().exit_code(), 0);
}

#[test]
fn every_command_understands_state() {
    for words in
        ["serve", "status", "sync", "stop", "ls", "stat /x", "cat /x", "cp a scp:lab:/b", "service logs"]
    {
        for line in [format!("{words} --state /s"), format!("--state /s {words}")] {
            assert!(parse(&line).is_ok(), "{line}");
        }
    }
    let Command::Stop(args) = parse("--state /s stop").unwrap().command else { panic!("not stop") };
    assert_eq!(args.state().dir.as_deref(), Some(std::path::Path::new("/s")));
}

#[test]
fn the_command_is_found_behind_the_state_directory() {
    for (line, at) in [
        ("trellis", 1),
        ("trellis find x", 1),
        ("trellis --state /s find", 3),
        ("trellis --state=/s find", 2),
        ("trellis --state", 3),
        ("trellis --stateful", 1),
    ] {
        let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        assert_eq!(command_at(&args), at, "{line}");
    }
}
