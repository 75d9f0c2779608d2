//! Prometheus' text format (version 0.0.4), read strictly: whatever a scraper may refuse fails the test.

use std::collections::BTreeMap;

/// One line with a value.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Name with its suffix.
    pub name: String,
    /// Labels by their names.
    pub labels: BTreeMap<String, String>,
    /// Value.
    pub value: f64,
}

/// Metrics of one name.
#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    /// Name.
    pub name: String,
    /// `counter`, `gauge` or `histogram`.
    pub kind: String,
    /// Its lines.
    pub samples: Vec<Sample>,
}

/// A page of metrics.
#[derive(Clone, Debug, PartialEq)]
pub struct Exposition(Vec<Family>);

impl Exposition {
    /// Reads a page.
    ///
    /// # Panics
    /// When it is not as the format wants it: every family has one help and one type before its samples, stands together and
    /// only once, no sample is there twice, counters are not negative, and the buckets of a histogram grow up to its count.
    #[must_use]
    pub fn read(text: &str) -> Self {
        assert!(text.ends_with('\n'), "the last line ends");
        let mut families: Vec<Family> = Vec::new();
        let mut lines = text.lines().peekable();
        while let Some(line) = lines.next() {
            let help = line.strip_prefix("# HELP ");
            let (name, said) = help
                .and_then(|rest| rest.split_once(' '))
                .unwrap_or_else(|| panic!("a family begins with its help: {line}"));
            assert!(is_name(name) && !said.is_empty(), "{line}");
            let kind = lines
                .next()
                .and_then(|line| line.strip_prefix(&format!("# TYPE {name} ")))
                .unwrap_or_else(|| panic!("no type of {name}"));
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{kind}");
            assert!(
                families.iter().all(|known| known.name != name),
                "{name} twice"
            );
            let mut family = Family {
                name: name.to_owned(),
                kind: kind.to_owned(),
                samples: Vec::new(),
            };
            while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
                family.samples.push(sample(line));
            }
            check(&family);
            families.push(family);
        }
        Self(families)
    }

    /// The families, in their order.
    #[must_use]
    pub fn families(&self) -> &[Family] {
        &self.0
    }

    /// The family of that name.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn family(&self, name: &str) -> &Family {
        let found = self.0.iter().find(|family| family.name == name);
        found.unwrap_or_else(|| panic!("no {name} on the page"))
    }

    /// The sum of the samples of that name which have these labels among theirs; `None` when there is none.
    #[must_use]
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let samples = self.0.iter().flat_map(|family| &family.samples);
        let values: Vec<f64> = samples
            .filter(|sample| sample.name == name)
            .filter(|sample| {
                let has = |(label, value): &(&str, &str)| {
                    sample.labels.get(*label).is_some_and(|told| told == value)
                };
                labels.iter().all(has)
            })
            .map(|sample| sample.value)
            .collect();
        (!values.is_empty()).then(|| values.iter().sum())
    }
}

fn is_name(text: &str) -> bool {
    let mut characters = text.chars();
    let starts = |c: char| c.is_ascii_alphabetic() || c == '_';
    characters.next().is_some_and(starts)
        && characters.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn sample(line: &str) -> Sample {
    let (name, labels, value) = match line.split_once('{') {
        Some((name, rest)) => {
            let (labels, value) = rest
                .rsplit_once("} ")
                .unwrap_or_else(|| panic!("labels that do not end: {line}"));
            (name, read_labels(labels, line), value)
        }
        None => {
            let (name, value) = line
                .split_once(' ')
                .unwrap_or_else(|| panic!("no value: {line}"));
            (name, BTreeMap::new(), value)
        }
    };
    assert!(is_name(name), "{line}");
    let value = value
        .parse()
        .unwrap_or_else(|_| panic!("no number: {line}"));
    Sample {
        name: name.to_owned(),
        labels,
        value,
    }
}

/// Our labels have no quote, backslash or line end in them, and need no escapes.
fn read_labels(text: &str, line: &str) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    for pair in text.split(',') {
        let (name, value) = pair
            .split_once("=\"")
            .unwrap_or_else(|| panic!("no label: {line}"));
        let value = value
            .strip_suffix('"')
            .unwrap_or_else(|| panic!("a value that does not end: {line}"));
        assert!(is_name(name) && !value.contains(['"', '\\']), "{line}");
        let twice = labels.insert(name.to_owned(), value.to_owned());
        assert_eq!(twice, None, "{line}");
    }
    labels
}

fn check(family: &Family) {
    let mut seen = Vec::new();
    for sample in &family.samples {
        let key = (&sample.name, &sample.labels);
        assert!(!seen.contains(&key), "twice: {sample:?}");
        seen.push(key);
        let suffix = sample.name.strip_prefix(family.name.as_str());
        let good = match family.kind.as_str() {
            "histogram" => matches!(suffix, Some("_bucket" | "_sum" | "_count")),
            "counter" => suffix == Some("") && family.name.ends_with("_total"),
            _ => suffix == Some(""),
        };
        assert!(good, "{} has {}", family.name, sample.name);
        assert!(family.kind == "gauge" || sample.value >= 0.0, "{sample:?}");
    }
    if family.kind == "histogram" {
        check_histogram(family);
    }
}

fn check_histogram(family: &Family) {
    let of = |suffix: &str| {
        let name = format!("{}{suffix}", family.name);
        family
            .samples
            .iter()
            .filter(move |sample| sample.name == name)
    };
    for count in of("_count") {
        let mut last = (f64::NEG_INFINITY, 0.0);
        for bucket in of("_bucket") {
            let mut others = bucket.labels.clone();
            let bound = others.remove("le").expect("a bucket has its bound");
            if others == count.labels {
                let bound: f64 = bound.parse().expect("a bound is a number");
                assert!(bound > last.0 && bucket.value >= last.1, "{bucket:?}");
                last = (bound, bucket.value);
            }
        }
        assert_eq!(last, (f64::INFINITY, count.value), "{}", family.name);
        let sums = of("_sum").filter(|sum| sum.labels == count.labels);
        assert_eq!(sums.count(), 1, "{}", family.name);
    }
}
