//! Why a database is away, so that the log tells each cause once.

use std::fmt::Display;

/// The last cause.
#[derive(Debug, Default)]
pub struct Outage {
    cause: Option<String>,
}

impl Outage {
    /// Takes in a failure. Tells whether it is another than the last.
    pub fn is_news(&mut self, error: &impl Display) -> bool {
        let cause = error.to_string();
        let is_news = self.cause.as_ref() != Some(&cause);
        self.cause = Some(cause);
        is_news
    }

    /// The database is there.
    pub fn end(&mut self) {
        self.cause = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_is_told_once() {
        let mut outage = Outage::default();
        let causes = ["silent", "silent", "away", "silent"];
        let told = causes.iter().map(|cause| outage.is_news(cause));
        assert_eq!(told.collect::<Vec<_>>(), [true, false, true, true]);
        outage.end();
        assert!(outage.is_news(&"silent"));
    }
}
