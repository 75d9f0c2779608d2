//! Slugs: names as they can stand in a path.

use std::collections::HashSet;

use postern_types::Sha256;

/// Bytes of a slug at most, without the number that tells it from another.
const MAX_BYTES: usize = 60;

/// The slug of a name in any script: transliterated to lower-case letters, digits and single hyphens. A name that leaves
/// nothing gets a slug made of its digest, so that it is the same every time.
pub(super) fn of(name: &str) -> String {
    let mut slug = String::new();
    for character in deunicode::deunicode(name).chars() {
        if slug.len() >= MAX_BYTES {
            break;
        }
        if character.is_ascii_alphanumeric() {
            slug.push(character.to_ascii_lowercase());
        } else if !slug.is_empty() && !slug.ends_with('-') && character != '\'' {
            slug.push('-');
        }
    }
    slug.truncate(slug.trim_end_matches('-').len());
    if slug.is_empty() {
        return format!(
            "workspace-{}",
            &Sha256::of(name.as_bytes()).to_string()[..8]
        );
    }
    slug
}

/// The slug, or the first of `slug-2`, `slug-3`, … that is not taken.
pub(super) fn free(slug: String, taken: &HashSet<String>) -> String {
    if !taken.contains(&slug) {
        return slug;
    }
    let mut number: u64 = 2;
    loop {
        let candidate = format!("{slug}-{number}");
        if !taken.contains(&candidate) {
            return candidate;
        }
        number += 1;
    }
}

#[cfg(test)]
mod tests {
    use pretty_assertions::assert_eq;

    use super::*;

    #[test]
    fn names_of_any_script_get_a_slug() {
        for (name, slug) in [
            ("example", "example"),
            ("  My Project!  ", "my-project"),
            ("Über Straße 3", "uber-strasse-3"),
            ("Проект", "proekt"),
            ("Ελλάδα", "ellada"),
            ("北京", "bei-jing"),
            ("l'été", "lete"),
            ("e\u{301}te\u{301}", "ete"),
            ("東京 2", "dong-jing-2"),
            ("⁄⁄ x ⁄⁄", "x"),
            ("a/../b", "a-b"),
        ] {
            assert_eq!(of(name), slug, "{name}");
        }
    }

    #[test]
    fn a_name_that_leaves_nothing_gets_the_same_slug_every_time() {
        let slug = of("!!!");
        assert_eq!(slug, of("!!!"));
        assert_ne!(slug, of("???"));
        assert!(slug.starts_with("workspace-") && slug.len() == 18, "{slug}");
    }

    #[test]
    fn slugs_are_bounded_and_clean() {
        for name in [
            "x".repeat(120),
            "中".repeat(120),
            "a ".repeat(60),
            "مرحبا بالعالم".to_owned(),
            "שלום".to_owned(),
            "हिन्दी".to_owned(),
            "👩‍👩‍👧‍👦🏳️‍🌈".to_owned(),
            "\u{301}\u{302}\u{303}".to_owned(),
            "\u{202e}\u{200b}\u{feff}".to_owned(),
            "\u{e000}\u{10ffff}".to_owned(),
            "__--__".to_owned(),
            "﷽".repeat(120),
        ] {
            let slug = of(&name);
            let is_clean = slug
                .bytes()
                .all(|byte| byte == b'-' || byte.is_ascii_lowercase() || byte.is_ascii_digit());
            assert!(is_clean && !slug.is_empty(), "{name}: {slug}");
            let has_loose_hyphen =
                slug.starts_with('-') || slug.ends_with('-') || slug.contains("--");
            assert!(
                !has_loose_hyphen && slug.len() <= MAX_BYTES,
                "{name}: {slug}"
            );
        }
    }

    #[test]
    fn taken_slugs_are_numbered() {
        let taken: HashSet<String> = ["a", "a-2", "a-4"].map(str::to_owned).into();
        assert_eq!(free("a".to_owned(), &taken), "a-3");
        assert_eq!(free("b".to_owned(), &taken), "b");
    }
}
