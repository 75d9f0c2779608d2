//! The process's own figures, under the names that Prometheus' client libraries have for them.

use std::{fmt::Write as _, fs, io};

use rustix::process::{Resource, getrlimit};

/// Fields of `/proc/self/stat`, counted from the state behind the name (proc_pid_stat(5), less 3).
const USER_TICKS: usize = 11;
const SYSTEM_TICKS: usize = 12;
const THREADS: usize = 17;
const START_TICKS: usize = 19;
const VIRTUAL_BYTES: usize = 20;
const RESIDENT_PAGES: usize = 21;

/// One figure.
struct Figure {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    value: f64,
}

/// The figures in the text format; what cannot be read is left out. Reads `/proc`, so off the runtime.
pub(super) fn text() -> String {
    let mut text = String::new();
    for Figure {
        name,
        kind,
        help,
        value,
    } in figures().unwrap_or_default()
    {
        let value = if value.is_finite() {
            value.to_string()
        } else {
            "+Inf".to_owned()
        };
        // Writing to a string does not fail.
        let _ = writeln!(
            text,
            "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}"
        );
    }
    text
}

fn figures() -> io::Result<Vec<Figure>> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    // The name in parentheses may hold anything, so fields are counted from the last one that closes it.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let fields: Vec<f64> = after_name
        .split_whitespace()
        .map(|field| field.parse().unwrap_or_default())
        .collect();
    let field = |index: usize| fields.get(index).copied().unwrap_or_default();
    let ticks = whole(rustix::param::clock_ticks_per_second());
    let page_bytes = whole(u64::try_from(rustix::param::page_size()).unwrap_or_default());
    let descriptors = fs::read_dir("/proc/self/fd")?.count();
    let limit = getrlimit(Resource::Nofile).current;
    let gauge = |name, help, value| Figure {
        name,
        kind: "gauge",
        help,
        value,
    };
    Ok(vec![
        Figure {
            name: "process_cpu_seconds_total",
            kind: "counter",
            help: "Processor time of this process, user and system.",
            value: (field(USER_TICKS) + field(SYSTEM_TICKS)) / ticks,
        },
        gauge(
            "process_resident_memory_bytes",
            "Resident memory.",
            field(RESIDENT_PAGES) * page_bytes,
        ),
        gauge(
            "process_virtual_memory_bytes",
            "Virtual memory.",
            field(VIRTUAL_BYTES),
        ),
        gauge("process_threads", "Threads.", field(THREADS)),
        gauge(
            "process_open_fds",
            "Open file descriptors.",
            whole(u64::try_from(descriptors).unwrap_or_default()),
        ),
        gauge(
            "process_max_fds",
            "Open file descriptors at most.",
            limit.map_or(f64::INFINITY, whole),
        ),
        gauge(
            "process_start_time_seconds",
            "Start of this process, in seconds since 1970.",
            booted()? + field(START_TICKS) / ticks,
        ),
    ])
}

/// When the machine was started, in seconds since 1970.
fn booted() -> io::Result<f64> {
    let stat = fs::read_to_string("/proc/stat")?;
    let booted = stat.lines().find_map(|line| line.strip_prefix("btime "));
    booted
        .and_then(|text| text.trim().parse().ok())
        .ok_or_else(|| io::Error::other("no btime in /proc/stat"))
}

/// Exact below 2^53, which nothing here reaches.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts, bytes and ticks of one process"
)]
const fn whole(number: u64) -> f64 {
    number as f64
}
