//! The table as a picture: for each line a bar for everybody who did the work, over a logarithmic time.

use super::Options;
use super::found::{Cost, Figure, Found, RAW, TRELLIS, middle};
use super::rows::{self, Step};
use crate::bench::mounts::{RCLONE, SSHFS, SSHFS_TUNED};
use std::fmt::Write;

/// Left of the bars, the bars, and right of them, in pixels.
const WIDTHS: [f64; 3] = [190.0, 620.0, 70.0];
/// From one bar to the next, and from one line of the table to the next besides.
const BAR: f64 = 13.0;
const LINE: f64 = 30.0;
/// Above the first line, where the axis is.
const TOP: f64 = 40.0;
/// Where the axis begins, in seconds.
const SHORTEST: f64 = 0.02;

/// Who did the work, in the order of the bars; tools follow.
const MOUNTS: [&str; 5] = [TRELLIS, SSHFS, SSHFS_TUNED, RCLONE, RAW];

/// An SVG of what was found.
pub fn svg(found: &[Found], options: &Options) -> String {
    let axis = Axis::new(found, options);
    let (mut body, mut y) = (String::new(), TOP);
    for step in rows::ALL.iter().flat_map(|work| work.steps) {
        let names = MOUNTS.into_iter().chain(step.tools.iter().map(|(tool, _)| *tool));
        let bars: Vec<_> = names.filter_map(|name| Some((name, middle(found, step.name, name)?))).collect();
        if bars.is_empty() {
            continue;
        }
        y += LINE;
        body += &text(4.0, y - 6.0, "title", &title(step, options));
        for (name, figure) in bars {
            body += &axis.bar(y, name, figure);
            y += BAR;
        }
    }
    let (width, height) = (WIDTHS.iter().sum::<f64>(), y + LINE);
    let head = format!(
        "{} ms round trip, {} Mbit/s: seconds, on a logarithmic axis; shorter is better",
        options.rtt, options.mbit
    );
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n<style>.title {{ font-weight: bold }} \
         .name {{ text-anchor: end }} .tick {{ text-anchor: middle; fill: #666 }}</style>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{}{}{body}</svg>\n",
        text(4.0, 16.0, "head", &head),
        axis.ticks(height),
    )
}

fn title(step: &Step, options: &Options) -> String {
    let targets: Vec<_> = step.targets.iter().map(|target| target.text(options)).collect();
    match targets.is_empty() {
        true => step.name.to_owned(),
        false => format!("{} (target: {})", step.name, targets.join("; ")),
    }
}

/// Where a time is.
struct Axis {
    longest: f64,
}

impl Axis {
    fn new(found: &[Found], options: &Options) -> Self {
        let longest = found.iter().map(|(.., figure)| match figure {
            Figure::Took(cost) => cost.seconds,
            Figure::Over => options.cap as f64,
            Figure::Wrong => 0.0,
        });
        Self { longest: longest.fold(1.0, f64::max) }
    }

    fn x(&self, seconds: f64) -> f64 {
        let part = (seconds.max(SHORTEST) / SHORTEST).ln() / (self.longest / SHORTEST).ln();
        WIDTHS[0] + WIDTHS[1] * part
    }

    /// Lines at powers of ten.
    fn ticks(&self, height: f64) -> String {
        let powers = (-1..).map(|power| 10f64.powi(power)).take_while(|seconds| *seconds <= self.longest);
        powers.fold(String::new(), |mut out, seconds| {
            let x = self.x(seconds);
            let _ = writeln!(out, "<path d=\"M{x:.1} {TOP}V{height:.0}\" stroke=\"#ddd\"/>");
            out + &text(x, TOP - 6.0, "tick", &format!("{seconds} s"))
        })
    }

    /// A bar; one that was ended has no end.
    fn bar(&self, y: f64, name: &str, figure: Figure) -> String {
        let colour = match name {
            TRELLIS => "#087f5b",
            SSHFS | SSHFS_TUNED => "#e8a33d",
            RCLONE => "#d9605a",
            RAW => "#999",
            _ => "#5b8bd0",
        };
        let (end, opacity, said) = match figure {
            Figure::Took(Cost { seconds, .. }) => (self.x(seconds), 1.0, format!("{seconds:.2}")),
            Figure::Over => (WIDTHS[0] + WIDTHS[1], 0.35, "not in time".to_owned()),
            Figure::Wrong => (WIDTHS[0], 1.0, "fails".to_owned()),
        };
        let (from, height) = (WIDTHS[0], BAR - 3.0);
        let length = (end - from).max(1.0);
        let mut out = text(from - 6.0, y + 9.0, "name", name);
        let _ = writeln!(
            out,
            "<rect x=\"{from}\" y=\"{y}\" width=\"{length:.1}\" height=\"{height}\" fill=\"{colour}\" \
             fill-opacity=\"{opacity}\"/>"
        );
        out + &text(from + length + 4.0, y + 9.0, "value", &said)
    }
}

fn text(x: f64, y: f64, class: &str, said: &str) -> String {
    let said = said.replace('&', "&amp;").replace('<', "&lt;");
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\">{said}</text>\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::wan::found::tests::{options, took};

    #[test]
    fn a_tenth_of_the_time_is_as_much_shorter_everywhere() {
        let step = &rows::ALL[0].steps[0];
        let found = [
            (step.name, TRELLIS, took(1.0)),
            (step.name, SSHFS, took(10.0)),
            (step.name, "scp", took(100.0)),
        ];
        let axis = Axis::new(&found, &options());
        let [a, b, c] = [1.0, 10.0, 100.0].map(|seconds| axis.x(seconds));
        assert!((b - a - (c - b)).abs() < 1e-9 && c == WIDTHS[0] + WIDTHS[1], "{a} {b} {c}");
        let svg = svg(&found, &options());
        assert_eq!(svg.matches("<rect").count(), 4, "the background and three bars: {svg}");
        assert!(svg.contains(">10.00</text>") && svg.contains("class=\"name\">scp<"), "{svg}");
    }

    #[test]
    fn what_was_ended_reaches_to_the_end() {
        let step = &rows::ALL[0].steps[0];
        let found = [(step.name, SSHFS, Figure::Over), (step.name, TRELLIS, took(0.001))];
        let svg = svg(&found, &options());
        assert!(svg.contains(&format!("width=\"{:.1}\"", WIDTHS[1])), "{svg}");
        assert!(svg.contains(">not in time<"), "{svg}");
    }
}
