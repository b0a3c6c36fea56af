//! The table.

use super::Options;
use super::found::{AT_HOME, Cost, Figure, Found, NEAR, RAW, TRELLIS, beside_near, cost_of, middle};
use super::rows::{self, Step};
use super::targets::share_of_raw;
use crate::bench::mounts::{self, RCLONE, SSHFS, SSHFS_TUNED};
use crate::bench::report;
use crate::e2e::Counts;
use anyhow::Result;

/// What was found, with how it was made.
pub fn table(found: &[Found], options: &Options, runs: usize) -> Result<String> {
    let mut out = format!(
        "Made by `cargo xtask bench wan --runs {runs} {}` on {}, {}, {}.\n{} Seconds, of a tool with its login, and \
         (MB that passed the wire, up + down). `>`: ended after {} s. \
         `fails`: it failed, or did something else. ✓, ✗: Trellis reached the target or missed it.\n\n",
        options.arguments().join(" "),
        report::machine()?,
        mounts::version("sshfs", "--version")?,
        mounts::version("rclone", "version")?,
        match runs {
            1 => "One run.",
            _ => "Medians of these runs; a mount that was ended in the first one was not tried again.",
        },
        options.cap,
    );
    let peers = [SSHFS, SSHFS_TUNED, RCLONE, RAW];
    out += &format!(
        "| work | target | {TRELLIS} | round trips | hits, misses | requests that waited | MB counted | processors busy | {} | tools |\n\
         |---|---|---|---|---|---|---|---|{}---|\n",
        peers.join(" | "),
        "---|".repeat(peers.len())
    );
    for step in rows::ALL.iter().flat_map(|work| work.steps) {
        if found.iter().any(|(row, ..)| *row == step.name) {
            out += &line(found, step, &peers, options);
        }
    }
    Ok(format!("{out}\n![The same as bars]({}.svg)\n", options.section()))
}

fn line(found: &[Found], step: &Step, peers: &[&'static str], options: &Options) -> String {
    let cell = |name: &str| middle(found, step.name, name).map_or("–".into(), |f| shown(f, options));
    let ours = cost_of(found, step.name, TRELLIS);
    let counts = match ours {
        Some(Cost { counts: Some(c), .. }) => {
            let [up, down] = c.bytes.map(|bytes| bytes as f64 / 1e6);
            let Counts { trips, hits, misses, waited, requests, .. } = c;
            let busy = ours.map_or(0.0, |cost| cost.busy * 100.0);
            format!("{trips} | {hits}, {misses} | {waited} of {requests} | {up:.2} + {down:.2} | {busy:.0} %")
        }
        _ => "– | – | – | – | –".into(),
    };
    let others: Vec<_> = peers.iter().map(|peer| cell(peer)).collect();
    let tools = step.tools.iter().map(|(tool, _)| tool).filter(|tool| options.allows(tool));
    let tools: Vec<_> = tools.map(|tool| format!("{tool} {}", cell(tool))).collect();
    let raw = share_of_raw(found, step.name, options);
    let raw = raw.map(|share| format!(", {share:.0} % of raw")).unwrap_or_default();
    let near = shown_beside_near(found, step, options);
    let at_home = cost_of(found, step.name, AT_HOME);
    let at_home = at_home.map(|there| format!(", at the home {:.2}", there.seconds)).unwrap_or_default();
    let in_trips = match ours {
        Some(cost) if step.in_trips => format!(", {:.1} RTT", cost.seconds / options.rtt * 1e3),
        _ => String::new(),
    };
    format!(
        "| {} | {} | {}{raw}{near}{at_home}{in_trips} | {counts} | {} | {} |\n",
        step.name,
        targets(found, step, options),
        cell(TRELLIS),
        others.join(" | "),
        if tools.is_empty() { "–".into() } else { tools.join(", ") },
    )
}

/// What is to be reached, each with a mark that tells whether it was.
fn targets(found: &[Found], step: &Step, options: &Options) -> String {
    let marked = step.targets.iter().map(|target| {
        let mark = target.judge(step.name, found, options).mark();
        target.text(options) + mark
    });
    marked.collect::<Vec<_>>().join("; ")
}

/// When it returned, compared with the same over a wire without delay or limit.
fn shown_beside_near(found: &[Found], step: &Step, options: &Options) -> String {
    let both = (cost_of(found, step.name, TRELLIS), cost_of(found, step.name, NEAR));
    let ((Some(ours), Some(near)), Some((times, more))) = (both, beside_near(found, step.name)) else {
        return String::new();
    };
    let trips = more / options.rtt * 1e3;
    let each = |n: u64, what: &str| match n {
        0 => String::new(),
        n => format!(", {:.2} for each of {n} {what}", trips / n as f64),
    };
    let waited = ours.counts.map_or(0, |c| c.waited);
    let each = ours.calls.map(|n| each(n, "calls") + &each(waited, "requests that waited"));
    format!(
        "; returned after {:.2}, at 0 ms {:.2}: {times:.2} of it, {trips:.0} RTT more{}",
        ours.returned,
        near.returned,
        each.unwrap_or_default()
    )
}

fn shown(figure: Figure, options: &Options) -> String {
    match figure {
        Figure::Over => format!("> {}", options.cap),
        Figure::Wrong => "fails".into(),
        Figure::Took(Cost { seconds, wire: [up, down], .. }) => {
            format!("{seconds:.2} ({:.2} + {:.2})", up as f64 / 1e6, down as f64 / 1e6)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::wan::found::tests::{options, took};
    use crate::bench::wan::rows::ALL;

    #[test]
    fn a_line_shows_medians_and_what_is_reached_of_a_raw_stream() {
        let read = &ALL[0].steps[0];
        let mut found: Vec<Found> = [9.0, 5.36, 1.0].map(|s| (read.name, TRELLIS, took(s))).to_vec();
        found.extend([
            (read.name, RAW, took(5.0)),
            (read.name, SSHFS, Figure::Over),
            (read.name, "scp", took(6.0)),
        ]);
        let line = line(&found, read, &[SSHFS, RCLONE, RAW], &options());
        // 5.36 s less 6 RTT are 5 s.
        assert!(
            line.contains("| 95 % of raw TCP, less 6 RTT ✓ | 5.36 (1.00 + 2.50), 100 % of raw | 7 | 3, 4 | 5 of 9 | 0.50 + 2.00 | 75 % | > 60 | – | 5.00 (1.00 + 2.50) |"),
            "{line}"
        );
        assert!(line.contains("scp 6.00 (1.00 + 2.50), sftp –"), "{line}");
    }

    #[test]
    fn a_line_shows_what_the_wire_adds() {
        let read = &ALL[0].steps[0];
        let calls = |figure, n| match figure {
            Figure::Took(cost) => Figure::Took(Cost { calls: Some(n), ..cost }),
            figure => figure,
        };
        // They returned after half the time: 6 s and 3 s, which are 50 RTT more.
        let found = [(read.name, TRELLIS, calls(took(12.0), 100)), (read.name, NEAR, calls(took(6.0), 100))];
        let line = line(&found, read, &[], &options());
        let expected = "returned after 6.00, at 0 ms 3.00: 2.00 of it, 50 RTT more, 0.50 for each of 100 calls, 10.00 for each of 5 requests that waited | 7 |";
        assert!(line.contains(expected), "{line}");
    }
}
