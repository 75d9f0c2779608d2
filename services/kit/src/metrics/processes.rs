//! Figures of other processes on this one's page, told apart by a label.

use std::{
    collections::HashMap,
    fmt::Write as _,
    pin::Pin,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use futures_util::future::join_all;

/// Time in which another process tells its figures; a page without them is better than none.
const ASK_LIMIT: Duration = Duration::from_secs(2);
/// Longest text that is taken from another process, in bytes. A page has some 20 KiB.
const TEXT_LIMIT: usize = 1024 * 1024;

/// What another process answers, or nothing when it does not.
pub type Told = Pin<Box<dyn Future<Output = Option<String>> + Send>>;
type Source = Box<dyn Fn() -> Told + Send>;

/// Who is asked, by the label's value.
static SOURCES: Mutex<Option<HashMap<&'static str, Source>>> = Mutex::new(None);

/// Has another process's page asked for whenever this one's is. Its figures stand on this one's with the label `process`;
/// whoever says so last for a name is asked.
pub fn include(process: &'static str, source: impl Fn() -> Told + Send + 'static) {
    let mut sources = SOURCES.lock().unwrap_or_else(PoisonError::into_inner);
    let sources = sources.get_or_insert_default();
    sources.insert(process, Box::new(source));
}

/// The page of this process, and on it what the others tell now.
pub(super) async fn merged_with_others(own: String) -> String {
    let asked = {
        let sources = SOURCES.lock().unwrap_or_else(PoisonError::into_inner);
        let sources = sources.iter().flatten();
        sources
            .map(|(process, source)| (*process, source()))
            .collect()
    };
    merged(own, &told(asked).await)
}

/// What those say who answer in time and bounds.
async fn told(asked: Vec<(&'static str, Told)>) -> Vec<(&'static str, String)> {
    let told = join_all(asked.into_iter().map(async |(process, told)| {
        let text = tokio::time::timeout(ASK_LIMIT, told).await.ok()??;
        (text.len() <= TEXT_LIMIT).then_some((process, text))
    }));
    told.await.into_iter().flatten().collect()
}

/// Metrics of one name: their help and type, and a line for each value.
struct Family<'a> {
    name: &'a str,
    head: Vec<&'a str>,
    samples: Vec<String>,
}

/// A text of the format in which a family stands together and only once.
fn merged(own: String, others: &[(&str, String)]) -> String {
    if others.is_empty() {
        return own;
    }
    let mut families = families(&own, None);
    for (process, text) in others {
        for other in self::families(text, Some(process)) {
            match families.iter_mut().find(|known| known.name == other.name) {
                Some(known) => known.samples.extend(other.samples),
                None => families.push(other),
            }
        }
    }
    let mut text = String::new();
    for Family { head, samples, .. } in &families {
        let samples = samples.iter().map(String::as_str);
        for line in head.iter().copied().chain(samples) {
            // Writing to a string does not fail.
            let _ = writeln!(text, "{line}");
        }
    }
    text
}

/// The families of a page of ours, each value with the name of its process where it is another's.
fn families<'a>(text: &'a str, process: Option<&str>) -> Vec<Family<'a>> {
    let mut families: Vec<Family<'a>> = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            families.push(Family {
                name: rest.split_once(' ').map_or(rest, |(name, _)| name),
                head: vec![line],
                samples: Vec::new(),
            });
        } else if let Some(family) = families.last_mut() {
            match (line.starts_with('#'), process) {
                (true, _) => family.head.push(line),
                (false, None) => family.samples.push(line.to_owned()),
                (false, Some(process)) => family.samples.extend(labelled(line, process)),
            }
        }
    }
    families
}

/// A value with one label more.
fn labelled(sample: &str, process: &str) -> Option<String> {
    let end = sample.find(['{', ' '])?;
    let (name, rest) = sample.split_at(end);
    Some(match rest.strip_prefix('{') {
        Some(labels) => format!("{name}{{process=\"{process}\",{labels}"),
        None => format!("{name}{{process=\"{process}\"}}{rest}"),
    })
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    const OWN: &str = "# HELP a_total A.\n# TYPE a_total counter\na_total{tool=\"x\"} 1\n# HELP b B.\n# TYPE b gauge\nb 2\n";

    #[test]
    fn a_family_stands_together_whoever_tells_of_it() {
        let worker = "# HELP b B.\n# TYPE b gauge\nb 3\n\
            # HELP c C.\n# TYPE c histogram\nc_bucket{le=\"1\"} 4\nc_sum 5\n";
        let page = merged(OWN.to_owned(), &[("exec", worker.to_owned())]);
        let expected = "# HELP a_total A.\n# TYPE a_total counter\na_total{tool=\"x\"} 1\n\
            # HELP b B.\n# TYPE b gauge\nb 2\nb{process=\"exec\"} 3\n\
            # HELP c C.\n# TYPE c histogram\nc_bucket{process=\"exec\",le=\"1\"} 4\n\
            c_sum{process=\"exec\"} 5\n";
        assert_eq!(page, expected);
        assert_eq!(merged(OWN.to_owned(), &[]), OWN);
    }

    #[test]
    fn what_is_no_value_is_left_out() {
        for text in ["", "nonsense", "b 3\n", "# TYPE b gauge\nb 3\n"] {
            let page = merged(OWN.to_owned(), &[("exec", text.to_owned())]);
            assert_eq!(page, OWN, "{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_does_not_answer_is_left_out() {
        let asked: Vec<(&'static str, Told)> = vec![
            ("silent", Box::pin(std::future::pending())),
            ("gone", Box::pin(async { None })),
            ("long", Box::pin(async { Some("#".repeat(TEXT_LIMIT + 1)) })),
            ("there", Box::pin(async { Some(OWN.to_owned()) })),
        ];
        assert_eq!(told(asked).await, [("there", OWN.to_owned())]);
    }
}
