//! One walk over a message that refuses duplicate keys and bottomless nesting.

use std::{borrow::Cow, collections::HashSet, fmt};

use serde::{
    Deserialize,
    de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor},
};

/// Deepest nesting of arrays and objects in a frame. `serde_json` stops at 128 by itself; the bound here is ours so that
/// it does not move with the library.
pub const MAX_DEPTH: usize = 100;

/// Checks that `text` is one JSON object with no key twice in any object, and nothing after it.
///
/// # Errors
/// The first problem, with its line and column.
pub fn check(text: &str) -> serde_json::Result<()> {
    if !text
        .trim_start_matches([' ', '\t', '\r', '\n'])
        .starts_with('{')
    {
        return Err(serde_json::Error::custom("a frame is one JSON object"));
    }
    let mut deserializer = serde_json::Deserializer::from_str(text);
    Walk { depth: 0 }.deserialize(&mut deserializer)?;
    deserializer.end()
}

/// Checks a call's arguments before they are put into a frame: in it they are one level deeper.
///
/// # Errors
/// The first reason why the frame around them would be refused.
pub fn check_args(args: &str) -> serde_json::Result<()> {
    let mut deserializer = serde_json::Deserializer::from_str(args);
    Walk { depth: 1 }.deserialize(&mut deserializer)?;
    deserializer.end()
}

#[derive(Clone, Copy)]
struct Walk {
    depth: usize,
}

impl Walk {
    fn deeper<E: serde::de::Error>(self) -> Result<Self, E> {
        if self.depth == MAX_DEPTH {
            return Err(E::custom("nested too deeply"));
        }
        Ok(Self {
            depth: self.depth + 1,
        })
    }
}

impl<'de> DeserializeSeed<'de> for Walk {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let walk = self.deeper()?;
        while items.next_element_seed(walk)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let walk = self.deeper()?;
        let mut keys = Keys::default();
        while let Some(Key(key)) = entries.next_key::<Key<'de>>()? {
            if !keys.insert(key) {
                return Err(A::Error::custom("duplicate key"));
            }
            entries.next_value_seed(walk)?;
        }
        Ok(())
    }
}

/// A key, borrowed from the text where it has no escapes.
#[derive(Deserialize)]
struct Key<'a>(#[serde(borrow, deserialize_with = "super::cow_str")] Cow<'a, str>);

/// Keys of one object that are compared one by one; a page of entries has some hundred objects of a few keys each, for
/// which sets of their own would be most of the walk's cost.
const FEW_KEYS: usize = 12;

/// The keys of one object.
#[derive(Default)]
struct Keys<'a> {
    few: Vec<Cow<'a, str>>,
    many: HashSet<Cow<'a, str>>,
}

impl<'a> Keys<'a> {
    /// Whether the key is new.
    fn insert(&mut self, key: Cow<'a, str>) -> bool {
        if self.few.contains(&key) {
            return false;
        }
        if self.few.len() < FEW_KEYS {
            self.few.push(key);
            return true;
        }
        self.many.insert(key)
    }
}
