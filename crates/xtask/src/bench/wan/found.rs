//! What was measured: figures by the lines and the columns of the table, and the middle one of several runs.

use crate::bench::report::median;
use crate::e2e::Counts;

/// Columns of the table; others are mounts of other programs, and tools.
pub const TRELLIS: &str = "Trellis";
/// The same over a wire without delay or limit.
pub const NEAR: &str = "Trellis, 0 ms";
/// The same where the files are: without a mount, wire or login.
pub const AT_HOME: &str = "at the home";
pub const RAW: &str = "raw TCP";

/// What one mount or tool needed for one step.
#[derive(Debug, Clone, Copy)]
pub enum Figure {
    /// It was ended.
    Over,
    /// It failed, or did something else.
    Wrong,
    Took(Cost),
}

impl Figure {
    /// Without end for what was not done.
    pub fn seconds(&self) -> f64 {
        match self {
            Figure::Took(cost) => cost.seconds,
            Figure::Over | Figure::Wrong => f64::INFINITY,
        }
    }
}

/// What it needed.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    pub seconds: f64,
    /// Seconds after which the work itself returned, before all of it was at the home.
    pub returned: f64,
    /// Bytes that the wire carried, by [`crate::wan_link::link::Way`].
    pub wire: [u64; 2],
    /// What Trellis counts.
    pub counts: Option<Counts>,
    /// System calls, where the work counts them.
    pub calls: Option<u64>,
    /// Which part of their time all processors of the machine were busy: those of the home, the wire and the work, too.
    pub busy: f64,
}

/// A line of the table, a name of a column, and a figure.
pub type Found = (&'static str, &'static str, Figure);

/// The median of the runs; what was ended is longer than what was not.
pub fn middle(found: &[Found], row: &str, name: &str) -> Option<Figure> {
    let all = found.iter().filter(|(line, who, _)| *line == row && *who == name);
    let mut all: Vec<Figure> = all.map(|(.., figure)| *figure).collect();
    all.sort_by(|a, b| a.seconds().total_cmp(&b.seconds()));
    let middle = all.get(all.len() / 2)?;
    Some(match middle {
        Figure::Over | Figure::Wrong => *middle,
        Figure::Took(cost) => {
            let of = |part: fn(&Cost) -> f64| {
                median(
                    all.iter()
                        .filter_map(|f| if let Figure::Took(c) = f { Some(part(c)) } else { None })
                        .collect(),
                )
            };
            let wire = [of(|c| c.wire[0] as f64) as u64, of(|c| c.wire[1] as f64) as u64];
            Figure::Took(Cost {
                seconds: cost.seconds,
                returned: of(|c| c.returned),
                wire,
                counts: cost.counts,
                calls: cost.calls,
                busy: of(|c| c.busy),
            })
        }
    })
}

/// How many times as long as at 0 ms Trellis takes until the work returns, and how many seconds more: medians of what each run
/// shows by itself, where it is done as often at 0 ms in each. `None` where any of them did not come to its end.
pub fn beside_near(found: &[Found], row: &str) -> Option<(f64, f64)> {
    let returned = |name: &'static str| -> Option<Vec<f64>> {
        let all = found.iter().filter(|(line, who, _)| *line == row && *who == name);
        all.map(|(.., figure)| if let Figure::Took(cost) = figure { Some(cost.returned) } else { None })
            .collect()
    };
    let (far, near) = (returned(TRELLIS)?, returned(NEAR)?);
    let near = near.chunks((near.len() / far.len().max(1)).max(1));
    let near = near.map(|run| run.iter().sum::<f64>() / run.len() as f64);
    let runs: Vec<(f64, f64)> = far.into_iter().zip(near).collect();
    let of = |part: fn(&(f64, f64)) -> f64| median(runs.iter().map(part).collect());
    (!runs.is_empty()).then(|| (of(|(far, near)| far / near), of(|(far, near)| far - near)))
}

/// The same, where the work was done.
pub fn cost_of(found: &[Found], row: &str, name: &str) -> Option<Cost> {
    match middle(found, row, name)? {
        Figure::Took(cost) => Some(cost),
        Figure::Over | Figure::Wrong => None,
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::bench::mounts::SSHFS;
    use crate::bench::wan::Options;

    pub fn options() -> Options {
        Options {
            rtt: 60.0,
            mbit: 100.0,
            mib: 64,
            entries: 11,
            cap: 60,
            alone: false,
            sftp: false,
            judge: false,
        }
    }

    pub fn took(seconds: f64) -> Figure {
        Figure::Took(Cost {
            seconds,
            returned: seconds / 2.0,
            wire: [1_000_000, 2_500_000],
            counts: Some(Counts {
                trips: 7,
                bytes: [500_000, 2_000_000],
                hits: 3,
                misses: 4,
                requests: 9,
                waited: 5,
            }),
            calls: None,
            busy: 0.75,
        })
    }

    #[test]
    fn what_was_ended_counts_as_longest() {
        let found = [took(1.0), Figure::Over, Figure::Over].map(|f| ("a row", SSHFS, f));
        assert!(matches!(middle(&found, "a row", SSHFS), Some(Figure::Over)));
        let found = [took(1.0), took(2.0), Figure::Over].map(|f| ("a row", SSHFS, f));
        assert!(matches!(middle(&found, "a row", SSHFS), Some(Figure::Took(c)) if c.seconds == 2.0));
    }

    #[test]
    fn a_run_is_compared_with_itself() {
        let runs = [(2.0, [1.0, 3.0]), (8.0, [5.0, 7.0]), (4.0, [2.0, 2.0])];
        let rows = |(far, [before, after]): (f64, [f64; 2])| [(NEAR, before), (TRELLIS, far), (NEAR, after)];
        let figures = runs.into_iter().flat_map(rows);
        let found: Vec<Found> = figures.map(|(name, seconds)| ("a row", name, took(seconds))).collect();
        // They returned after half the time.
        assert_eq!(beside_near(&found, "a row"), Some((8.0 / 6.0, 1.0)));
        assert_eq!(beside_near(&found, "another row"), None);
        let ended = [found, vec![("a row", NEAR, Figure::Over)]].concat();
        assert_eq!(beside_near(&ended, "a row"), None);
    }
}
