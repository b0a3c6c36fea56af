//! What Trellis is to reach in a row: how the table says it, and whether the figures of a run reach it.

use super::Options;
use super::found::{AT_HOME, Figure, Found, RAW, TRELLIS, beside_near, cost_of, middle};
use super::rows::{self, Step};
use crate::bench::mounts::{RCLONE, SSHFS, SSHFS_TUNED};

/// A target, for a wire of 60 ms; a row may have several. Seconds are those of the row, until what it wrote is durable at
/// the home. RTT are round trips of the wire, as a time.
#[derive(Debug, Clone, Copy)]
pub enum Target {
    /// At least [`wanted_of_raw`] percent of what one raw TCP stream moves; see [`share_of_raw`].
    Raw,
    /// Seconds: at most RTT and seconds more than Trellis takes for another row of the same mount.
    After { row: &'static str, trips: f64, seconds: f64 },
    /// Seconds: at most so many more than at the home, and if wanted the time of the bytes that came over the wire.
    AtHome { seconds: f64, bytes: bool },
    /// Seconds: at most RTT, and the time of these bytes at 90 % of the link.
    Link { trips: f64, bytes: u64 },
    /// Seconds at most.
    Seconds(f64),
    /// Seconds: at most so many RTT.
    Trips(f64),
    /// At most so many round trips as Trellis counts itself.
    Counted(u64),
    /// At most so many requests of the kernel that wait for the home. It may be asked for what nobody waits for.
    Waits(u64),
    /// MiB that went up the wire at most.
    Sent(f64),
    /// The work returns after at most so many times what it takes at 0 ms.
    TimesNear(f64),
    /// It returns at most so many RTT later than at 0 ms.
    TripsPastNear(f64),
    /// The same for each request of the kernel that waited for the home.
    TripsForEachWait(f64),
}

/// What a target was judged by.
struct Reached {
    figure: f64,
    wanted: f64,
    /// Whether the figure is to be at least what is wanted, instead of at most.
    at_least: bool,
    unit: &'static str,
    /// What follows the unit of the figure.
    of: &'static str,
}

/// Whether a target was reached, and by which figure.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    Met(String),
    Missed(String),
    /// Not measured: the row, or what it is compared with.
    Unknown,
}

/// Lines about all rows that were measured.
pub struct Judged {
    /// Of targets that were met or not measured.
    pub others: Vec<String>,
    /// Of targets that were missed, and of rows in which others are quicker.
    pub missed: Vec<String>,
}

/// How many times as long as the best tool Trellis may take.
const BESIDE_TOOLS: f64 = 1.5;

impl Target {
    /// As the table says it.
    pub fn text(&self, options: &Options) -> String {
        match *self {
            Target::Raw => format!("{} % of raw TCP, less 6 RTT", wanted_of_raw(options)),
            Target::After { row, trips, seconds } => format!("{trips} RTT and {seconds} s more than {row}"),
            Target::AtHome { seconds, bytes } => {
                let bytes = if bytes { " and the bytes" } else { "" };
                format!("{seconds} s{bytes} more than at the home")
            }
            Target::Link { trips: 0.0, .. } => "bytes at 90 % of the link".into(),
            Target::Link { trips, .. } => format!("{trips} RTT and bytes at 90 % of the link"),
            Target::Seconds(most) => format!("{most} s"),
            Target::Trips(most) => format!("{most} RTT"),
            Target::Counted(most) => format!("{most} round trips"),
            Target::Waits(most) => format!("{most} requests that wait"),
            Target::Sent(most) => format!("{most} MiB sent"),
            Target::TimesNear(most) => format!("returns within {most} of 0 ms"),
            Target::TripsPastNear(most) => format!("returns within {most} RTT more than at 0 ms"),
            Target::TripsForEachWait(most) => format!("{most} RTT for each request that waits"),
        }
    }

    /// Whether Trellis reached it in a row.
    pub fn judge(&self, row: &str, found: &[Found], options: &Options) -> Verdict {
        match (middle(found, row, TRELLIS), self.reached(row, found, options)) {
            (Some(Figure::Over), _) => Verdict::Missed(format!("ended after {} s", options.cap)),
            (Some(Figure::Wrong), _) => Verdict::Missed("failed".into()),
            (_, None) => Verdict::Unknown,
            (_, Some(reached)) => reached.verdict(),
        }
    }

