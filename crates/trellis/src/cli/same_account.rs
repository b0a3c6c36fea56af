//! `trellis login --same-account`: a person says that an account is the one that it was, and sees before what depends on it.

use super::control::reach;
use super::output::stdout;
use super::{Done, Failure, StateArg};
use crate::control::client::unexpected;
use crate::control::proto::{Reply, Request};
use crate::control::report::HomeReport;
use crate::show;
use home::{ErrorKind, io_text};
use std::io::{IsTerminal as _, Write as _};

pub(super) async fn confirm(state: &StateArg, name: &str, yes: bool) -> Done {
    let mut client = reach(state).await?.client;
    let shown = show::text(name.as_bytes());
    let failed = |e: home::Error| match e.kind {
        ErrorKind::Invalid => Failure::Usage(format!("{shown}: {}", show::message(&e.detail))),
        _ => Failure::from(format!("{shown}: {}", show::message(&e.detail))),
    };
    let ask = Request::SameAccount { home: name.to_owned(), token: None };
    let (token, text) = match client.ask(ask).await.map_err(failed)? {
        Reply::Stranger { token, home, compared } => (token, described(&home, &compared)),
        _ => return Err(unexpected().into()),
    };
    stdout().write_all(text.as_bytes())?;
    if !yes && !agreed(&shown)? {
        return Err("nothing is changed: the home stays suspended".to_owned().into());
    }
    let say = Request::SameAccount { home: name.to_owned(), token: Some(token) };
    match client.ask(say).await.map_err(failed)? {
        Reply::Done => {
            Ok(writeln!(stdout(), "{shown} is the account that it was; what is unsent goes there")?)
        }
        _ => Err(unexpected().into()),
    }
}

fn described(home: &HomeReport, compared: &[String]) -> String {
    let mut text = format!("{}\n", show::message(home.reason.as_deref().unwrap_or(&home.account)));
    for line in compared {
        text += &format!("  {}\n", show::message(line));
    }
    text += &match home.unsent_ops {
        0 => "unsent: nothing\n".to_owned(),
        ops => format!("unsent: {}, {}\n", show::count(ops, "change"), show::size(home.unsent_bytes)),
    };
    if !home.parked.is_empty() {
        text += &format!("of these the home refused {}\n", home.refused());
    }
    text
}

/// Asks at the terminal.
fn agreed(shown: &str) -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() {
        return Err(Failure::Usage(
            "there is no terminal to ask at: --yes says it without being asked".into(),
        ));
    }
    let mut out = std::io::stderr();
    write!(out, "Is {shown} the account that it was? Unsent changes go there then. [y/N] ")
        .and_then(|()| out.flush())
        .ok();
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    read.map_err(|e| format!("the answer cannot be read: {}", io_text(&e)))?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
