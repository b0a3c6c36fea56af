//! Medians, and the table in docs/BENCHMARKS.md.

use super::servers::Target;
use super::workload::Workload;
use crate::run;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// One measurement.
#[derive(Debug, Clone, Copy)]
pub struct Figure {
    /// Units per second.
    pub rate: f64,
    /// CPU time of the server's process per unit.
    pub cpu: Duration,
}

impl std::fmt::Display for Figure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/s @ {}", short(self.rate), micros(self.cpu))
    }
}

/// All measurements.
#[derive(Default)]
pub struct Report {
    figures: BTreeMap<(&'static str, &'static str), Vec<Figure>>,
    /// For each server, by how many bytes its process grew for each entry of the tree.
    pub memory: Vec<(&'static str, u64)>,
}

impl Report {
    /// Adds one.
    pub fn add(&mut self, workload: &'static str, server: &'static str, figure: Figure) {
        self.figures.entry((workload, server)).or_default().push(figure);
    }

    /// The table, with how it was made.
    pub fn table(
        &self,
        workloads: &[&Workload],
        servers: &[Target],
        runs: usize,
        time: Duration,
    ) -> Result<String> {
        let mut out = format!(
            "Made by `cargo xtask bench nfs --runs {runs} --seconds {}` on {}, {}.\n\
             Medians of {runs} interleaved runs: rate, and CPU time of the server's process for each unit.\n\n",
            time.as_secs(),
            machine()?,
            ganesha_version()?,
        );
        let heads: Vec<_> = servers.iter().map(|s| s.name).collect();
        out +=
            &format!("| call | connections × in flight | {} | CPU, Trellis ÷ ganesha |\n", heads.join(" | "));
        out += &format!("|---|---|{}---|\n", "---|".repeat(heads.len()));
        for w in workloads {
            out += &self.row(w, &heads);
        }
        let memory: Vec<_> = self.memory.iter().map(|(s, bytes)| format!("{s} {bytes} bytes")).collect();
        out += &format!(
            "\nMemory for each entry of the whole tree, after the first walk: {}.\n",
            memory.join(", ")
        );
        Ok(out)
    }

    fn row(&self, w: &Workload, servers: &[&'static str]) -> String {
        let middle_of = |server: &&'static str| self.figures.get(&(w.name, *server)).map(|all| middle(all));
        let cell = |m: Option<Figure>| m.map_or("–".to_string(), |f| f.to_string());
        let cells: Vec<_> = servers.iter().map(|s| cell(middle_of(s))).collect();
        // The last server that was asked is the one that gives the same promise.
        let mut asked = servers.iter().filter_map(middle_of);
        let (ours, theirs) = (asked.next(), asked.next_back());
        let ratio = ours.zip(theirs).map_or(f64::NAN, |(a, b)| a.cpu.as_secs_f64() / b.cpu.as_secs_f64());
        let (c, q, unit) = (w.shape.connections, w.shape.depth, w.unit);
        format!("| {} ({unit}) | {c} × {q} | {} | {ratio:.2} |\n", w.name, cells.join(" | "))
    }
}

/// The middle one, or the greater one of two.
pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn middle(all: &[Figure]) -> Figure {
    let (mut rates, mut cpus): (Vec<_>, Vec<_>) = all.iter().map(|f| (f.rate, f.cpu)).unzip();
    rates.sort_by(f64::total_cmp);
    cpus.sort();
    Figure { rate: rates[rates.len() / 2], cpu: cpus[cpus.len() / 2] }
}

/// A rate with three digits.
fn short(rate: f64) -> String {
    match rate {
        r if r >= 1e6 => format!("{:.2} M", r / 1e6),
        r if r >= 1e4 => format!("{:.1} k", r / 1e3),
        r => format!("{r:.0}"),
    }
}

fn micros(cpu: Duration) -> String {
    format!("{:.2} µs", cpu.as_secs_f64() * 1e6)
}

/// What the figures were made on.
pub fn machine() -> Result<String> {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    Ok(format!("{}, {} CPUs, Linux {}", cpu_model(), std::thread::available_parallelism()?, kernel.trim()))
}

fn cpu_model() -> String {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = info.lines().find(|l| l.starts_with("model name"));
    line.and_then(|l| l.split(": ").nth(1)).unwrap_or("an unknown CPU").to_string()
}

/// Which nfs-ganesha is there.
pub fn ganesha_version() -> Result<String> {
    let said = run::output(Command::new("ganesha.nfsd").arg("-v"))?;
    Ok(said.lines().next().unwrap_or("nfs-ganesha").trim().to_string())
}

/// Puts a table between its markers in a document.
pub fn splice(document: &Path, section: &str, table: &str) -> Result<()> {
    let text = fs::read_to_string(document)?;
    let place = place(&text, section)?;
    Ok(fs::write(document, format!("{}{table}{}", &text[..place.start], &text[place.end..]))?)
}

/// What is between the markers of a section.
pub fn place(text: &str, section: &str) -> Result<Range<usize>> {
    let (begin, end) =
        (format!("<!-- bench {section}: begin -->\n"), format!("<!-- bench {section}: end -->"));
    let missing = || format!("the document has no place for {section}: `--dry` prints the table only");
    let begin = text.find(&begin).with_context(missing)? + begin.len();
    let end = text[begin..].find(&end).with_context(missing)? + begin;
    Ok(begin..end)
}
