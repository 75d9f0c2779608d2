//! The names of a directory in the order of their bytes, in little memory.

/// The first names of a directory, in order, and how many there are in all.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct Names {
    /// The names, one behind the other.
    bytes: Box<[u8]>,
    /// Where each ends.
    ends: Box<[u32]>,
    /// How many the directory has.
    pub(super) total: u64,
}

impl Names {
    /// How many are kept.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Bytes of memory.
    pub(super) fn size(&self) -> usize {
        self.bytes.len() + size_of_val(&*self.ends)
    }

    /// A few of them.
    pub(super) fn page(&self, offset: usize, count: usize) -> impl ExactSizeIterator<Item = &[u8]> {
        let end = offset.saturating_add(count).min(self.len());
        (offset.min(end)..end).map(|index| {
            let start = match index.checked_sub(1) {
                Some(before) => self.ends[before],
                None => 0,
            };
            &self.bytes[start as usize..self.ends[index] as usize]
        })
    }
}

/// Gathers the smallest names of a directory, in at most twice the space that they need.
#[derive(Debug)]
pub(super) struct Gathered {
    bytes: Vec<u8>,
    spans: Vec<Span>,
    needed: usize,
    total: u64,
    /// No name from here on can be among the smallest.
    bound: Option<Box<[u8]>>,
}

/// Where a name lies. There are some 200,000 at most, of 255 bytes at most.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u32,
    length: u8,
}

impl Span {
    fn of(self, bytes: &[u8]) -> &[u8] {
        let start = self.start as usize;
        &bytes[start..start + usize::from(self.length)]
    }
}

impl Gathered {
    pub(super) fn new(needed: usize) -> Self {
        Self {
            bytes: Vec::new(),
            spans: Vec::new(),
            needed,
            total: 0,
            bound: None,
        }
    }

    /// How many are held now.
    pub(super) fn len(&self) -> usize {
        self.spans.len()
    }

    /// Counts a name and keeps it, if it may be among the smallest.
    pub(super) fn add(&mut self, name: &[u8]) {
        self.total += 1;
        if self.bound.as_deref().is_some_and(|bound| name >= bound) {
            return;
        }
        // A file system whose names are longer than 255 bytes does not exist; if one did, they could not be asked for.
        let (Ok(start), Ok(length)) = (u32::try_from(self.bytes.len()), u8::try_from(name.len()))
        else {
            return;
        };
        self.spans.push(Span { start, length });
        self.bytes.extend_from_slice(name);
        if self.spans.len() >= 2 * self.needed {
            self.shrink();
        }
    }

    fn shrink(&mut self) {
        let bytes = &self.bytes;
        let by_name = |one: &Span, other: &Span| one.of(bytes).cmp(other.of(bytes));
        let (_, first_over, _) = self.spans.select_nth_unstable_by(self.needed, by_name);
        self.bound = Some(first_over.of(bytes).into());
        self.spans.truncate(self.needed);
        let mut kept = Vec::with_capacity(self.bytes.len());
        for span in &mut self.spans {
            let name = span.of(&self.bytes);
            // It fits: the names were further apart before.
            span.start = u32::try_from(kept.len()).unwrap_or(span.start);
            kept.extend_from_slice(name);
        }
        self.bytes = kept;
    }

    pub(super) fn into_names(mut self) -> Names {
        let bytes = &self.bytes;
        self.spans
            .sort_unstable_by(|one, other| one.of(bytes).cmp(other.of(bytes)));
        self.spans.truncate(self.needed);
        let mut sorted = Vec::with_capacity(self.bytes.len());
        let mut ends = Vec::with_capacity(self.spans.len());
        for span in &self.spans {
            sorted.extend_from_slice(span.of(bytes));
            ends.push(u32::try_from(sorted.len()).unwrap_or(u32::MAX));
        }
        Names {
            bytes: sorted.into(),
            ends: ends.into(),
            total: self.total,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_smallest_are_those_of_a_full_sort(
            names in prop::collection::vec("[a-d]{1,4}", 0..60),
            needed in 1_usize..20,
            offset in 0_usize..25,
        ) {
            let mut gathered = Gathered::new(needed);
            for name in &names {
                gathered.add(name.as_bytes());
                prop_assert!(gathered.len() < 2 * needed.max(1));
            }
            let gathered = gathered.into_names();
            prop_assert_eq!(gathered.total, names.len() as u64);
            let mut sorted = names;
            sorted.sort();
            sorted.truncate(needed);
            prop_assert_eq!(gathered.len(), sorted.len());
            for (count, start) in [(usize::MAX, 0), (7, offset)] {
                let page: Vec<_> = gathered
                    .page(start, count)
                    .map(|name| String::from_utf8_lossy(name).into_owned())
                    .collect();
                let expected: Vec<_> = sorted.iter().skip(start).take(count).cloned().collect();
                prop_assert_eq!(page, expected);
            }
        }
    }
}