    fn reached(&self, row: &str, found: &[Found], options: &Options) -> Option<Reached> {
        let ours = cost_of(found, row, TRELLIS)?;
        let (rtt, rate) = (options.rtt / 1e3, options.bytes_per_second());
        let at_most = |figure, wanted, unit, of| Reached { figure, wanted, at_least: false, unit, of };
        let within = |seconds| at_most(ours.seconds, seconds, "s", "");
        let times_near = || beside_near(found, row).map(|(times, _)| times);
        let trips_past_near = || beside_near(found, row).map(|(_, seconds)| seconds / rtt);
        Some(match *self {
            Target::Raw => Reached {
                figure: share_of_raw(found, row, options)?,
                wanted: wanted_of_raw(options),
                at_least: true,
                unit: "%",
                of: " of raw TCP",
            },
            Target::After { row, trips, seconds } => {
                within(cost_of(found, row, TRELLIS)?.seconds + trips * rtt + seconds)
            }
            Target::AtHome { seconds, bytes } => {
                let [_, down] = ours.wire;
                let moved = if bytes { down as f64 / rate } else { 0.0 };
                within(cost_of(found, row, AT_HOME)?.seconds + seconds + moved)
            }
            Target::Link { trips, bytes } => within(trips * rtt + bytes as f64 / (0.9 * rate)),
            Target::Seconds(most) => within(most),
            Target::Trips(most) => at_most(ours.seconds / rtt, most, "RTT", ""),
            Target::Counted(most) => at_most(ours.counts?.trips as f64, most as f64, "round trips", ""),
            Target::Waits(most) => {
                at_most(ours.counts?.waited as f64, most as f64, "requests that waited", "")
            }
            Target::Sent(most) => at_most(ours.wire[0] as f64 / f64::from(1 << 20), most, "MiB", " sent"),
            Target::TimesNear(most) => {
                at_most(times_near()?, most, "times", " as long as at 0 ms until it returns")
            }
            Target::TripsPastNear(most) => {
                at_most(trips_past_near()?, most, "RTT", " more than at 0 ms until it returns")
            }
            Target::TripsForEachWait(most) => {
                let waits = ours.counts?.waited.max(1) as f64;
                at_most(trips_past_near()? / waits, most, "RTT", " for each request that waited")
            }
        })
    }
}

impl Reached {
    fn verdict(self) -> Verdict {
        let Reached { figure, wanted, at_least, unit, of } = self;
        let (met, word) = match at_least {
            true => (figure >= wanted, "wanted"),
            false => (figure <= wanted, "allowed"),
        };
        let said = format!("{} {unit}{of}, {} {unit} {word}", short(figure), short(wanted));
        if met { Verdict::Met(said) } else { Verdict::Missed(said) }
    }
}

impl Verdict {
    /// What follows a target in the table.
    pub fn mark(&self) -> &'static str {
        match self {
            Verdict::Met(_) => " ✓",
            Verdict::Missed(_) => " ✗",
            Verdict::Unknown => "",
        }
    }
}

/// Percent of a raw TCP stream, as a narrow wire or a wide one allows.
fn wanted_of_raw(options: &Options) -> f64 {
    if options.mbit > 100.0 { 90.0 } else { 95.0 }
}

/// Of what a raw stream moves in the same time, how many percent Trellis does when 6 RTT are taken off.
pub fn share_of_raw(found: &[Found], row: &str, options: &Options) -> Option<f64> {
    let (ours, raw) = (cost_of(found, row, TRELLIS)?, cost_of(found, row, RAW)?);
    // What takes no longer than that is quicker than any stream.
    let ours = (ours.seconds - 6.0 * options.rtt / 1e3).max(0.0);
    Some(raw.seconds / ours * 100.0)
}

