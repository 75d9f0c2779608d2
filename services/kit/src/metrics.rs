//! Figures of a process, and their page for Prometheus (CONTRACT.md, section 8).
//!
//! Invariants:
//! - Every metric is declared in `table`, with its name, its help and its labels.
//! - A label's value is a text of the program itself (`&'static str`): nothing that an agent, an owner or a file says can become
//!   one, so there is no content in the figures, and their number is bounded.
//! - Counting never fails and never waits. A metric that cannot be registered counts nothing; a test holds that each can.
//!
//! Deliberately not here: what is counted. A process shows what its own parts have shown ([`Counter::show`] and its like) or used.

mod page;
mod process;
mod processes;
mod table;

use std::{
    fmt,
    sync::{LazyLock, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry};

pub use self::{
    page::{CONTENT_TYPE, Page, render, serve},
    processes::{Told, include},
    table::*,
};

/// Everything of this process that is shown.
static REGISTRY: LazyLock<Registry> = LazyLock::new(Registry::new);
/// Gauges that are asked for when the page is.
static FOLLOWED: Mutex<Vec<&'static dyn Ask>> = Mutex::new(Vec::new());

/// What a metric is called, and the names of its labels.
#[derive(Clone, Copy, Debug)]
struct Name<const LABELS: usize> {
    name: &'static str,
    help: &'static str,
    labels: [&'static str; LABELS],
}

/// A number that only grows.
pub struct Counter<const LABELS: usize> {
    name: Name<LABELS>,
    values: OnceLock<Option<IntCounterVec>>,
}

/// A number that goes up and down.
pub struct Gauge<const LABELS: usize> {
    name: Name<LABELS>,
    values: OnceLock<Option<IntGaugeVec>>,
    asked: Mutex<Option<Question>>,
}

/// Where a gauge's value is asked for, when the page is.
type Question = Box<dyn Fn() -> Option<i64> + Send>;

/// How often something took how long, or was how large.
pub struct Histogram<const LABELS: usize> {
    name: Name<LABELS>,
    buckets: &'static [f64],
    values: OnceLock<Option<HistogramVec>>,
}

/// A gauge that knows where to ask.
trait Ask: Sync {
    fn ask(&self);
}

/// Registers what was made, unless it cannot be.
fn registered<M: prometheus::core::Collector + Clone + 'static>(
    made: prometheus::Result<M>,
) -> Option<M> {
    let added = made.and_then(|metric| {
        REGISTRY.register(Box::new(metric.clone()))?;
        Ok(metric)
    });
    added
        .inspect_err(|error| tracing::error!(%error, "a metric cannot be shown"))
        .ok()
}

impl<const LABELS: usize> Counter<LABELS> {
    const fn new(name: &'static str, help: &'static str, labels: [&'static str; LABELS]) -> Self {
        Self {
            name: Name { name, help, labels },
            values: OnceLock::new(),
        }
    }

    /// Adds to it.
    pub fn add(&self, labels: [&'static str; LABELS], count: u64) {
        if let Some(values) = self.values() {
            values.with_label_values(&labels).inc_by(count);
        }
    }

    /// Shows it before there is anything to count; without labels it is zero then.
    pub fn show(&self) {
        if let Some(values) = self.values()
            && LABELS == 0
        {
            let _zero = values.with_label_values(&[] as &[&str]);
        }
    }

    fn values(&self) -> Option<&IntCounterVec> {
        let Name { name, help, labels } = self.name;
        self.values
            .get_or_init(|| registered(IntCounterVec::new(Opts::new(name, help), &labels)))
            .as_ref()
    }
}

impl<const LABELS: usize> Gauge<LABELS> {
    const fn new(name: &'static str, help: &'static str, labels: [&'static str; LABELS]) -> Self {
        Self {
            name: Name { name, help, labels },
            values: OnceLock::new(),
            asked: Mutex::new(None),
        }
    }

    /// Sets it.
    pub fn set(&self, labels: [&'static str; LABELS], value: i64) {
        if let Some(values) = self.values() {
            values.with_label_values(&labels).set(value);
        }
    }

    fn values(&self) -> Option<&IntGaugeVec> {
        let Name { name, help, labels } = self.name;
        self.values
            .get_or_init(|| registered(IntGaugeVec::new(Opts::new(name, help), &labels)))
            .as_ref()
    }
}

impl Gauge<0> {
    /// Shows it before it is set, as zero.
    pub fn show(&self) {
        self.add(0);
    }

    /// One more, until what this gives is dropped.
    #[must_use]
    pub fn enter(&'static self) -> Entered {
        self.add(1);
        Entered(self)
    }

    /// Has the value asked for whenever the page is; whoever says so last is asked. No value means that it stays as it was.
    pub fn follow(&'static self, value: impl Fn() -> Option<i64> + Send + 'static) {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if asked.replace(Box::new(value)).is_none() {
            let mut followed = FOLLOWED.lock().unwrap_or_else(PoisonError::into_inner);
            followed.push(self);
        }
    }

    fn add(&self, count: i64) {
        if let Some(values) = self.values() {
            values.with_label_values(&[] as &[&str]).add(count);
        }
    }
}

impl Ask for Gauge<0> {
    fn ask(&self) {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = asked.as_ref().and_then(|value| value()) {
            self.set([], value);
        }
    }
}

/// One of those that a gauge counts.
#[derive(Debug)]
pub struct Entered(&'static Gauge<0>);

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.add(-1);
    }
}

impl<const LABELS: usize> Histogram<LABELS> {
    const fn new(
        name: &'static str,
        help: &'static str,
        labels: [&'static str; LABELS],
        buckets: &'static [f64],
    ) -> Self {
        Self {
            name: Name { name, help, labels },
            buckets,
            values: OnceLock::new(),
        }
    }

    /// Notes a time, in seconds.
    pub fn time(&self, labels: [&'static str; LABELS], taken: Duration) {
        self.note(labels, taken.as_secs_f64());
    }

    /// Notes a size.
    pub fn size(&self, labels: [&'static str; LABELS], size: usize) {
        self.note(labels, f64::from(u32::try_from(size).unwrap_or(u32::MAX)));
    }

    /// Shows it before there is anything to note; without labels it is empty then.
    pub fn show(&self) {
        if let Some(values) = self.values()
            && LABELS == 0
        {
            let _empty = values.with_label_values(&[] as &[&str]);
        }
    }

    fn note(&self, labels: [&'static str; LABELS], value: f64) {
        if let Some(values) = self.values() {
            values.with_label_values(&labels).observe(value);
        }
    }

    fn values(&self) -> Option<&HistogramVec> {
        let Name { name, help, labels } = self.name;
        let options = HistogramOpts::new(name, help).buckets(self.buckets.to_vec());
        self.values
            .get_or_init(|| registered(HistogramVec::new(options, &labels)))
            .as_ref()
    }
}

/// A metric tells its name; its values are on the page.
macro_rules! debug_by_name {
    ($($metric:ident),*) => {$(
        impl<const LABELS: usize> fmt::Debug for $metric<LABELS> {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.debug_tuple(stringify!($metric)).field(&self.name.name).finish()
            }
        }
    )*};
}
debug_by_name!(Counter, Gauge, Histogram);

#[cfg(test)]
mod tests;