/// Two digits, without zeros at the end.
fn short(figure: f64) -> String {
    let digits = format!("{figure:.2}");
    digits.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Judges each row of the work that was measured.
pub fn judge(found: &[Found], options: &Options) -> Judged {
    let mut judged = Judged { others: Vec::new(), missed: Vec::new() };
    let measured = |step: &Step| found.iter().any(|(row, ..)| *row == step.name);
    let works = rows::ALL.iter().filter(|work| work.steps.iter().any(measured));
    for step in works.flat_map(|work| work.steps) {
        let row = step.name;
        for target in step.targets {
            match target.judge(row, found, options) {
                Verdict::Met(said) => judged.others.push(format!("met     {row}: {said}")),
                Verdict::Missed(said) => {
                    let busy = cost_of(found, row, TRELLIS).map(|cost| cost.busy * 100.0);
                    let busy = busy.map(|busy| format!("; processors {busy:.0} % busy")).unwrap_or_default();
                    judged.missed.push(format!("missed  {row}: {said}{busy}"));
                }
                Verdict::Unknown => {
                    judged.others.push(format!("not measured  {row}: {}", target.text(options)));
                }
            }
        }
        judged.missed.extend(quicker_mounts(step, found));
        judged.missed.extend(quicker_tool(step, found));
    }
    judged
}

/// Mounts of others that take less time for a row than Trellis, as far as the table shows it.
fn quicker_mounts(step: &Step, found: &[Found]) -> Vec<String> {
    let Some(ours) = middle(found, step.name, TRELLIS) else {
        return Vec::new();
    };
    let hundredths = |figure: &Figure| (figure.seconds() * 100.0).round();
    let theirs = [SSHFS, SSHFS_TUNED, RCLONE].map(|name| Some((name, middle(found, step.name, name)?)));
    let quicker = theirs.into_iter().flatten().filter(|(_, theirs)| hundredths(theirs) < hundredths(&ours));
    let line = |(name, theirs)| format!("lost    {}: {}", step.name, beside(ours, name, theirs));
    quicker.map(line).collect()
}

/// The best tool, where Trellis takes more than [`BESIDE_TOOLS`] times as long.
fn quicker_tool(step: &Step, found: &[Found]) -> Option<String> {
    let ours = middle(found, step.name, TRELLIS)?;
    let tools = step.tools.iter().filter_map(|(tool, _)| Some((*tool, middle(found, step.name, tool)?)));
    let (tool, best) = tools.min_by(|(_, a), (_, b)| a.seconds().total_cmp(&b.seconds()))?;
    (ours.seconds() > BESIDE_TOOLS * best.seconds()).then(|| {
        format!("slower  {}: {}, {BESIDE_TOOLS} times as long allowed", step.name, beside(ours, tool, best))
    })
}

fn beside(ours: Figure, name: &str, theirs: Figure) -> String {
    let seconds = |figure: Figure| match figure {
        Figure::Took(cost) => format!("{:.2} s", cost.seconds),
        Figure::Over => "not in time".into(),
        Figure::Wrong => "fails".into(),
    };
    format!("{TRELLIS} {}, {name} {}", seconds(ours), seconds(theirs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::wan::found::NEAR;
    use crate::bench::wan::found::tests::{options, took};

    fn met(said: &str) -> Verdict {
        Verdict::Met(said.to_owned())
    }

    fn missed(said: &str) -> Verdict {
        Verdict::Missed(said.to_owned())
    }

    /// Trellis took 6 s and returned after 3 s, and so on in proportion.
    fn found() -> Vec<Found> {
        vec![
            ("row", TRELLIS, took(6.0)),
            ("row", NEAR, took(5.0)),
            ("row", AT_HOME, took(3.9)),
            ("row", RAW, took(5.3)),
            ("warm", TRELLIS, took(4.9)),
        ]
    }

    #[test]
    fn a_target_is_met_or_missed_by_its_figure() {
        let after = |trips| Target::After { row: "warm", trips, seconds: 1.0 };
        let at_home = |bytes| Target::AtHome { seconds: 2.0, bytes };
        let link = |trips| Target::Link { trips, bytes: 5 * 11_250_000 };
        let each = " for each request that waited";
        for (target, verdict) in [
            (after(3.0), met("6 s, 6.08 s allowed")),
            (after(1.0), missed("6 s, 5.96 s allowed")),
            (at_home(true), met("6 s, 6.1 s allowed")),
            (at_home(false), missed("6 s, 5.9 s allowed")),
            (link(20.0), met("6 s, 6.2 s allowed")),
            (link(4.0), missed("6 s, 5.24 s allowed")),
            (Target::Seconds(6.0), met("6 s, 6 s allowed")),
            (Target::Seconds(4.0), missed("6 s, 4 s allowed")),
            (Target::Trips(2.5), missed("100 RTT, 2.5 RTT allowed")),
            (Target::Counted(7), met("7 round trips, 7 round trips allowed")),
            (Target::Counted(2), missed("7 round trips, 2 round trips allowed")),
            (Target::Waits(5), met("5 requests that waited, 5 requests that waited allowed")),
            (Target::Waits(0), missed("5 requests that waited, 0 requests that waited allowed")),
            (Target::Sent(1.2), met("0.95 MiB sent, 1.2 MiB allowed")),
            (Target::Sent(0.9), missed("0.95 MiB sent, 0.9 MiB allowed")),
            (
                Target::TimesNear(1.25),
                met("1.2 times as long as at 0 ms until it returns, 1.25 times allowed"),
            ),
            (
                Target::TimesNear(1.1),
                missed("1.2 times as long as at 0 ms until it returns, 1.1 times allowed"),
            ),
            (Target::TripsPastNear(60.0), met("8.33 RTT more than at 0 ms until it returns, 60 RTT allowed")),
            (
                Target::TripsPastNear(8.0),
                missed("8.33 RTT more than at 0 ms until it returns, 8 RTT allowed"),
            ),
            (Target::TripsForEachWait(1.7), met(&format!("1.67 RTT{each}, 1.7 RTT allowed"))),
            (Target::TripsForEachWait(1.05), missed(&format!("1.67 RTT{each}, 1.05 RTT allowed"))),
        ] {
            assert_eq!(target.judge("row", &found(), &options()), verdict, "{target:?}");
        }
    }

    #[test]
    fn a_wide_wire_has_its_own_share_of_a_raw_stream() {
        // 6 s less 6 RTT are 5.64 s.
        let judged = |mbit| Target::Raw.judge("row", &found(), &Options { mbit, ..options() });
        assert_eq!(judged(100.0), missed("93.97 % of raw TCP, 95 % wanted"));
        assert_eq!(judged(1000.0), met("93.97 % of raw TCP, 90 % wanted"));
    }

    #[test]
    fn what_was_not_measured_is_neither_met_nor_missed() {
        let after = Target::After { row: "warm", trips: 1.0, seconds: 1.0 };
        let (alone, counted) = ([("row", TRELLIS, took(6.0))], Target::Counted(9));
        for target in
            [Target::Raw, after, Target::AtHome { seconds: 2.0, bytes: true }, Target::TimesNear(1.1)]
        {
            assert_eq!(target.judge("row", &alone, &options()), Verdict::Unknown, "{target:?}");
        }
        assert_eq!(counted.judge("another row", &alone, &options()), Verdict::Unknown);
        assert!(matches!(counted.judge("row", &alone, &options()), Verdict::Met(_)));
        let ended = [("row", TRELLIS, Figure::Over)];
        assert_eq!(Target::Raw.judge("row", &ended, &options()), missed("ended after 60 s"));
    }

    #[test]
    fn rows_that_others_win_have_lines_of_their_own() {
        let row = rows::ALL[0].steps[0].name;
        let found = [
            (row, TRELLIS, took(5.0)),
            (row, SSHFS, took(4.0)),
            // In the table it is as quick.
            (row, SSHFS_TUNED, took(4.998)),
            (row, RCLONE, Figure::Over),
            (row, "scp", took(3.5)),
            (row, "rsync", took(3.0)),
        ];
        let Judged { others, missed } = judge(&found, &options());
        assert_eq!(others, [format!("not measured  {row}: 95 % of raw TCP, less 6 RTT")]);
        let expected = [
            format!("lost    {row}: Trellis 5.00 s, sshfs 4.00 s"),
            format!("slower  {row}: Trellis 5.00 s, rsync 3.00 s, 1.5 times as long allowed"),
        ];
        assert_eq!(missed, expected);
    }

    #[test]
    fn what_a_target_compares_with_is_measured() {
        for (work, step) in rows::ALL.iter().flat_map(|work| work.steps.iter().map(move |s| (work, s))) {
            for target in step.targets {
                let there = match target {
                    Target::Raw => step.raw.is_some(),
                    Target::After { row, .. } => work.steps.iter().any(|other| other.name == *row),
                    Target::AtHome { .. } => !step.at_home.is_empty(),
                    Target::TimesNear(_) | Target::TripsPastNear(_) | Target::TripsForEachWait(_) => {
                        work.near
                    }
                    Target::Trips(_) => step.in_trips,
                    _ => true,
                };
                assert!(there, "{}: {target:?}", step.name);
            }
        }
    }
}
